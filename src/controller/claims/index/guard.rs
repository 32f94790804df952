//! The guard with which a worker holds a claim for one turn.
//!
//! Promises that no other worker works for the claim's volume meanwhile (safety rule 5). Events of watches go
//! on changing what is known of the claim.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{ClaimIndex, Entry, KnownClaim};
use crate::{controller::Key, workqueue::KeyedMutexGuard};

/// A claim that a worker holds.
pub struct ClaimGuard {
    index: ClaimIndex,
    uid: Key,
    /// Whether the record on the claim could not be brought up to date in this turn: the next one tries again.
    record_failed: AtomicBool,
    _lock: KeyedMutexGuard,
}

impl ClaimIndex {
    /// Waits until no other worker holds the claim, and then holds it. The claim need not be in the index.
    ///
    /// The lock is that of the name of its PersistentVolume, which the worker of that holds as well, or that of
    /// its UID if no name can be made of it.
    pub async fn hold(&self, uid: &Key) -> ClaimGuard {
        let name = self.0.volume_name(uid);
        let lock = self.0.volume_keys.lock(name.as_deref().unwrap_or(uid)).await;
        let record_failed = AtomicBool::default();
        ClaimGuard { index: self.clone(), uid: uid.clone(), record_failed, _lock: lock }
    }
}

impl ClaimGuard {
    /// The claim's UID.
    pub fn uid(&self) -> &Key {
        &self.uid
    }

    /// What is known of the claim now. `None`: it is not in the index.
    pub fn known(&self) -> Option<KnownClaim> {
        self.index.known(&self.uid)
    }

    /// Whether the claim is in the index and `predicate` holds for it now.
    pub fn is(&self, predicate: impl FnOnce(&KnownClaim) -> bool) -> bool {
        self.index.is(&self.uid, predicate)
    }

    /// Applies what the worker has learned or done. `None`: the claim is not in the index.
    pub fn update<T>(&self, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.index.update(&self.uid, change)
    }

    /// Whether this process has seen a PersistentVolume of the claim, which may be gone by now.
    pub fn has_had_volume(&self) -> bool {
        self.update(|it| it.pv.uid.is_some()).unwrap_or_default()
    }

    /// Whether the record could not be written in this turn.
    pub fn has_failed_to_record(&self) -> bool {
        self.record_failed.load(Ordering::Relaxed)
    }

    /// The record could not be written.
    pub fn failed_to_record(&self) {
        self.record_failed.store(true, Ordering::Relaxed);
    }
}
