//! Limits the concurrent calls to the driver.
//!
//! A [`ConcurrencyLimiter`] grants permits for one kind of call (CreateVolume or DeleteVolume): at most
//! `--worker-threads`, shared fairly among classes (`fair_queue`). In a class, first attempts and repeats wait
//! in two lines (`class`). Calls whose failures show that the driver is overloaded (`calls`) lower the class's
//! limit (`adaptive`). An item without a permit waits in the fair queue only: it occupies no worker, holds no
//! volume's key, and has no call open. When a permit is reserved for it, it is added to its work queue.
//!
//! The provisioner decides what the end of a call says about the load ([`Congestion`]).

mod adaptive;
mod calls;
mod class;
mod fair_queue;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

pub use self::fair_queue::ClassLoad;
use self::{
    calls::Line,
    fair_queue::{FairQueue, Ticket},
};
use super::{item::Item, provisioner::Congestion};
use crate::metrics::LimiterMetrics;

/// The permits for one kind of call. Clones share them.
#[derive(Clone)]
pub struct ConcurrencyLimiter(Arc<SharedLimiter>);

struct SharedLimiter {
    queue: Mutex<FairQueue>,
    /// Adds an item for which a permit is reserved to its work queue.
    wake: Box<dyn Fn(Item) + Send + Sync>,
    /// Notified when [`FairQueue::next_time`] changes.
    next_time_changed: Notify,
    metrics: LimiterMetrics,
}

impl ConcurrencyLimiter {
    /// Grants at most `workers` permits. Calls `wake` with an item for which a permit is reserved.
    pub fn new(
        workers: usize,
        wake: impl Fn(Item) + Send + Sync + 'static,
        metrics: LimiterMetrics,
    ) -> Self {
        let queue = Mutex::new(FairQueue::new(workers));
        Self(Arc::new(SharedLimiter {
            queue,
            wake: Box::new(wake),
            next_time_changed: Notify::new(),
            metrics,
        }))
    }

    /// Begins an attempt for `key`. If it ends without [`Attempt::permit`], the key loses its position
    /// or reserved permit.
    pub fn attempt(&self, key: Item) -> Attempt {
        Attempt { limiter: self.clone(), key, wants_permit: false }
    }

    /// Whether the key waits for a permit, or has one reserved.
    pub fn holds(&self, key: &Item) -> bool {
        self.0.queue.lock().holds(key)
    }

    /// Returns the number of permits for all classes, and the load of each class.
    pub fn load(&self) -> (usize, Vec<ClassLoad>) {
        let queue = self.0.queue.lock();
        (queue.total(), queue.loads())
    }

    /// Updates the gauges of each class that has calls or a lowered limit.
    pub fn update_metrics(&self) {
        for ClassLoad { class, limit, waiting, .. } in self.0.queue.lock().loads() {
            self.0.metrics.set(&class, limit, waiting);
        }
    }

    /// Wakes items when the rest of their class ends. Never returns.
    pub async fn run_timers(&self) {
        loop {
            // Created before the read, so that no change in between is missed.
            let changed = self.0.next_time_changed.notified();
            let ((), next) = self.change(|_, _| ());
            match next {
                None => changed.await,
                Some(next) => {
                    // A time-out means that the time has come.
                    let _ = timeout_at(next, changed).await;
                }
            }
        }
    }

    /// Applies `change`, and wakes the items for which permits became free. Returns when the next one
    /// becomes free if nothing else happens.
    fn change<T>(&self, change: impl FnOnce(&mut FairQueue, Instant) -> T) -> (T, Option<Instant>) {
        let now = Instant::now();
        let mut queue = self.0.queue.lock();
        let before = queue.next_time(now);
        let changed = change(&mut queue, now);
        let woken = queue.reserve_free(now);
        let next = queue.next_time(now);
        drop(queue);
        for key in woken {
            (self.0.wake)(key);
        }
        if next != before {
            self.0.next_time_changed.notify_waiters();
        }
        (changed, next)
    }
}

/// One attempt to sync a key. If it is dropped without a request for a permit, the key loses its position
/// or reserved permit.
pub struct Attempt {
    limiter: ConcurrencyLimiter,
    key: Item,
    wants_permit: bool,
}

impl Attempt {
    /// Requests a permit for a call for a volume of `class`. Returns `None` if there is no free permit
    /// yet: the key is then added to its work queue when one is reserved for it. `repeats` says that an
    /// earlier call for the same volume may still run.
    pub fn permit(&mut self, class: &str, repeats: bool) -> Option<Permit> {
        self.wants_permit = true;
        let line = if repeats { Line::Repeat } else { Line::First };
        let enter = |queue: &mut FairQueue, now| queue.enter(&self.key, class, line, now);
        let (ticket, _) = self.limiter.change(enter);
        ticket.map(|ticket| Permit { limiter: self.limiter.clone(), ticket: Some(ticket), repeats })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.wants_permit {
            self.limiter.change(|queue, now| queue.leave(&self.key, now));
        }
    }
}

/// The permit for one call. Dropping it returns it unused.
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

    /// Returns the permit after its call ended, with what the end says about the driver's load.
    pub fn ended(mut self, congestion: Congestion) {
        self.end(congestion);
    }

    fn end(&mut self, congestion: Congestion) {
        let Some(ticket) = self.ticket.take() else { return };
        let (is_signal, _) = self.limiter.change(|queue, now| queue.end(&ticket, congestion, now));
        if is_signal {
            tracing::debug!(class = ticket.class(), ?congestion, "the driver is overloaded");
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
