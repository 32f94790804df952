//! Sets of claims of which no more is kept than a hash each: no two of a cluster share one.
//!
//! Owns [`Stood`], the unbound claims of others that stood before this process could see all that
//! became of them: such a claim may have a PersistentVolume already when it becomes ours (safety
//! rule 6).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::controller::packed_set::PackedSet;

/// Claims by UID.
#[derive(Debug, Default)]
pub(super) struct ClaimSet(PackedSet<u64>);

impl ClaimSet {
    pub(super) fn insert(&mut self, uid: &str) {
        self.0.insert(hash(uid));
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.0.contains(hash(uid))
    }

    fn remove(&mut self, uid: &str) {
        self.0.remove(hash(uid));
    }
}

/// The unbound claims of others that stood.
#[derive(Debug, Default)]
pub(super) struct Stood {
    known: ClaimSet,
    listing: Option<ClaimSet>,
}

impl Stood {
    pub(super) fn restarted(&mut self) {
        self.listing = Some(ClaimSet::default());
    }

    pub(super) fn complete(&mut self) {
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

    /// Forgets the claim; whether it was known.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let stood = self.contains(uid);
        for claims in self.listing.iter_mut().chain([&mut self.known]) {
            claims.remove(uid);
        }
        stood
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.0.iter().next().is_none()
    }
}

/// The same in every process.
fn hash(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
