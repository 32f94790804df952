//! Finds PersistentVolumes that have the same volume at the driver: deleting the volume for one of them
//! would destroy the other's data (safety rule 10).
//!
//! The index contains all PersistentVolumes of the driver. As there may be 100,000, it keeps eight bytes of
//! each: two hashes. It may therefore report a shared handle by mistake, and the caller verifies that by a
//! live list.

use std::{collections::BTreeSet, mem};

use crate::{
    controller::provisioner::VolumeHandle,
    kube::{Listed, informer::hash},
};

/// The driver's PersistentVolumes by handle.
#[derive(Debug, Default)]
pub(in crate::controller) struct HandleIndex(BTreeSet<HashedVolume>);

/// A PersistentVolume by hashes of its handle and its UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HashedVolume {
    handle: u32,
    uid: u32,
}

impl HashedVolume {
    /// The PersistentVolume of this UID, which has the volume `handle`.
    pub(crate) fn new(handle: &VolumeHandle, uid: &str) -> Self {
        let half = |text| (hash(text) >> 32) as u32;
        Self { handle: half(handle.key()), uid: half(uid) }
    }
}

impl HandleIndex {
    /// Adds a PersistentVolume.
    pub(crate) fn insert(&mut self, volume: HashedVolume) {
        self.0.insert(volume);
    }

    /// Removes a PersistentVolume.
    pub(crate) fn remove(&mut self, volume: HashedVolume) {
        self.0.remove(&volume);
    }

    /// Whether this PersistentVolume is known.
    pub(crate) fn contains(&self, volume: HashedVolume) -> bool {
        self.0.contains(&volume)
    }

    /// All PersistentVolumes are listed: the others are removed.
    pub(crate) fn on_listed(&mut self, listed: &Listed) {
        let known = mem::take(&mut self.0).into_iter();
        // Collected in order, a set is packed more densely than as it has grown.
        self.0 = known.filter(|volume| listed.contains_upper_half(volume.uid)).collect();
    }

    /// Whether another PersistentVolume may have the volume of this one.
    pub(crate) fn may_share(&self, own: HashedVolume) -> bool {
        let same = HashedVolume { uid: u32::MIN, ..own }..=HashedVolume { uid: u32::MAX, ..own };
        self.0.range(same).any(|volume| *volume != own)
    }
}
