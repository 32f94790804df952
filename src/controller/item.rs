//! The keys of the controller's queues.

use std::sync::Arc;

/// The UID of a claim or the name of a PersistentVolume. Clones share the text.
pub type Key = Arc<str>;

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
