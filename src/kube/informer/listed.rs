//! What a list has shown, so that whoever keeps objects finds those that vanished between two lists.
//!
//! Only hashes of UIDs are kept, eight bytes an object, and only until the handler has seen them. The API
//! server makes the UIDs, so no user can let an object look as if it were still there.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use crate::kube::objects::View;

/// The objects of a complete list, readable or not: what is known and not among them has vanished.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Sorted once the list is complete.
    uids: Vec<u64>,
    /// An object's UID could not be read: any object may be the one.
    is_any_unknown: bool,
}

impl Listed {
    /// These objects.
    pub fn of<'a, V: View>(objects: impl IntoIterator<Item = &'a V>) -> Self {
        let mut listed = Self::default();
        objects.into_iter().for_each(|object| listed.add(object.meta().uid.as_deref()));
        listed.take()
    }

    /// The list in progress shows another object, with this UID if it could be read.
    pub(super) fn add(&mut self, uid: Option<&str>) {
        match uid {
            Some(uid) => self.uids.push(hash(uid)),
            None => self.is_any_unknown = true,
        }
    }

    /// The list is complete: returns it, and begins another one.
    pub(super) fn take(&mut self) -> Self {
        self.uids.sort_unstable();
        std::mem::take(self)
    }

    /// Whether the list has shown the object with this UID.
    pub fn contains(&self, uid: &str) -> bool {
        self.contains_hash(hash(uid))
    }

    /// Whether the list has shown an object with a UID of this [`hash`].
    pub(crate) fn contains_hash(&self, uid: u64) -> bool {
        self.is_any_unknown || self.uids.binary_search(&uid).is_ok()
    }
}

/// Takes out of `objects` those that a list has not shown.
pub fn take_vanished<K: Ord, V>(
    objects: &mut BTreeMap<K, V>,
    is_listed: impl Fn(&K, &V) -> bool,
) -> BTreeMap<K, V> {
    let (kept, vanished) =
        std::mem::take(objects).into_iter().partition(|(key, object)| is_listed(key, object));
    *objects = kept;
    vanished
}

/// A small value for an object. It does not depend on the process, so that tests are reproducible. Nor is it
/// keyed: a deliberate collision only costs a needless read.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(uids: &[Option<&str>]) -> Listed {
        let mut listed = Listed::default();
        for uid in uids {
            listed.add(*uid);
        }
        listed.take()
    }

    #[test]
    fn an_object_is_found_by_its_uid_and_its_hash() {
        let listed = listed(&[Some("a"), Some("b"), Some("c")]);
        for (uid, is_there) in [("a", true), ("b", true), ("c", true), ("d", false), ("", false)] {
            assert_eq!(listed.contains(uid), is_there, "{uid}");
            assert_eq!(listed.contains_hash(hash(uid)), is_there, "{uid}");
        }
    }

    #[test]
    fn an_object_whose_uid_is_unknown_may_be_any() {
        assert!(listed(&[Some("a"), None]).contains("b"));
        assert!(!Listed::default().contains("b"), "an empty list has none");
    }
}
