//! The parts of the worker of claims. What it does with them is in [`sync`](super::sync), which leads a turn,
//! [`save`](super::save), [`call_record`](super::call_record), `verification`, `discard`, `others_records`, `node`
//! and `reporting`.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{call_record::RecordSettings, index::ClaimIndex};
use crate::{
    controller::{
        classes::Classes, dependencies::DependencyIndex, events::ClaimEvents, item::Key,
        live::Live, ownership::ProvisionerIdentity, peers::Peers,
    },
    kube::Client,
    metrics::ControllerMetrics,
    runtime::{Clock, Random},
    source_protection::Protection,
    workqueue::Queue,
};

/// Works on claims.
pub struct ClaimWorker<P> {
    /// Makes the volumes.
    pub provisioner: Arc<P>,
    /// Protects the sources of volumes.
    pub protection: Protection,
    /// The processes of other nodes.
    pub peers: Peers,
    /// The driver and the node of this process.
    pub identity: ProvisionerIdentity,
    /// What is known of the claims.
    pub index: ClaimIndex,
    /// The claims to work on.
    pub queue: Queue<Key>,
    /// The claims whose PersistentVolume must be saved again.
    pub unsaved_queue: Queue<Key>,
    /// Notified after each attempt to save a PersistentVolume.
    pub save_attempted: Notify,
    /// The storage classes.
    pub classes: Classes,
    /// The objects that claims wait for.
    pub dependencies: DependencyIndex,
    /// Reads and writes claims and volumes.
    pub client: Client,
    /// Measures the age of live reads.
    pub live: Live,
    /// Tells how long ago a claim was deleted.
    pub clock: Arc<dyn Clock>,
    /// When open calls are recorded on their claims, and how long claims are kept.
    pub records: RecordSettings,
    /// Whether it was logged that records cannot be written.
    pub is_warned: AtomicBool,
    /// Cancelled shortly before running calls are cut.
    pub ending: CancellationToken,
    /// Emits events on claims.
    pub events: ClaimEvents,
    /// The controller's metrics.
    pub metrics: ControllerMetrics,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// `--retry-interval-max`: the longest wait before an open call is repeated, or a record is reconciled
    /// again.
    pub retry_max: Duration,
}
