//! The keys of the controller's queues.

/// A claim or a volume that may wait for a permit or for a dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The claim with this UID.
    Claim(String),
    /// The PersistentVolume of this name.
    Volume(String),
}

impl Item {
    /// Returns the item of the claim with this UID.
    pub fn claim(uid: &str) -> Self {
        Self::Claim(uid.to_owned())
    }

    /// Returns the item of the PersistentVolume of this name.
    pub fn volume(name: &str) -> Self {
        Self::Volume(name.to_owned())
    }
}
