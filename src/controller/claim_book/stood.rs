//! The unbound claims of others that stood before this process could see all that became of them.
//!
//! Owns telling a claim that becomes ours from one that was born under our eyes (safety rule 6): it
//! may have a PersistentVolume already. Keeps a hash of each, of which no two of a cluster are the
//! same.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::super::marks::Marks;

/// Claims by UID.
#[derive(Debug, Default)]
pub(super) struct Stood {
    known: Marks<u64>,
    listing: Option<Marks<u64>>,
}

impl Stood {
    pub(super) fn restarted(&mut self) {
        self.listing = Some(Marks::default());
    }

    pub(super) fn complete(&mut self) {
        if let Some(listing) = self.listing.take() {
            self.known = listing;
        }
    }

    pub(super) fn insert(&mut self, uid: &str) {
        self.listing.as_mut().unwrap_or(&mut self.known).insert(hash(uid));
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        let claim = hash(uid);
        self.listing.iter().chain([&self.known]).any(|marks| marks.contains(claim))
    }

    /// Forgets the claim; whether it was known.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let claim = hash(uid);
        let mut stood = false;
        for marks in self.listing.iter_mut().chain([&mut self.known]) {
            stood |= marks.contains(claim);
            marks.remove(claim);
        }
        stood
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.iter().next().is_none()
    }
}

/// The same in every process.
fn hash(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
