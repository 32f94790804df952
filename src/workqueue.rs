//! client-go's rate-limiting work queue.
//!
//! [`Queue`] contains keys that need work, with their back-off; [`work()`] runs the workers that process
//! them. The semantics are in `core`; which key is next, in `fair_queue`. No wake-up is lost: every key that
//! is added is handed out once more. [`KeyedMutex`] keeps workers of different queues from working on the
//! same key.
//!
//! There are two deliberate differences to client-go: [`Queue::shut_down`] hands out nothing more, while
//! client-go drains what is ready; and the gauges of unfinished work are set at each scrape, not every
//! 500 ms.

mod core;
mod fair_queue;
mod keyed_mutex;
mod work;

use std::{ops::Deref, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::core::{Core, Next};
pub use self::{
    core::Place,
    fair_queue::Flow,
    keyed_mutex::{KeyedMutex, KeyedMutexGuard},
    work::{Action, Worker, work},
};
use crate::{
    metrics::{Metrics, QueueMetrics},
    runtime::Backoff,
};

/// A work queue. Clones are the same queue.
pub struct Queue<K: Ord + Clone>(Arc<SharedQueue<K>>);

/// Says whose key it is.
type FlowOf<K> = Box<dyn Fn(&K) -> Flow + Send + Sync>;

struct SharedQueue<K> {
    core: Mutex<Core<K>>,
    flow_of: FlowOf<K>,
    /// Notified when [`Queue::get`] may have a new result: a ready key, an earlier time, or shutdown.
    /// Notifies all waiting getters, so that none depends on another.
    changed: Notify,
    metrics: QueueMetrics,
    created: Instant,
}

impl<K: Ord + Clone> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Ord + Clone + Send + 'static> Queue<K> {
    /// Creates an empty queue of this name, whose keys are all of one flow. Each key that fails waits for its own
    /// `backoff`, as in client-go without jitter.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &Metrics) -> Self {
        Self::fair(name, backoff, metrics, usize::MAX, |_| Flow::default())
    }

    /// Creates an empty queue that shares its `workers` fairly among flows. `flow_of` says whose key it is;
    /// a key that has failed is a repeat in any case.
    pub fn fair(
        name: &'static str,
        backoff: Backoff,
        metrics: &Metrics,
        workers: usize,
        flow_of: impl Fn(&K) -> Flow + Send + Sync + 'static,
    ) -> Self {
        let queue = Self(Arc::new(SharedQueue {
            core: Mutex::new(Core::new(backoff, workers)),
            flow_of: Box::new(flow_of),
            changed: Notify::new(),
            metrics: metrics.workqueue.queue(name),
            created: Instant::now(),
        }));
        // The metrics do not keep the queue alive, nor what its flows are asked of.
        let scraped = Arc::downgrade(&queue.0);
        metrics.before_scrape(move || {
            if let Some(queue) = scraped.upgrade() {
                Self(queue).set_unfinished();
            }
        });
        queue
    }
}

