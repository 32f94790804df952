//! The claims that may have a PersistentVolume though they are not ours yet.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// The unbound claims of others that were not born under our eyes: should one become ours, it may
/// have a PersistentVolume already. Kept as hashes; two that share one cost a look.
#[derive(Debug, Default)]
pub(super) struct Older {
    pub(super) known: BTreeSet<u32>,
    listing: Option<BTreeSet<u32>>,
}

impl Older {
    pub(super) fn restarted(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    pub(super) fn complete(&mut self) {
        if let Some(listing) = self.listing.take() {
            self.known = listing;
        }
    }

    pub(super) fn insert(&mut self, uid: &str) {
        self.listing.as_mut().unwrap_or(&mut self.known).insert(hash(uid));
    }

    /// Forgets the claim: whether it was there before.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let listed = self.listing.as_mut().is_some_and(|listing| listing.remove(&hash(uid)));
        self.known.remove(&hash(uid)) || listed
    }
}

/// The same in every process; whoever aims at it makes us look, and no more.
fn hash(uid: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}
