//! The loop that processes a queue's keys.

use std::{hash::Hash, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tracing::Instrument as _;

use super::{Item, Queue};
use crate::runtime::{Tasks, catch_panic};

/// The interval at which the gauges of unfinished work are updated, as in client-go.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// When a key is processed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Not before it is added again. Resets its failures.
    Done,
    /// After its back-off. Counts a failure.
    Retry,
    /// After its back-off, but within this time. Counts a failure.
    RetryWithin(Duration),
    /// When something that the handler waits for adds it. Keeps its failures.
    AwaitChange,
    /// After this time. Keeps its failures.
    RequeueAfter(Duration),
}

/// Calls `handler` for the queue's keys, at most `limit` at once, each in a task of its own called `name`.
/// Returns when the queue is shut down and all tasks have ended.
///
/// If `handler` panics, the key is not processed again until it is added, and `on_panic` is called with the
/// key and the panic's message.
pub async fn work<K, F, P>(
    queue: Queue<K>,
    limit: usize,
    tasks: Tasks,
    name: &'static str,
    handler: impl Fn(K) -> F + Send + Sync + 'static,
    on_panic: P,
) where
    K: Eq + Hash + Clone + Send + 'static,
    F: Future<Output = Action> + Send + 'static,
    P: Fn(&K, &str) + Send + Sync + 'static,
{
    let handlers = Arc::new((handler, on_panic));
    let limit = limit.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
    let free = Arc::new(Semaphore::new(limit));
    let mut gauges = GaugeUpdater::new(&queue);
    while let Some((item, permit)) = gauges.update_until(take(&queue, &free)).await {
        let handlers = Arc::clone(&handlers);
        tasks.spawn(name, async move {
            let (handler, on_panic) = &*handlers;
            process(item, handler, on_panic).await;
            drop(permit);
        });
    }
    let all = u32::try_from(limit).unwrap_or(u32::MAX);
    // Cannot fail, as the semaphore is never closed.
    let _ = gauges.update_until(free.acquire_many(all)).await;
    queue.update_unfinished();
}

/// Waits for a free permit and then for a key, so that no key is held without being processed.
async fn take<K: Eq + Hash + Clone>(
    queue: &Queue<K>,
    free: &Arc<Semaphore>,
) -> Option<(Item<K>, OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.ok()?;
    Some((queue.get().await?, permit))
}

/// Updates the gauges of unfinished work while any key is being processed.
struct GaugeUpdater<'a, K: Eq + Hash + Clone> {
    queue: &'a Queue<K>,
    /// When they are updated next. Not at each key, as that iterates over all keys being processed.
    due: Instant,
}

impl<'a, K: Eq + Hash + Clone> GaugeUpdater<'a, K> {
    fn new(queue: &'a Queue<K>) -> Self {
        Self { queue, due: Instant::now() }
    }

    /// Waits for `event`, and updates the gauges meanwhile.
    async fn update_until<T>(&mut self, event: impl Future<Output = T>) -> T {
        tokio::pin!(event);
        loop {
            let busy = self.update_if_due();
            tokio::select! {
                biased;
                happened = &mut event => return happened,
                () = tokio::time::sleep_until(self.due), if busy => {}
            }
        }
    }

    /// Updates the gauges if that is due. Returns whether it will be due again.
    fn update_if_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return true;
        }
        self.due = now + UPDATE_INTERVAL;
        self.queue.update_unfinished()
    }
}

/// Processes one key and requeues it as its action says.
async fn process<K, F>(item: Item<K>, handler: impl Fn(K) -> F, on_panic: impl Fn(&K, &str))
where
    K: Eq + Hash + Clone + Send + 'static,
    F: Future<Output = Action> + Send + 'static,
{
    let key = (*item).clone();
    let span = tracing::info_span!("work", attempt = item.queue.failures(&key) + 1);
    // Calls the handler inside, to catch a panic before its future exists. Boxed, as its future is large
    // and each wrapper would move it.
    match catch_panic(async { handler(key).boxed().await }.instrument(span)).await {
        Ok(action) => apply(&item, action),
        Err(panic) => {
            item.queue.forget(&item);
            on_panic(&item, &panic);
        }
    }
}

fn apply<K: Eq + Hash + Clone>(item: &Item<K>, action: Action) {
    match action {
        Action::Done => item.queue.forget(item),
        Action::Retry => item.queue.add_rate_limited((**item).clone()),
        Action::RetryWithin(limit) => item.queue.add_rate_limited_within((**item).clone(), limit),
        Action::AwaitChange => {}
        Action::RequeueAfter(delay) => item.queue.add_after((**item).clone(), delay),
    }
}
