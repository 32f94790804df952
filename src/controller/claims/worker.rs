//! The parts of the worker of claims. What it does with them is in [`sync`](super::sync), which leads a turn,
//! [`save`](super::save), [`call_record`](super::call_record), `verification`, `discard`, `others_records`, `node`
//! and `reporting`.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{discard::VolumeLists, index::ClaimIndex};
use crate::{
    controller::{Deps, Key, dependencies::DependencyIndex},
    kube::{CoalescedReads, objects::Node},
    workqueue::Queue,
};

/// Works on claims. One object, which all workers of the queues `claims` and `unsavedpvs` share.
pub struct ClaimWorker<P> {
    /// What all workers share.
    pub deps: Arc<Deps<P>>,
    /// What is known of the claims.
    pub index: ClaimIndex,
    /// The claims to work on.
    pub queue: Queue<Key>,
    /// The claims whose PersistentVolume must be saved again.
    pub unsaved_queue: Queue<Key>,
    /// Notified after each attempt to save a PersistentVolume.
    pub save_attempted: Notify,
    /// The lists of all PersistentVolumes for volumes that are discarded.
    pub volume_lists: VolumeLists,
    /// The nodes that records name: a user can write thousands of those.
    pub nodes: CoalescedReads<Node>,
    /// The objects that claims wait for.
    pub dependencies: DependencyIndex,
    /// Whether it was logged that records cannot be written.
    pub is_warned: AtomicBool,
    /// Cancelled shortly before running calls are cut.
    pub ending: CancellationToken,
}
