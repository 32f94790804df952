//! How many calls the driver is given at once.
//!
//! Owns the permits for one kind of call (CreateVolume, DeleteVolume), whether for a claim or for a
//! PersistentVolume: at most `--worker-threads`
//! of them, fewer for a class whose calls show that the driver has too much on its hands
//! (`limit`), shared fairly among classes (`queue`). Promises that a key without a permit waits
//! in a line and nowhere else: it holds no worker, no volume's key and no open call meanwhile, and
//! goes through its queue again once its permit is reserved. Leaves to its users what a call is,
//! and to the provisioner what its end says of the load.

mod adaptive;
mod fair_queue;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use self::fair_queue::{ClassLoad, FairQueue, Ticket};
use super::{item::Item, provisioner::Congestion};
use crate::metrics::LimiterMetrics;

/// The permits for one kind of call. Clones share them.
#[derive(Clone)]
pub struct ConcurrencyLimiter(Arc<Shared>);

struct Shared {
    queue: Mutex<FairQueue>,
    /// Sends those back through their queue whose permit is reserved.
    wake: Box<dyn Fn(Item) + Send + Sync>,
    /// Told whenever the next time to look may have changed.
    changed: Notify,
    metrics: LimiterMetrics,
}

impl ConcurrencyLimiter {
    /// At most `workers` calls at once; `wake` adds to its queue what has a permit reserved.
    pub fn new(
        workers: usize,
        wake: impl Fn(Item) + Send + Sync + 'static,
        metrics: LimiterMetrics,
    ) -> Self {
        let queue = Mutex::new(FairQueue::new(workers));
        Self(Arc::new(Shared { queue, wake: Box::new(wake), changed: Notify::new(), metrics }))
    }

    /// The key is looked at: whether it wants a call is decided anew.
    pub fn look(&self, key: Item) -> Attempt {
        Attempt { limiter: self.clone(), key, wants: false }
    }

    /// Whether the key waits for its permit, or has one reserved.
    pub fn holds(&self, key: &Item) -> bool {
        self.0.queue.lock().holds(key)
    }

    /// Tells the metrics how each class stands that has calls, or a lowered limit.
    pub fn tell(&self) {
        for ClassLoad { class, limit, waiting } in self.0.queue.lock().loads() {
            self.0.metrics.stands(&class, limit, waiting);
        }
    }

    /// Wakes those who wait for a time to pass; never ends.
    pub async fn keep_time(&self) {
        loop {
            // Made before looking, so that a change between looking and waiting is not missed.
            let changed = self.0.changed.notified();
            let next = self.0.queue.lock().next_time();
            match next {
                None => changed.await,
                Some(next) => {
                    // Times out at that time, or is told of another one sooner.
                    let _ = timeout_at(next, changed).await;
                }
            }
            self.change(|_, _| ());
        }
    }

    /// Changes something, and wakes whose turn it is then.
    fn change<T>(&self, change: impl FnOnce(&mut FairQueue, Instant) -> T) -> T {
        let now = Instant::now();
        let mut queue = self.0.queue.lock();
        let before = queue.next_time();
        let changed = change(&mut queue, now);
        let served = queue.serve(now);
        let another_time = queue.next_time() != before;
        drop(queue);
        for key in served {
            (self.0.wake)(key);
        }
        if another_time {
            self.0.changed.notify_waiters();
        }
        changed
    }
}

/// One look at a key. When it ends without a wish to call, the key gives up its place or permit.
pub struct Attempt {
    limiter: ConcurrencyLimiter,
    key: Item,
    wants: bool,
}

impl Attempt {
    /// The key wants to call for a volume of `class`: its permit, or none yet; then it waits in
    /// line, and is added to its queue when its turn has come. `repeats`: an earlier call for the
    /// same volume may still run.
    pub fn permit(&mut self, class: &str, repeats: bool) -> Option<Permit> {
        self.wants = true;
        let ticket = self.limiter.change(|queue, now| queue.enter(&self.key, class, now))?;
        Some(Permit { limiter: self.limiter.clone(), ticket: Some(ticket), repeats })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.wants {
            self.limiter.change(|queue, now| queue.leave(&self.key, now));
        }
    }
}

/// The right to one call; dropping it gives it back unused.
pub struct Permit {
    limiter: ConcurrencyLimiter,
    ticket: Option<Ticket>,
    repeats: bool,
}

impl Permit {
    /// Whether an earlier call for the same volume may still run.
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// The call ended, and this is what its end says of the driver's load.
    pub fn ended(mut self, strain: Congestion) {
        self.end(strain);
    }

    fn end(&mut self, strain: Congestion) {
        let Some(ticket) = self.ticket.take() else { return };
        let repeats = self.repeats;
        let sign = self.limiter.change(|queue, now| queue.end(&ticket, strain, repeats, now));
        if sign {
            tracing::debug!(
                class = ticket.class(),
                ?strain,
                "the driver has too much on its hands"
            );
            self.limiter.0.metrics.sign(ticket.class());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(Congestion::Unknown);
    }
}

#[cfg(test)]
mod tests;