impl<K: Ord + Clone> Queue<K> {
    fn name(&self) -> &'static str {
        self.0.metrics.name
    }

    /// Whose key it is. Asked without the lock, as the answer may take others.
    fn flow(&self, key: &K) -> Flow {
        let flow = (self.0.flow_of)(key);
        Flow { is_repeat: flow.is_repeat || self.failures(key) > 0, ..flow }
    }

    /// Adds a key. Does nothing if the key is ready already. A key that is being processed is handed out
    /// again afterwards.
    pub fn add(&self, key: K) {
        self.add_at(key, self.now());
    }

    /// Adds a key at the time `now`.
    fn add_at(&self, key: K, now: Duration) {
        let flow = self.flow(&key);
        if self.change(|core| core.add(key, flow, now)) {
            self.0.metrics.adds.inc();
        }
    }

    /// Adds these keys.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// Adds a key after `delay`, or earlier if it is already due to be added earlier.
    pub fn add_after(&self, key: K, delay: Duration) {
        let now = self.now();
        self.change(|core| {
            if !core.shut {
                self.0.metrics.retries.inc();
            }
            if !delay.is_zero() {
                core.add_at(key.clone(), now.saturating_add(delay));
            }
        });
        if delay.is_zero() {
            self.add(key);
        }
    }

    /// Counts a failure of the key, and adds the key after its back-off.
    pub fn add_rate_limited(&self, key: K) {
        self.add_rate_limited_within(key, Duration::MAX);
    }

    /// Counts a failure of the key, and adds the key after its back-off, or after `limit` if that is less.
    pub fn add_rate_limited_within(&self, key: K, limit: Duration) {
        let delay = self.0.core.lock().failed(&key);
        self.add_after(key, delay.min(limit));
    }

    /// Resets the key's failures. A delay that has begun is not shortened.
    pub fn forget(&self, key: &K) {
        self.0.core.lock().retried.forget_failures(key);
    }

    /// Forgets the key's failures and takes its delay back, as nothing is to be done for it any more.
    pub fn cancel(&self, key: &K) {
        self.0.core.lock().retried.cancel(key);
    }

    /// The number of the key's failures since the last [`Queue::forget`].
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.0.core.lock().retried.failures(key)
    }

    /// Whether the key is ready, delayed, or being processed.
    pub fn holds(&self, key: &K) -> bool {
        self.place(key) != Place::Absent
    }

    /// Where the key is.
    pub fn place(&self, key: &K) -> Place {
        self.0.core.lock().place(key, self.now())
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.0.core.lock().ready() == 0
    }

    /// Shuts the queue down: it accepts nothing more, and [`Queue::get`] returns `None`. Does not affect
    /// keys that are being processed.
    pub fn shut_down(&self) {
        self.change(Core::shut_down);
    }

    /// Waits for a ready key, and hands it out; `None` once the queue is shut down. Cancel safe: no key is
    /// lost if the future is dropped.
    pub async fn get(&self) -> Option<Item<K>> {
        loop {
            // Created before the check, so that no change in between is missed.
            let changed = self.0.changed.notified();
            match self.next() {
                Next::Key(key, _) => return Some(Item { key, queue: self.clone() }),
                Next::Shut => return None,
                Next::Wait(None) => changed.await,
                Next::Wait(Some(at)) => {
                    // A time-out means that a delayed key is due.
                    let _ = tokio::time::timeout(at.saturating_sub(self.now()), changed).await;
                }
            }
        }
    }

    /// Sets the gauges of unfinished work.
    fn set_unfinished(&self) {
        let (sum, longest) = self.0.core.lock().processing_times(self.now());
        self.0.metrics.unfinished_seconds.set(sum.as_secs_f64());
        self.0.metrics.longest_running_seconds.set(longest.as_secs_f64());
    }

    fn now(&self) -> Duration {
        self.0.created.elapsed()
    }

    fn next(&self) -> Next<K> {
        let now = self.now();
        while let Some(key) = self.take_due(now) {
            self.add_at(key, now);
        }
        let mut core = self.0.core.lock();
        let next = core.next(now);
        self.set_depth(&core);
        drop(core);
        if let Next::Key(_, waited) = &next {
            self.0.metrics.queue_seconds.observe(waited.as_secs_f64());
        }
        next
    }

    fn take_due(&self, now: Duration) -> Option<K> {
        self.0.core.lock().retried.pop_due(now)
    }

    fn done(&self, key: &K) {
        // What it did may have made a repeat of the next attempt.
        let (now, flow) = (self.now(), self.flow(key));
        if let Some(took) = self.change(|core| core.done(key, flow, now)) {
            self.0.metrics.work_seconds.observe(took.as_secs_f64());
        }
    }

    /// Applies `edit`, and notifies all getters.
    fn change<T>(&self, edit: impl FnOnce(&mut Core<K>) -> T) -> T {
        let mut core = self.0.core.lock();
        let result = edit(&mut core);
        self.set_depth(&core);
        drop(core);
        self.0.changed.notify_waiters();
        result
    }

    fn set_depth(&self, core: &Core<K>) {
        self.0.metrics.depth.set(i64::try_from(core.depth()).unwrap_or(i64::MAX));
    }
}

/// A key that is being processed. Dropping this ends the processing; if the key was added meanwhile, it
/// becomes ready.
pub struct Item<K: Ord + Clone> {
    key: K,
    queue: Queue<K>,
}

impl<K: Ord + Clone> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Ord + Clone> Drop for Item<K> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

#[cfg(test)]
mod tests;
