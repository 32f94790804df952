//! The state of a queue, with client-go's semantics, without a clock, tasks or locks.
//!
//! A key is processed by one worker at a time. Keys are handed out as `fair_queue` says, those of one flow in
//! the order in which they were added.
//! A key that is added while it is processed is handed out again afterwards. Of several delays the earliest
//! counts. [`Queue`](super::Queue) adds delayed and waking.
//!
//! Times are durations since the queue was created. Callers pass `now`, which must not decrease.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::fair_queue::{FairQueue, Flow};
use crate::runtime::Backoff;

/// The state of a queue of keys `K`.
#[derive(Debug)]
pub(super) struct Core<K> {
    backoff: Backoff,
    /// Keys to hand out. Each is dirty and not processing.
    ready: FairQueue<K>,
    /// Keys that need work, with the time when they were added.
    dirty: BTreeMap<K, (Duration, Flow)>,
    /// Keys that are being processed, with the time when they were handed out.
    processing: BTreeMap<K, (Duration, Flow)>,
    /// Keys that are added at a later time, and how often keys have failed.
    pub(super) retried: RetriedKeys<K>,
    /// Whether the queue is shut down.
    pub(super) shut: bool,
}

/// The result of [`Core::next`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<K> {
    /// A key, and for how long it was ready.
    Key(K, Duration),
    /// No key is ready before this time, unless one is added.
    Wait(Option<Duration>),
    /// The queue is shut down.
    Shut,
}

/// Where a key is in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "camelCase")]
pub enum Place {
    /// The queue does not have it.
    #[default]
    Absent,
    /// It is processed as soon as a worker is free.
    Ready,
    /// It is being processed.
    Processing {
        /// For how many seconds.
        seconds: u64,
    },
    /// It becomes ready later, if nothing adds it earlier.
    Delayed {
        /// In how many seconds, rounded up.
        seconds: u64,
    },
}

impl<K: Ord + Clone> Core<K> {
    /// Creates an empty queue that `workers` take keys from.
    pub(super) fn new(backoff: Backoff, workers: usize) -> Self {
        Self {
            backoff,
            ready: FairQueue::new(workers),
            dirty: BTreeMap::new(),
            processing: BTreeMap::new(),
            retried: RetriedKeys::default(),
            shut: false,
        }
    }

    /// Adds a key. Returns `false` if it was dirty already or the queue is shut down.
    pub(super) fn add(&mut self, key: K, flow: Flow, now: Duration) -> bool {
        if self.shut || self.dirty.contains_key(&key) {
            return false;
        }
        self.dirty.insert(key.clone(), (now, flow));
        if !self.processing.contains_key(&key) {
            self.ready.push(key, flow);
        }
        true
    }

    /// Adds a key at the time `at`, or earlier if it is already delayed until an earlier time.
    pub(super) fn add_at(&mut self, key: K, at: Duration) {
        if !self.shut {
            self.retried.delay(key, at);
        }
    }

    /// Hands out the next ready key. It is being processed until [`Core::done`].
    pub(super) fn next(&mut self, now: Duration) -> Next<K> {
        if self.shut {
            return Next::Shut;
        }
        let Some(key) = self.ready.pop() else { return Next::Wait(self.retried.earliest()) };
        let (added, flow) = self.dirty.remove(&key).unwrap_or_else(|| (now, Flow::default()));
        self.processing.insert(key.clone(), (now, flow));
        Next::Key(key, now.saturating_sub(added))
    }

    /// Ends the processing of a key, which becomes ready if it was added meanwhile. Returns how long the
    /// processing took, or `None` for a key that was not handed out.
    pub(super) fn done(&mut self, key: &K, flow: Flow, now: Duration) -> Option<Duration> {
        let (started, began_as) = self.processing.remove(key)?;
        self.ready.end(began_as);
        if let Some(dirty) = self.dirty.get_mut(key) {
            dirty.1 = flow;
            self.ready.push(key.clone(), flow);
        }
        Some(now.saturating_sub(started))
    }

    /// Counts a failure of the key. Returns its back-off.
    pub(super) fn failed(&mut self, key: &K) -> Duration {
        self.backoff.delay(self.retried.count_failure(key))
    }

