//! The loop that works on a queue's keys.

use std::{hash::Hash, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tracing::Instrument as _;

use super::{Item, Queue};
use crate::runtime::{Tasks, caught};

/// How often the gauges of unfinished work are refreshed, as in client-go.
const OBSERVE_EVERY: Duration = Duration::from_millis(500);

/// What becomes of a key after a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing left to do: its failures are forgotten.
    Done,
    /// It failed: it comes again when its back-off allows.
    Retry,
    /// It waits for something that will add it again; that is no failure, and earlier ones keep
    /// counting.
    AwaitChange,
    /// It comes again after this time; that is no failure, and earlier ones keep counting.
    RequeueAfter(Duration),
}

/// Runs `handler` for the queue's keys, at most `limit` pieces at once, each in a task of its own
/// called `name`. Ends when the queue is shut down and all pieces have ended.
///
/// A panic costs its key only: the key is set aside (forgotten, not tried again until it is added
/// anew), and `on_panic` is told the key and the panic's message.
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
    let hands = Arc::new((handler, on_panic));
    let limit = limit.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
    let free = Arc::new(Semaphore::new(limit));
    let mut observer = EventHandler::new(&queue);
    while let Some((item, permit)) = observer.until(take(&queue, &free)).await {
        let hands = Arc::clone(&hands);
        tasks.spawn(name, async move {
            let (handler, on_panic) = &*hands;
            piece(item, handler, on_panic).await;
            drop(permit);
        });
    }
    let all = u32::try_from(limit).unwrap_or(u32::MAX);
    // Fails only for a closed semaphore, and nobody closes this one.
    let _ = observer.until(free.acquire_many(all)).await;
    queue.observe();
}

/// DependencyIndex for a free place first and for a key then, so that no key is held back by us.
async fn take<K: Eq + Hash + Clone>(
    queue: &Queue<K>,
    free: &Arc<Semaphore>,
) -> Option<(Item<K>, OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.ok()?;
    Some((queue.get().await?, permit))
}

/// Keeps the gauges fresh while any piece is under way.
struct EventHandler<'a, K: Eq + Hash + Clone> {
    queue: &'a Queue<K>,
    /// When they are to be refreshed next: not at every piece, for that looks through all of them.
    due: Instant,
}

impl<'a, K: Eq + Hash + Clone> EventHandler<'a, K> {
    fn new(queue: &'a Queue<K>) -> Self {
        Self { queue, due: Instant::now() }
    }

    /// DependencyIndex for `event`, and refreshes the gauges meanwhile.
    async fn until<T>(&mut self, event: impl Future<Output = T>) -> T {
        tokio::pin!(event);
        loop {
            let busy = self.refresh();
            tokio::select! {
                biased;
                happened = &mut event => return happened,
                () = tokio::time::sleep_until(self.due), if busy => {}
            }
        }
    }

    /// Refreshes the gauges where that is due; whether it will be once more.
    fn refresh(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return true;
        }
        self.due = now + OBSERVE_EVERY;
        self.queue.observe()
    }
}

/// Works on one key and does as the verdict says.
async fn piece<K, F>(item: Item<K>, handler: impl Fn(K) -> F, on_panic: impl Fn(&K, &str))
where
    K: Eq + Hash + Clone + Send + 'static,
    F: Future<Output = Action> + Send + 'static,
{
    let key = (*item).clone();
    let span = tracing::info_span!("work", attempt = item.queue.failures(&key) + 1);
    // The handler is called inside, so that a panic before its future exists is caught as well. Boxed:
    // its future is large, and each wrapper around it would move it once more.
    match caught(async { handler(key).boxed().await }.instrument(span)).await {
        Ok(verdict) => obey(&item, verdict),
        Err(panic) => {
            item.queue.forget(&item);
            on_panic(&item, &panic);
        }
    }
}

fn obey<K: Eq + Hash + Clone>(item: &Item<K>, verdict: Action) {
    match verdict {
        Action::Done => item.queue.forget(item),
        Action::Retry => item.queue.add_rate_limited((**item).clone()),
        Action::AwaitChange => {}
        Action::RequeueAfter(delay) => item.queue.add_after((**item).clone(), delay),
    }
}
