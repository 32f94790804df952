//! The keys of the controller's queues.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use crate::kube::objects::Claim;

/// The UID of a claim or the name of a PersistentVolume. Clones share the text: that of a waiting claim is
/// in its metadata, twice in the index, three times in a queue and twice in what the claim waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&Arc<str>> for Key {
    fn from(text: &Arc<str>) -> Self {
        Self(Arc::clone(text))
    }
}

impl Key {
    /// The key of a claim: its UID, with the text that the claim has.
    pub fn of(claim: &Claim) -> Self {
        claim.metadata.uid.as_ref().map_or_else(|| Self::from(""), Self::from)
    }

    /// The shared text.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, text: &&str) -> bool {
        **self == **text
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A claim or a volume that may wait for a dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The claim with this UID.
    Claim(Key),
    /// The PersistentVolume of this name.
    Volume(Key),
}

impl Item {
    /// Returns the item of the claim with this UID.
    pub fn claim(uid: &str) -> Self {
        Self::Claim(uid.into())
    }

    /// Returns the item of the PersistentVolume of this name.
    pub fn volume(name: &str) -> Self {
        Self::Volume(name.into())
    }
}