    /// Where the key is.
    pub(super) fn place(&self, key: &K, now: Duration) -> Place {
        if let Some((began, _)) = self.processing.get(key) {
            Place::Processing { seconds: now.saturating_sub(*began).as_secs() }
        } else if self.dirty.contains_key(key) {
            Place::Ready
        } else if let Some(due) = self.retried.due(key) {
            let left = due.at.saturating_sub(now);
            // Rounded up, so that nothing is announced earlier than it happens.
            Place::Delayed { seconds: left.as_secs() + u64::from(left.subsec_nanos() > 0) }
        } else {
            Place::Absent
        }
    }

    /// The number of ready keys.
    pub(super) fn ready(&self) -> usize {
        self.ready.ready()
    }

    /// The number of dirty keys: ready, or added while being processed (client-go's `depth`).
    pub(super) fn depth(&self) -> usize {
        self.dirty.len()
    }

    /// For how long keys have been processed: the sum, and the longest.
    pub(super) fn processing_times(&self, now: Duration) -> (Duration, Duration) {
        let ages = self.processing.values().map(|(started, _)| now.saturating_sub(*started));
        ages.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), age| {
            (sum.saturating_add(age), longest.max(age))
        })
    }

    /// Shuts the queue down: it accepts and hands out nothing more, and drops ready and delayed keys.
    pub(super) fn shut_down(&mut self) {
        self.shut = true;
        self.ready.clear();
        self.dirty.clear();
        self.retried.drop_delays();
    }
}

/// Keys that are added at a later time, and how often keys have failed. Mostly these are the same keys, and there
/// may be many.
#[derive(Debug)]
pub(super) struct RetriedKeys<K> {
    by_time: BTreeMap<Due, K>,
    by_key: BTreeMap<K, Retries>,
    /// The number of delays so far.
    count: u64,
}

/// What is kept of a key between two attempts.
#[derive(Debug, Default)]
struct Retries {
    failures: u32,
    due: Option<Due>,
}

/// When a delayed key is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Duration,
    /// Counts delays, so that keys of the same time keep their order.
    number: u64,
}

impl<K> Default for RetriedKeys<K> {
    fn default() -> Self {
        Self { by_time: BTreeMap::new(), by_key: BTreeMap::new(), count: 0 }
    }
}

impl<K: Ord + Clone> RetriedKeys<K> {
    /// Delays the key until `at`, unless it is due earlier already.
    fn delay(&mut self, key: K, at: Duration) {
        let retries = self.by_key.entry(key.clone()).or_default();
        if let Some(due) = retries.due {
            if due.at <= at {
                return;
            }
            self.by_time.remove(&due);
        }
        self.count += 1;
        let due = Due { at, number: self.count };
        retries.due = Some(due);
        self.by_time.insert(due, key);
    }

    /// Takes the next delayed key that is due. The caller adds it.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<K> {
        let first = self.by_time.first_entry()?;
        if first.key().at > now {
            return None;
        }
        let key = first.remove();
        self.change(&key, |retries| retries.due = None);
        Some(key)
    }

    fn earliest(&self) -> Option<Duration> {
        self.by_time.first_key_value().map(|(due, _)| due.at)
    }

    fn due(&self, key: &K) -> Option<Due> {
        self.by_key.get(key)?.due
    }

    fn drop_delays(&mut self) {
        for key in std::mem::take(&mut self.by_time).into_values() {
            self.change(&key, |retries| retries.due = None);
        }
    }

    /// The number of the key's failures since they were forgotten.
    pub(super) fn failures(&self, key: &K) -> u32 {
        self.by_key.get(key).map_or(0, |retries| retries.failures)
    }

    /// Counts a failure of the key. Returns the number of those before it.
    fn count_failure(&mut self, key: &K) -> u32 {
        let failures = &mut self.by_key.entry(key.clone()).or_default().failures;
        std::mem::replace(failures, failures.saturating_add(1))
    }

    /// Forgets the key's failures and takes its delay back, as nothing is to be done for it any more.
    pub(super) fn cancel(&mut self, key: &K) {
        if let Some(due) = self.by_key.remove(key).and_then(|retries| retries.due) {
            self.by_time.remove(&due);
        }
    }

    /// Resets the key's failures. A delay that has begun is not shortened.
    pub(super) fn forget_failures(&mut self, key: &K) {
        self.change(key, |retries| retries.failures = 0);
    }

    /// Changes what is kept of the key, and drops it if it says nothing any more.
    fn change(&mut self, key: &K, change: impl FnOnce(&mut Retries)) {
        let Some(retries) = self.by_key.get_mut(key) else { return };
        change(retries);
        if retries.failures == 0 && retries.due.is_none() {
            self.by_key.remove(key);
        }
    }
}
