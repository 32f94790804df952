//! client-go's rate-limited work queue.
//!
//! Owns keys between "something happened" and "somebody works on it", their back-off, and the
//! loop that works on them ([`work()`]). Promises what `core` says, and that no wake-up is lost:
//! every key added comes out once more. Owns as well the keys by which different workers keep out of
//! each other's way ([`KeyedMutex`]). Leaves what a key means to its users.
//!
//! Two deliberate differences to client-go: [`Queue::shut_down`] hands out nothing more (client-go
//! still drains what is ready), and the gauges of unfinished work are refreshed by [`work()`] every
//! 500 ms while a piece is under way (client-go: for ever).

mod core;
mod keyed_mutex;
mod limiter;
mod work;

use std::{fmt, hash::Hash, ops::Deref, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::core::{Core, Next};
pub use self::{
    keyed_mutex::{Held, KeyedMutex},
    limiter::Limiter,
    work::{Action, work},
};
use crate::metrics::QueueMetrics;

/// A work queue. Clones are the same queue.
pub struct Queue<K: Eq + Hash + Clone>(Arc<Shared<K>>);

struct Shared<K> {
    core: Mutex<Core<K>>,
    /// Told whenever a getter might find something else than before: a ready key, an earlier time
    /// to wait for, the end. All getters are told each time, so that none depends on another.
    changed: Notify,
    metrics: QueueMetrics,
    made: Instant,
}

impl<K: Eq + Hash + Clone> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Eq + Hash + Clone> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("ready", &self.len()).finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Clone> Queue<K> {
    /// An empty queue whose failed keys wait as `limiter` says.
    pub fn new(limiter: Limiter, metrics: QueueMetrics) -> Self {
        let core = Mutex::new(Core::new(limiter));
        Self(Arc::new(Shared { core, changed: Notify::new(), metrics, made: Instant::now() }))
    }

    /// The key needs work. Does nothing when it waits for work already; a key being worked on
    /// comes again afterwards.
    pub fn add(&self, key: K) {
        let now = self.now();
        self.change(|core| u64::from(core.add(key, now)));
    }

    /// The key needs work after `delay`, or earlier where it waits for an earlier time already.
    pub fn add_after(&self, key: K, delay: Duration) {
        let now = self.now();
        self.change(|core| {
            if !core.is_shut() {
                self.0.metrics.retries.inc();
            }
            if delay.is_zero() {
                return u64::from(core.add(key, now));
            }
            core.add_at(key, now.saturating_add(delay));
            0
        });
    }

    /// The work on the key has failed: it comes again when its back-off allows.
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.0.core.lock().failed(&key, self.now());
        self.add_after(key, delay);
    }

    /// The key's failures no longer count. Where it waits for its time, it goes on waiting.
    pub fn forget(&self, key: &K) {
        self.0.core.lock().forget(key);
    }

    /// How often the key has failed since it was last forgotten.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.0.core.lock().failures(key)
    }

    /// How many keys are ready to be worked on.
    pub fn len(&self) -> usize {
        self.0.core.lock().ready()
    }

    /// Whether the key is ready, waits for its time, or is being worked on.
    pub fn holds(&self, key: &K) -> bool {
        self.0.core.lock().holds(key)
    }

    /// Whether no key is ready to be worked on.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on nothing is taken in, and [`Queue::get`] gives `None`. Work under way is not
    /// touched.
    pub fn shut_down(&self) {
        self.change(|core| {
            core.shut_down();
            0
        });
    }

    /// DependencyIndex for a key to work on; `None` once the queue is shut down. Cancel safe: a key is
    /// handed out only together with the answer.
    pub async fn get(&self) -> Option<Item<K>> {
        loop {
            // Made before looking, so that a change between looking and waiting is not missed.
            let changed = self.0.changed.notified();
            match self.next() {
                Next::Key(key, _) => return Some(Item { key, queue: self.clone() }),
                Next::Shut => return None,
                Next::Wait(None) => changed.await,
                Next::Wait(Some(at)) => {
                    // Times out at the key's time, or is told of something sooner.
                    let _ = tokio::time::timeout(at.saturating_sub(self.now()), changed).await;
                }
            }
        }
    }

    /// Refreshes the gauges of the work under way; whether there is any.
    fn observe(&self) -> bool {
        let core = self.0.core.lock();
        let (sum, longest) = core.under_way(self.now());
        self.0.metrics.unfinished_seconds.set(sum.as_secs_f64());
        self.0.metrics.longest_running_seconds.set(longest.as_secs_f64());
        core.is_busy()
    }

    fn now(&self) -> Duration {
        self.0.made.elapsed()
    }

    fn next(&self) -> Next<K> {
        let now = self.now();
        let mut core = self.0.core.lock();
        let news = core.advance(now);
        let next = core.next(now);
        self.count(&core, news);
        drop(core);
        if let Next::Key(_, waited) = &next {
            self.0.metrics.queue_seconds.observe(waited.as_secs_f64());
        }
        next
    }

    fn done(&self, key: &K) {
        let now = self.now();
        self.change(|core| {
            if let Some(took) = core.done(key, now) {
                self.0.metrics.work_seconds.observe(took.as_secs_f64());
            }
            0
        });
    }

    /// Changes the state, counts what was added, and tells all getters.
    fn change(&self, edit: impl FnOnce(&mut Core<K>) -> u64) {
        let mut core = self.0.core.lock();
        let news = edit(&mut core);
        self.count(&core, news);
        drop(core);
        self.0.changed.notify_waiters();
    }

    fn count(&self, core: &Core<K>, news: u64) {
        self.0.metrics.adds.inc_by(news);
        self.0.metrics.depth.set(i64::try_from(core.depth()).unwrap_or(i64::MAX));
    }
}

/// A key being worked on. Dropping it ends the work, and a key added meanwhile becomes ready.
pub struct Item<K: Eq + Hash + Clone> {
    key: K,
    queue: Queue<K>,
}

impl<K: Eq + Hash + Clone> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Eq + Hash + Clone + fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.key).finish()
    }
}

impl<K: Eq + Hash + Clone> Drop for Item<K> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

#[cfg(test)]
mod tests;
