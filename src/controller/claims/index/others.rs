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
    controller::packed_set::PackedSet,
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

/// A set of claims, by UID.
#[derive(Debug, Default)]
struct ClaimSet(PackedSet<u64>);

impl ClaimSet {
    fn insert(&mut self, uid: &str) {
        self.0.insert(hash(uid));
    }

    fn contains(&self, uid: &str) -> bool {
        self.0.contains(hash(uid))
    }

    fn remove(&mut self, uid: &str) {
        self.0.remove(hash(uid));
    }
}

/// Unbound claims of other provisioners that may have a PersistentVolume if they become ours.
#[derive(Debug, Default)]
pub(super) struct OtherClaims {
    known: ClaimSet,
    listing: Option<ClaimSet>,
}

impl OtherClaims {
    pub(super) fn start_list(&mut self) {
        self.listing = Some(ClaimSet::default());
    }

    pub(super) fn finish_list(&mut self) {
        if let Some(listing) = self.listing.take() {
            self.known = listing;
        }
    }

    pub(super) fn insert(&mut self, uid: &str) {
        self.listing.as_mut().unwrap_or(&mut self.known).insert(uid);
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.listing.iter().chain([&self.known]).any(|claims| claims.contains(uid))
    }

    /// Removes the claim. Returns whether it was in the set.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let was_known = self.contains(uid);
        for claims in self.listing.iter_mut().chain([&mut self.known]) {
            claims.remove(uid);
        }
        was_known
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.0.iter().next().is_none()
    }
}

/// The hash does not depend on the process, so tests are reproducible.
fn hash(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
