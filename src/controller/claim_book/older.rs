//! The claims that may have a PersistentVolume though they are not ours yet, or not any more.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::super::marks::Marks;

/// The unbound claims of others of which not all was under our eyes: should one become ours, it may
/// have a PersistentVolume already. Kept as hashes, of which no two of a cluster are the same.
#[derive(Debug, Default)]
pub(super) struct Older {
    known: Marks<u64>,
    listing: Option<Marks<u64>>,
    /// Those that were ours and had their PersistentVolume when they left: very few.
    served: BTreeSet<u64>,
}

/// What is known of a claim that was somebody else's until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// It was there when we could not see all that became of it.
    Stood,
    /// It was ours, and had its PersistentVolume.
    Served,
}

impl Older {
    pub(super) fn restarted(&mut self) {
        self.listing = Some(Marks::default());
    }

    pub(super) fn complete(&mut self) {
        if let Some(listing) = self.listing.take() {
            self.served.retain(|claim| listing.contains(*claim));
            self.known = listing;
        }
    }

    pub(super) fn insert(&mut self, uid: &str) {
        self.listing.as_mut().unwrap_or(&mut self.known).insert(hash(uid));
    }

    /// One that is in here, if it is, had its PersistentVolume: whether it is.
    pub(super) fn was_served(&mut self, uid: &str) -> bool {
        let claim = hash(uid);
        let is_here = self.known.contains(claim)
            || self.listing.as_ref().is_some_and(|listing| listing.contains(claim));
        if is_here {
            self.served.insert(claim);
        }
        is_here
    }

    /// Forgets the claim, and tells what was known of it.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Past> {
        let claim = hash(uid);
        let mut stood = false;
        for marks in self.listing.iter_mut().chain([&mut self.known]) {
            stood |= marks.contains(claim);
            marks.remove(claim);
        }
        match (self.served.remove(&claim), stood) {
            (true, _) => Some(Past::Served),
            (false, true) => Some(Past::Stood),
            (false, false) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.iter().next().is_none() && self.served.is_empty()
    }
}

/// The same in every process.
fn hash(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
