//! What is to be worked on.
//!
//! Owns the three queues and what brings something into them. Promises that nothing enters before
//! somebody works. Leaves working on it to `workers`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

use super::{Settings, item::Item, limiter::ConcurrencyLimiter};
use crate::{
    metrics::{LimiterMetrics, Metrics},
    workqueue::{Limiter, Queue},
};

/// The three queues, named as the original's are in metrics.
#[derive(Clone)]
pub(super) struct Queues {
    /// Claims by UID.
    pub(super) claims: Queue<String>,
    /// Volumes by name.
    pub(super) volumes: Queue<String>,
    /// Unsaved volumes by their claim's UID.
    pub(super) unsaved: Queue<String>,
    /// Told when a volume is to be adopted.
    pub(super) adoption: Arc<Notify>,
    /// Whether anybody works. Until then the books alone say what there is to do: the queues of a
    /// standby would hold every key that it ever saw.
    pub(super) working: Arc<AtomicBool>,
}

impl Queues {
    pub(super) fn new(settings: &Settings, metrics: &Metrics) -> Self {
        let queue = |name, limiter| Queue::new(limiter, metrics.workqueue.queue(name));
        let per_item = || Limiter::per_item(settings.retry_start, settings.retry_max);
        Self {
            claims: queue("claims", per_item()),
            volumes: queue("volumes", per_item()),
            unsaved: queue("unsavedpvs", Limiter::controller_default()),
            adoption: Arc::default(),
            working: Arc::default(),
        }
    }

    /// The limiter of one kind of calls; whose turn it is comes back through its queue.
    pub(super) fn limiter(&self, workers: usize, metrics: LimiterMetrics) -> ConcurrencyLimiter {
        let Self { claims, volumes, .. } = self.clone();
        let wake = move |item| match item {
            Item::Claim(uid) => claims.add(uid),
            Item::Volume(name) => volumes.add(name),
        };
        ConcurrencyLimiter::new(workers, wake, metrics)
    }

    /// Whether no claim and no volume is ready to be worked on.
    pub(super) fn are_idle(&self) -> bool {
        self.claims.is_empty() && self.volumes.is_empty()
    }

    /// These need work.
    pub(super) fn wake_items(&self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Claim(uid) => self.wake_claims(vec![uid]),
                Item::Volume(name) => self.wake_volumes(vec![name]),
            }
        }
    }

    /// These claims need work.
    pub(super) fn wake_claims(&self, uids: Vec<String>) {
        self.wake(&self.claims, uids);
    }

    /// These volumes need work.
    pub(super) fn wake_volumes(&self, names: Vec<String>) {
        self.wake(&self.volumes, names);
    }

    /// The unsaved volumes of these claims need work.
    pub(super) fn wake_unsaved(&self, uids: Vec<String>) {
        self.wake(&self.unsaved, uids);
    }

    fn wake(&self, queue: &Queue<String>, keys: Vec<String>) {
        // Whoever sets it looks through the books afterwards, so nothing seen meanwhile is missed.
        if self.working.load(Ordering::Relaxed) {
            for key in keys {
                queue.add(key);
            }
        }
    }
}
