//! The controller's work queues. They fill while the first lists run; once those are whole, workers empty
//! them.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use super::{
    ControllerSettings, Key, claims::index::ClaimIndex, provisioner::Deleter,
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
        }
    }
}
