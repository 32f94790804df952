//! The workers that process a queue's keys.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::{
    sync::{Mutex, Notify, mpsc},
    time::sleep,
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

/// What the workers of a queue share.
struct Shared<K: Ord + Clone, H, P> {
    queue: Queue<K>,
    handler: H,
    on_panic: P,
    /// Held by the one worker that waits for a key, so that a key wakes only one.
    waits: Mutex<()>,
    /// Notified when a key begins to be processed.
    began: Notify,
}

/// Runs so many workers, tasks called `name`, each of which calls `handler` for one of the queue's keys at a
/// time. Returns when the queue is shut down and all workers have ended.
///
/// If `handler` panics, the key is not processed again until it is added, and `on_panic` is called with the
/// key and the panic's message.
pub async fn work<K, F, P>(
    queue: Queue<K>,
    workers: usize,
    tasks: Tasks,
    name: &'static str,
    handler: impl Fn(K) -> F + Send + Sync + 'static,
    on_panic: P,
) where
    K: Ord + Clone + Send + 'static,
    F: Future<Output = Action> + Send + 'static,
    P: Fn(&K, &str) + Send + Sync + 'static,
{
    let (waits, began) = (Mutex::default(), Notify::new());
    let shared = Arc::new(Shared { queue, handler, on_panic, waits, began });
    let (working, ended) = mpsc::channel::<Infallible>(1);
    for _ in 0..workers.max(1) {
        let (shared, working) = (Arc::clone(&shared), working.clone());
        tasks.spawn(name, async move {
            let _working = working;
            while let Some(item) = shared.take().await {
                process(item, &shared.handler, &shared.on_panic).await;
            }
        });
    }
    drop(working);
    update_gauges(&shared.queue, &shared.began, ended).await;
}

impl<K: Ord + Clone, H, P> Shared<K, H, P> {
    /// Waits for a key; `None` once the queue is shut down.
    async fn take(&self) -> Option<Item<K>> {
        let _waits = self.waits.lock().await;
        let item = self.queue.get().await?;
        self.began.notify_one();
        Some(item)
    }
}

/// Updates the gauges of unfinished work while any key is being processed, until the workers have ended.
async fn update_gauges<K: Ord + Clone>(
    queue: &Queue<K>,
    began: &Notify,
    mut ended: mpsc::Receiver<Infallible>,
) {
    let mut is_busy = false;
    loop {
        tokio::select! {
            biased;
            _ = ended.recv() => break,
            () = sleep(UPDATE_INTERVAL), if is_busy => is_busy = queue.update_unfinished(),
            () = began.notified(), if !is_busy => is_busy = true,
        }
    }
    queue.update_unfinished();
}

/// Processes one key and requeues it as its action says.
async fn process<K, F>(item: Item<K>, handler: impl Fn(K) -> F, on_panic: impl Fn(&K, &str))
where
    K: Ord + Clone + Send + 'static,
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

fn apply<K: Ord + Clone>(item: &Item<K>, action: Action) {
    match action {
        Action::Done => item.queue.forget(item),
        Action::Retry => item.queue.add_rate_limited((**item).clone()),
        Action::RetryWithin(limit) => item.queue.add_rate_limited_within((**item).clone(), limit),
        Action::AwaitChange => {}
        Action::RequeueAfter(delay) => item.queue.add_after((**item).clone(), delay),
    }
}
