//! Claims of other provisioners.
//!
//! An unbound claim of another provisioner may become ours. If this process has not seen all its
//! events since it was created, it may have a PersistentVolume by then (safety rule 6). Only a hash
//! of each UID is kept; collisions are negligible in one cluster and only lead to a needless
//! look-up.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::controller::listed_set::ListedSet;

/// Unbound claims of other provisioners that may have a PersistentVolume if they become ours.
#[derive(Debug, Default)]
pub(super) struct OtherClaims(ListedSet<u64>);

impl OtherClaims {
    pub(super) fn begin_list(&mut self) {
        self.0.begin_list();
    }

    pub(super) fn finish_list(&mut self) {
        self.0.finish_list();
    }

    pub(super) fn insert(&mut self, uid: &str) {
        self.0.insert(hash(uid));
    }

    /// Removes the claim. Returns whether it was in the set.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let claim = hash(uid);
        let was_known = self.0.contains(claim);
        self.0.remove(claim);
        was_known
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

/// The hash does not depend on the process, so tests are reproducible.
fn hash(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
