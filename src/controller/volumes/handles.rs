//! Finds PersistentVolumes that have the same volume at the driver: deleting the volume for one of them
//! would destroy the other's data (safety rule 10).
//!
//! The index contains all PersistentVolumes of the driver. As there may be 100,000, it keeps eight bytes of
//! each: two hashes. It may therefore report a shared handle by mistake, and the caller verifies that by a
//! live list.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::controller::listed_set::ListedSet;

/// The driver's PersistentVolumes by handle.
#[derive(Debug, Default)]
pub(crate) struct HandleIndex(ListedSet<HashedVolume>);

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
        self.0.begin_list();
    }

    /// Completes the list: forgets the PersistentVolumes that it does not contain, unless an object in it
    /// could not be decoded.
    pub(crate) fn finish_list(&mut self) {
        self.0.finish_list();
    }

    /// Records that a PersistentVolume could not be decoded.
    pub(crate) fn mark_partial(&mut self) {
        self.0.mark_partial();
    }

    /// Adds the PersistentVolume of this UID, whose volume `key` identifies.
    pub(crate) fn insert(&mut self, key: &str, uid: &str) {
        self.0.insert(HashedVolume::new(key, uid));
    }

    /// Removes a PersistentVolume.
    pub(crate) fn remove(&mut self, key: &str, uid: &str) {
        self.0.remove(HashedVolume::new(key, uid));
    }

    /// Whether the PersistentVolume of this UID, whose volume `key` identifies, is known.
    pub(crate) fn contains(&self, key: &str, uid: &str) -> bool {
        let volume = HashedVolume::new(key, uid);
        self.0.range(volume..=volume).next().is_some()
    }

    /// Whether a PersistentVolume of another UID may have the volume that `key` identifies.
    pub(crate) fn may_share(&self, key: &str, uid: &str) -> bool {
        let own = HashedVolume::new(key, uid);
        let same = HashedVolume { uid: u32::MIN, ..own }..=HashedVolume { uid: u32::MAX, ..own };
        self.0.range(same).any(|volume| volume != own)
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
        handles.finish_list();
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
        handles.finish_list();
        assert!(!handles.may_share("h", "a"));
        assert_eq!(handles.0.len(), 1);
    }

    #[test]
    fn volumes_of_an_interrupted_list_are_known_until_the_next_list_is_complete() {
        let mut handles = listed(&[("a", "h")]);
        handles.begin_list();
        handles.insert("h", "young");
        handles.begin_list();
        assert!(handles.may_share("h", "a"), "not in the new list yet");
        handles.insert("h", "a");
        handles.finish_list();
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
        handles.mark_partial();
        handles.finish_list();
        assert!(handles.may_share("h", "a"));
    }
}
