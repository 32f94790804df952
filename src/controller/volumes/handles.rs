//! Finds PersistentVolumes that have the same volume at the driver: deleting the volume for one of them
//! would destroy the other's data (safety rule 10).
//!
//! The index contains all PersistentVolumes of the driver. As there may be 100,000, it keeps eight bytes of
//! each: two hashes. It may therefore report a shared handle by mistake, and the caller verifies that by a
//! live list.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::controller::packed_set::PackedSet;

/// The driver's PersistentVolumes by handle.
#[derive(Debug, Default)]
pub(crate) struct HandleIndex {
    known: PackedSet<HashedVolume>,
    /// The list in progress.
    listing: Option<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    listed: PackedSet<HashedVolume>,
    /// Whether an object in it could not be decoded, so that it does not show which ones are gone.
    is_partial: bool,
}

/// A PersistentVolume by hashes of its handle and its UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HashedVolume {
    handle: u32,
    uid: u32,
}

impl HashedVolume {
    fn new(key: &str, uid: &str) -> Self {
        Self { handle: hash(key), uid: hash(uid) }
    }
}

impl HandleIndex {
    /// Begins a new list. What an unfinished one contained is kept as known.
    pub(crate) fn begin_list(&mut self) {
        let unfinished = self.listing.replace(Listing::default()).unwrap_or_default();
        unfinished.listed.iter().for_each(|volume| self.known.insert(volume));
    }

    /// Adds the PersistentVolume of this UID, whose volume `key` identifies.
    pub(crate) fn insert(&mut self, key: &str, uid: &str) {
        let volumes = self.listing.as_mut().map_or(&mut self.known, |listing| &mut listing.listed);
        volumes.insert(HashedVolume::new(key, uid));
    }

    /// Records that a PersistentVolume could not be decoded.
    pub(crate) fn mark_unreadable(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.is_partial = true;
        }
    }

    /// Removes a PersistentVolume.
    pub(crate) fn remove(&mut self, key: &str, uid: &str) {
        let volume = HashedVolume::new(key, uid);
        self.known.remove(volume);
        if let Some(listing) = &mut self.listing {
            listing.listed.remove(volume);
        }
    }

    /// Completes the list: forgets the PersistentVolumes that it does not contain, unless an object in it
    /// could not be decoded.
    pub(crate) fn complete_list(&mut self) {
        match self.listing.take() {
            Some(listing) if listing.is_partial => {
                listing.listed.iter().for_each(|volume| self.known.insert(volume));
            }
            Some(listing) => self.known = listing.listed,
            None => {}
        }
    }

    /// Whether a PersistentVolume of another UID may have the volume that `key` identifies.
    pub(crate) fn may_share(&self, key: &str, uid: &str) -> bool {
        let own = HashedVolume::new(key, uid);
        let same = HashedVolume { uid: u32::MIN, ..own }..=HashedVolume { uid: u32::MAX, ..own };
        let listing = self.listing.as_ref().map(|listing| &listing.listed);
        let mut volumes = std::iter::once(&self.known).chain(listing);
        volumes.any(|volumes| volumes.range(same.clone()).any(|volume| volume != own))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.known.iter().count()
    }
}

/// Unkeyed: a deliberate collision only costs a live list.
fn hash(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(volumes: &[(&str, &str)]) -> HandleIndex {
        let mut handles = HandleIndex::default();
        handles.begin_list();
        for (uid, handle) in volumes {
            handles.insert(handle, uid);
        }
        handles.complete_list();
        handles
    }

    #[test]
    fn a_handle_is_shared_if_another_volume_has_it() {
        let mut handles = listed(&[("a", "h"), ("b", "other")]);
        assert!(!handles.may_share("h", "a"));
        assert!(handles.may_share("h", "unseen"));
        handles.insert("h", "a");
        assert!(!handles.may_share("h", "a"), "the same volume twice");
        handles.insert("h", "c");
        assert!(handles.may_share("h", "a"));
        handles.remove("h", "c");
        assert!(!handles.may_share("h", "a"));
    }

    #[test]
    fn volumes_missing_in_a_complete_list_are_forgotten() {
        let mut handles = listed(&[("a", "h"), ("b", "h")]);
        handles.begin_list();
        handles.insert("h", "a");
        assert!(handles.may_share("h", "a"), "the list may still contain the other one");
        handles.complete_list();
        assert!(!handles.may_share("h", "a"));
        assert_eq!(handles.len(), 1);
    }

    #[test]
    fn volumes_of_an_interrupted_list_are_known_until_the_next_list_is_complete() {
        let mut handles = listed(&[("a", "h")]);
        handles.begin_list();
        handles.insert("h", "young");
        handles.begin_list();
        assert!(handles.may_share("h", "a"), "not in the new list yet");
        handles.insert("h", "a");
        handles.complete_list();
        assert!(!handles.may_share("h", "a"), "it is gone");
    }

    #[test]
    fn volumes_of_an_unfinished_list_are_known() {
        let mut handles = listed(&[("a", "h")]);
        handles.begin_list();
        handles.insert("h", "b");
        assert!(handles.may_share("h", "a"));
    }

    #[test]
    fn a_list_with_an_unreadable_object_forgets_nothing() {
        let mut handles = listed(&[("a", "h"), ("b", "h")]);
        handles.begin_list();
        handles.insert("h", "a");
        handles.mark_unreadable();
        handles.complete_list();
        assert!(handles.may_share("h", "a"));
    }
}
