//! The workers that process a queue's keys.

use std::{convert::Infallible, fmt::Debug, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::sync::{Mutex, mpsc};
use tracing::Instrument as _;

use super::{Item, Queue};
use crate::runtime::{Tasks, catch_panic};

/// When a key is processed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Not before it is added again. Resets its failures.
    Done,
    /// After its back-off. Counts a failure.
    Retry,
    /// After its back-off, but within this time. Counts a failure.
    RetryWithin(Duration),
    /// After this time. Keeps its failures.
    RequeueAfter(Duration),
}

/// What a queue's keys are processed by.
pub trait Worker<K>: Send + Sync + 'static {
    /// Works on `key`. Returns when to do so again.
    fn sync(&self, key: &K) -> impl Future<Output = Action> + Send;

    /// Work on `key` has panicked.
    fn after_panic(&self, _key: &K) {}
}

/// What the tasks of a queue share.
struct Shared<W, K: Ord + Clone> {
    queue: Queue<K>,
    worker: W,
    /// Held by the one worker that waits for a key, so that a key wakes only one.
    waits: Mutex<()>,
}

/// Runs `workers` tasks, each of which processes one of the queue's keys at a time by `worker`. Returns when the
/// queue is shut down and all tasks have ended.
///
/// If work on a key panics, that is logged and counted, the key is not processed again until it is added, and
/// [`Worker::after_panic`] is called with it.
pub async fn work<K>(queue: &Queue<K>, workers: usize, tasks: &Tasks, worker: impl Worker<K>)
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
{
    let shared = Arc::new(Shared { queue: queue.clone(), worker, waits: Mutex::default() });
    let (working, mut ended) = mpsc::channel::<Infallible>(1);
    for _ in 0..workers.max(1) {
        let (shared, working) = (Arc::clone(&shared), working.clone());
        tasks.spawn(shared.queue.name(), async move {
            let _working = working;
            while let Some(item) = shared.take().await {
                shared.process(item).await;
            }
        });
    }
    drop(working);
    ended.recv().await;
}

impl<W: Worker<K>, K: Ord + Clone + Debug + Send + Sync + 'static> Shared<W, K> {
    /// Waits for a key; `None` once the queue is shut down.
    async fn take(&self) -> Option<Item<K>> {
        let _waits = self.waits.lock().await;
        self.queue.get().await
    }

    /// Processes one key and requeues it as its action says.
    async fn process(&self, item: Item<K>) {
        let key = &*item;
        let span = tracing::info_span!("work", attempt = item.queue.failures(key) + 1);
        // Calls `sync` inside, to catch a panic before its future exists. Boxed, as its future is large and
        // each wrapper would move it.
        let synced = async { self.worker.sync(key).boxed().await };
        match catch_panic(synced.instrument(span)).await {
            Ok(action) => apply(&item, action),
            Err(panic) => {
                tracing::error!(
                    queue = item.queue.name(),
                    ?key,
                    panic,
                    "work on a key panicked; this is a bug"
                );
                item.queue.0.metrics.panics.inc();
                item.queue.forget(key);
                self.worker.after_panic(key);
            }
        }
    }
}

fn apply<K: Ord + Clone>(item: &Item<K>, action: Action) {
    match action {
        Action::Done => item.queue.forget(item),
        Action::Retry => item.queue.add_rate_limited((**item).clone()),
        Action::RetryWithin(limit) => item.queue.add_rate_limited_within((**item).clone(), limit),
        Action::RequeueAfter(delay) => item.queue.add_after((**item).clone(), delay),
    }
}
