//! Claims of other provisioners.
//!
//! An unbound claim of another provisioner may become ours. If this process has not seen all its
//! events since it was created, it may have a PersistentVolume by then (safety rule 6). Only a hash
//! of each UID is kept; collisions are negligible in one cluster and only lead to a needless
//! look-up.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::version;
use crate::{
    controller::listed_set::ListedSet,
    kube::objects::{Claim, View as _},
};

/// The newest version of each claim that had watch events; `None` if one is not a number.
#[derive(Debug, Default)]
pub(super) struct ChangedClaims(BTreeMap<u64, Option<u64>>);

impl ChangedClaims {
    pub(super) fn insert(&mut self, claim: &Claim) {
        let newest = self.0.entry(hash(claim.uid())).or_insert(Some(0));
        *newest = newest.zip(version(claim)).map(|(before, now)| before.max(now));
    }

    /// Whether there was an event that may be newer than this version of the claim.
    pub(super) fn have_newer(&self, claim: &Claim) -> bool {
        let newest = self.0.get(&hash(claim.uid()));
        newest
            .is_some_and(|newest| newest.zip(version(claim)).is_none_or(|(event, it)| event >= it))
    }
}

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
