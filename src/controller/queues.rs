//! The controller's work queues. Nothing enters them before this process works; `workers` empties them.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    ControllerSettings, claims::index::ClaimIndex, item::Key, provisioner::Deleter,
    volumes::index::VolumeIndex,
};
use crate::{metrics::Metrics, runtime::Backoff, workqueue::Queue};

/// The back-off of volumes that are not saved: client-go's default.
const SAVE_RETRY: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1000));

/// The three queues. Their names in metrics are those of external-provisioner.
#[derive(Clone)]
pub(super) struct Queues {
    /// UIDs of claims.
    pub(super) claims: Queue<Key>,
    /// Names of volumes.
    pub(super) volumes: Queue<Key>,
    /// UIDs of claims whose PersistentVolume is not saved.
    pub(super) unsaved: Queue<Key>,
    /// Whether the work has begun. Nothing is queued while the first lists run: the indexes know what to do
    /// once they are whole.
    pub(super) working: Arc<AtomicBool>,
}

impl Queues {
    /// Creates the queues. The workers of claims and of volumes are shared fairly among classes and
    /// namespaces.
    pub(super) fn new<P: Deleter>(
        settings: &ControllerSettings,
        metrics: &Metrics,
        claims: ClaimIndex,
        volumes: Arc<VolumeIndex<P>>,
    ) -> Self {
        let (workers, hasher) = (settings.workers, RandomState::new());
        let by_class = hasher.clone();
        let claim = move |uid: &Key| claims.flow(uid, &|of| by_class.hash_one(of));
        let volume = move |name: &Key| volumes.flow(name, &|of| hasher.hash_one(of));
        Self {
            claims: Queue::fair("claims", settings.retry, metrics, workers, claim),
            volumes: Queue::fair("volumes", settings.retry, metrics, workers, volume),
            unsaved: Queue::new("unsavedpvs", SAVE_RETRY, metrics),
            working: Arc::default(),
        }
    }

    /// Queues these claims, by UID.
    pub(super) fn wake_claims(&self, uids: Vec<Key>) {
        self.wake(&self.claims, uids);
    }

    /// Queues this claim, by UID, after `delay`.
    pub(super) fn wake_claim_after(&self, uid: Key, delay: Duration) {
        if delay.is_zero() {
            self.wake_claims(vec![uid]);
        } else if self.working.load(Ordering::Relaxed) {
            self.claims.add_after(uid, delay);
        }
    }

    /// Queues these volumes, by name.
    pub(super) fn wake_volumes(&self, names: Vec<Key>) {
        self.wake(&self.volumes, names);
    }

    /// Queues saving the PersistentVolumes of these claims, by UID.
    pub(super) fn wake_unsaved(&self, uids: Vec<Key>) {
        self.wake(&self.unsaved, uids);
    }

    fn wake(&self, queue: &Queue<Key>, keys: Vec<Key>) {
        // `Controller::work` sets it and then queues everything in the indexes, so nothing is missed.
        if self.working.load(Ordering::Relaxed) {
            for key in keys {
                queue.add(key);
            }
        }
    }
}
