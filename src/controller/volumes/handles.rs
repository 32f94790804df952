//! Which PersistentVolumes stand for the same volume of the driver.
//!
//! Owns an index of the driver's PersistentVolumes by handle, of all of them, whatever is due:
//! deleting a volume that another one stands for would destroy that one's data (safety rule 10).
//! As there may be a hundred thousand, it keeps eight bytes of each, two hashes; it may therefore
//! suspect where nothing is shared, and its caller looks live before it says no. How they lie in memory
//! is left to `marks`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::controller::packed_set::PackedSet;

/// The driver's PersistentVolumes by handle.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    known: PackedSet<RecordStatus>,
    /// What the list under way has shown so far.
    listing: Option<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    shown: PackedSet<RecordStatus>,
    /// Whether it holds an object that can't be read, and so does not tell what has vanished.
    is_partial: bool,
}

/// What is kept of a PersistentVolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RecordStatus {
    handle: u32,
    owner: u32,
}

impl RecordStatus {
    fn new(key: &str, uid: &str) -> Self {
        Self { handle: hash(key), owner: hash(uid) }
    }
}

// === impl Handles ===

impl Handles {
    /// A new list begins. What an unfinished one has shown counts like everything before.
    pub(crate) fn restarted(&mut self) {
        let unfinished = self.listing.replace(Listing::default()).unwrap_or_default();
        unfinished.shown.iter().for_each(|mark| self.known.insert(mark));
    }

    /// A PersistentVolume of the driver goes past, of this UID, whose handle `key` tells apart.
    pub(crate) fn seen(&mut self, key: &str, uid: &str) {
        let marks = self.listing.as_mut().map_or(&mut self.known, |listing| &mut listing.shown);
        marks.insert(RecordStatus::new(key, uid));
    }

    /// A PersistentVolume goes past that can't be read.
    pub(crate) fn unreadable(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.is_partial = true;
        }
    }

    /// A PersistentVolume of the driver is gone.
    pub(crate) fn deleted(&mut self, key: &str, uid: &str) {
        let mark = RecordStatus::new(key, uid);
        self.known.remove(mark);
        if let Some(listing) = &mut self.listing {
            listing.shown.remove(mark);
        }
    }

    /// The list is whole.
    pub(crate) fn complete(&mut self) {
        match self.listing.take() {
            Some(listing) if listing.is_partial => {
                listing.shown.iter().for_each(|mark| self.known.insert(mark));
            }
            Some(listing) => self.known = listing.shown,
            None => {}
        }
    }

    /// Whether another PersistentVolume than that of this UID may have such a handle.
    pub(crate) fn may_share(&self, key: &str, uid: &str) -> bool {
        let own = RecordStatus::new(key, uid);
        let same =
            RecordStatus { owner: u32::MIN, ..own }..=RecordStatus { owner: u32::MAX, ..own };
        let listing = self.listing.as_ref().map(|listing| &listing.shown);
        let mut marks = std::iter::once(&self.known).chain(listing);
        marks.any(|marks| marks.range(same.clone()).any(|mark| mark != own))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.known.iter().count()
    }
}

/// The same in every process; whoever aims at it makes us look, and no more.
fn hash(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(volumes: &[(&str, &str)]) -> Handles {
        let mut handles = Handles::default();
        handles.restarted();
        for (uid, handle) in volumes {
            handles.seen(handle, uid);
        }
        handles.complete();
        handles
    }

    #[test]
    fn a_handle_is_shared_when_another_volume_has_it() {
        let mut handles = listed(&[("a", "h"), ("b", "other")]);
        assert!(!handles.may_share("h", "a"));
        assert!(handles.may_share("h", "unseen"));
        handles.seen("h", "a");
        assert!(!handles.may_share("h", "a"), "shown twice, it is still one");
        handles.seen("h", "c");
        assert!(handles.may_share("h", "a"));
        handles.deleted("h", "c");
        assert!(!handles.may_share("h", "a"));
    }

    #[test]
    fn what_a_new_list_does_not_show_is_forgotten_once_it_is_whole() {
        let mut handles = listed(&[("a", "h"), ("b", "h")]);
        handles.restarted();
        handles.seen("h", "a");
        assert!(handles.may_share("h", "a"), "the list may still show the other one");
        handles.complete();
        assert!(!handles.may_share("h", "a"));
        assert_eq!(handles.len(), 1);
    }

    #[test]
    fn what_a_list_has_shown_that_broke_off_counts_until_the_next_is_whole() {
        let mut handles = listed(&[("a", "h")]);
        handles.restarted();
        handles.seen("h", "young");
        handles.restarted();
        assert!(handles.may_share("h", "a"), "the new list has not come to it");
        handles.seen("h", "a");
        handles.complete();
        assert!(!handles.may_share("h", "a"), "it is gone");
    }

    #[test]
    fn an_unfinished_list_counts_as_far_as_it_has_come() {
        let mut handles = listed(&[("a", "h")]);
        handles.restarted();
        handles.seen("h", "b");
        assert!(handles.may_share("h", "a"));
    }

    #[test]
    fn a_list_with_something_unreadable_proves_no_end() {
        let mut handles = listed(&[("a", "h"), ("b", "h")]);
        handles.restarted();
        handles.seen("h", "a");
        handles.unreadable();
        handles.complete();
        assert!(handles.may_share("h", "a"));
    }
}
