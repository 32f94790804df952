//! Finds PersistentVolumes that have the same volume at the driver: deleting the volume for one of them
//! would destroy the other's data (safety rule 10).
//!
//! The index contains all PersistentVolumes of the driver. As there may be 100,000, it keeps eight bytes of
//! each: two hashes. It may therefore report a shared handle by mistake, and the caller verifies that by a
//! live list.

use crate::{
    controller::provisioner::VolumeHandle,
    kube::informer::listed_map::{ListedMap, hash},
};

/// The driver's PersistentVolumes by handle.
pub(in crate::controller) type HandleIndex = ListedMap<HashedVolume>;

/// A PersistentVolume by hashes of its handle and its UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HashedVolume {
    handle: u32,
    uid: u32,
}

impl HashedVolume {
    /// The PersistentVolume of this UID, which has the volume `handle`.
    pub(crate) fn new(handle: &VolumeHandle, uid: &str) -> Self {
        let half = |text| (hash(text) >> 32) as u32;
        Self { handle: half(handle.key()), uid: half(uid) }
    }
}

impl HandleIndex {
    /// Whether another PersistentVolume may have the volume of this one.
    pub(crate) fn may_share(&self, own: HashedVolume) -> bool {
        let same = HashedVolume { uid: u32::MIN, ..own }..=HashedVolume { uid: u32::MAX, ..own };
        self.range(same).any(|(volume, ())| volume != own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(handle: &str, uid: &str) -> HashedVolume {
        HashedVolume::new(&handle.into(), uid)
    }

    fn listed(volumes: &[(&str, &str)]) -> HandleIndex {
        let mut handles = HandleIndex::default();
        handles.begin_list();
        for (uid, handle) in volumes {
            handles.insert(volume(handle, uid), ());
        }
        handles.finish_list();
        handles
    }

    #[test]
    fn a_handle_is_shared_if_another_volume_has_it() {
        let mut handles = listed(&[("a", "h"), ("b", "other")]);
        assert!(!handles.may_share(volume("h", "a")));
        assert!(handles.may_share(volume("h", "unseen")));
        handles.insert(volume("h", "a"), ());
        assert!(!handles.may_share(volume("h", "a")), "the same volume twice");
        handles.insert(volume("h", "c"), ());
        assert!(handles.may_share(volume("h", "a")));
        handles.remove(volume("h", "c"));
        assert!(!handles.may_share(volume("h", "a")));
    }

    #[test]
    fn volumes_missing_in_a_complete_list_are_forgotten() {
        let mut handles = listed(&[("a", "h"), ("b", "h")]);
        handles.begin_list();
        handles.insert(volume("h", "a"), ());
        assert!(handles.may_share(volume("h", "a")), "the list may still contain the other one");
        handles.finish_list();
        assert!(!handles.may_share(volume("h", "a")));
        assert_eq!(handles.len(), 1);
    }

    #[test]
    fn volumes_of_an_interrupted_list_are_known_until_the_next_list_is_complete() {
        let mut handles = listed(&[("a", "h")]);
        handles.begin_list();
        handles.insert(volume("h", "young"), ());
        handles.begin_list();
        assert!(handles.may_share(volume("h", "a")), "not in the new list yet");
        handles.insert(volume("h", "a"), ());
        handles.finish_list();
        assert!(!handles.may_share(volume("h", "a")), "it is gone");
    }

    #[test]
    fn volumes_of_an_unfinished_list_are_known() {
        let mut handles = listed(&[("a", "h")]);
        handles.begin_list();
        handles.insert(volume("h", "b"), ());
        assert!(handles.may_share(volume("h", "a")));
    }

    #[test]
    fn a_list_with_an_unreadable_object_forgets_nothing() {
        let mut handles = listed(&[("a", "h"), ("b", "h")]);
        handles.begin_list();
        handles.insert(volume("h", "a"), ());
        handles.keep_known(|_| true);
        handles.finish_list();
        assert!(handles.may_share(volume("h", "a")));
    }
}
