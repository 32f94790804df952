//! The parts of the claim worker, which its methods share. What it does with them is in
//! [`sync`](super::sync), `verification`, `discard`, `elsewhere`, `node` and `reporting`.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{call_record::CallRecords, index::ClaimIndex, save::PvStore};
use crate::{
    controller::{
        classes::Classes, dependencies::DependencyIndex, events::ClaimEvents, live::Live,
        ownership::ProvisionerIdentity, peers::Peers,
    },
    kube::Client,
    metrics::ControllerMetrics,
    runtime::Random,
    source_protection::Protection,
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
    /// The storage classes.
    pub classes: Classes,
    /// The objects that claims wait for.
    pub dependencies: DependencyIndex,
    /// Reads and writes claims and volumes.
    pub client: Client,
    /// Measures the age of live reads.
    pub live: Live,
    /// Saves PersistentVolumes.
    pub store: PvStore,
    /// Records open calls on their claims.
    pub call_records: CallRecords<P>,
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
