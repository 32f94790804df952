//! The queue's rules, without time, tasks or locks of their own.
//!
//! Owns which key is ready, being worked on, waiting for its time, or known to have failed.
//! Promises client-go's semantics: a key is worked on by one at a time; keys come out in the order
//! they went in; a key added while it is worked on comes again afterwards; of several delays the
//! earliest counts. Leaves waiting and waking to [`Queue`](super::Queue).
//!
//! Times are durations since the queue was made; callers pass `now` in and never let it go back.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use super::limiter::Limiter;
use crate::table::Table;

/// Slots of the ready line that are kept when it runs empty; what a burst needed is given back.
const KEPT_SLOTS: usize = 64;

/// The state of a queue of keys `K`.
#[derive(Debug)]
pub(super) struct Core<K> {
    limiter: Limiter,
    /// Keys to be handed out, first in first out. Each is dirty and not processing.
    ready: VecDeque<K>,
    /// Keys that need work, with the time they were added.
    dirty: Table<K, Duration>,
    /// Keys being worked on, with the time they were handed out.
    processing: Table<K, Duration>,
    waiting: Waiting<K>,
    failures: Table<K, u32>,
    shut: bool,
}

/// What handing out a key found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<K> {
    /// The key to work on, and how long it was ready.
    Key(K, Duration),
    /// Nothing is ready before this time (or before something is added).
    Wait(Option<Duration>),
    /// The queue is shut down.
    Shut,
}

impl<K: Eq + Hash + Clone> Core<K> {
    /// An empty queue.
    pub(super) fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            ready: VecDeque::new(),
            dirty: Table::default(),
            processing: Table::default(),
            waiting: Waiting::default(),
            failures: Table::default(),
            shut: false,
        }
    }

    /// The key needs work now. Whether that is news: `false` when it was dirty already or the
    /// queue is shut down.
    pub(super) fn add(&mut self, key: K, now: Duration) -> bool {
        if self.shut || self.dirty.contains_key(&key) {
            return false;
        }
        self.dirty.insert(key.clone(), now);
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key);
        }
        true
    }

    /// The key needs work at the time `at`, or at an earlier one that it waits for already.
    pub(super) fn add_at(&mut self, key: K, at: Duration) {
        if !self.shut {
            self.waiting.insert(key, at);
        }
    }

    /// Adds the keys whose time has come; how many of them were news.
    pub(super) fn advance(&mut self, now: Duration) -> u64 {
        let mut news = 0;
        while let Some(key) = self.waiting.pop_due(now) {
            news += u64::from(self.add(key, now));
        }
        news
    }

    /// Hands out the next ready key, which is then being worked on until [`Core::done`].
    pub(super) fn next(&mut self, now: Duration) -> Next<K> {
        if self.shut {
            return Next::Shut;
        }
        let Some(key) = self.ready.pop_front() else {
            self.ready.shrink_to(KEPT_SLOTS);
            return Next::Wait(self.waiting.earliest());
        };
        let added = self.dirty.remove(&key).unwrap_or(now);
        self.processing.insert(key.clone(), now);
        Next::Key(key, now.saturating_sub(added))
    }

    /// The work on a key has ended; how long it took, or `None` for a key not handed out. A key
    /// added meanwhile becomes ready.
    pub(super) fn done(&mut self, key: &K, now: Duration) -> Option<Duration> {
        let started = self.processing.remove(key)?;
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        Some(now.saturating_sub(started))
    }

    /// Counts one more failure of a key; how long it has to wait for it.
    pub(super) fn failed(&mut self, key: &K, now: Duration) -> Duration {
        let failures = self.failures.get_or_default(key);
        let wait = self.limiter.wait(*failures, now);
        *failures = failures.saturating_add(1);
        wait
    }

    /// Forgets a key's failures. Where the key waits for its time, it goes on waiting.
    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// How often a key has failed since it was last forgotten.
    pub(super) fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// Whether the key is ready, waits for its time, or is being worked on.
    pub(super) fn holds(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
            || self.processing.contains_key(key)
            || self.waiting.by_key.contains_key(key)
    }

    /// How many keys are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many keys need work, ready or added while being worked on (client-go's `depth`).
    pub(super) fn depth(&self) -> usize {
        self.dirty.len()
    }

    /// How long the work under way has taken: summed, and the longest.
    pub(super) fn under_way(&self, now: Duration) -> (Duration, Duration) {
        let ages = self.processing.values().map(|started| now.saturating_sub(*started));
        ages.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), age| {
            (sum.saturating_add(age), longest.max(age))
        })
    }

    /// Whether any key is being worked on.
    pub(super) fn is_busy(&self) -> bool {
        !self.processing.is_empty()
    }

    /// Whether [`Core::shut_down`] was called.
    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    /// From now on nothing is taken in or handed out; what waits is let go.
    pub(super) fn shut_down(&mut self) {
        self.shut = true;
        self.ready = VecDeque::new();
        self.dirty.clear();
        self.waiting = Waiting::default();
    }
}

/// Keys that wait for their time.
#[derive(Debug)]
struct Waiting<K> {
    /// By time, then by the order of coming, so that keys of one time come out as they went in.
    by_time: BTreeMap<(Duration, u64), K>,
    by_key: Table<K, (Duration, u64)>,
    count: u64,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { by_time: BTreeMap::new(), by_key: Table::default(), count: 0 }
    }
}

impl<K: Eq + Hash + Clone> Waiting<K> {
    fn insert(&mut self, key: K, at: Duration) {
        if let Some(known) = self.by_key.get(&key) {
            if known.0 <= at {
                return;
            }
            self.by_time.remove(known);
        }
        self.count += 1;
        self.by_time.insert((at, self.count), key.clone());
        self.by_key.insert(key, (at, self.count));
    }

    fn pop_due(&mut self, now: Duration) -> Option<K> {
        let first = self.by_time.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let key = first.remove();
        self.by_key.remove(&key);
        Some(key)
    }

    fn earliest(&self) -> Option<Duration> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }
}
