//! What goes through the controller's queues.

/// Something that is worked on, and may have to wait for its turn or for something else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The claim with this UID.
    Claim(String),
    /// The PersistentVolume of this name.
    Volume(String),
}

impl Item {
    /// The claim with this UID.
    pub fn claim(uid: &str) -> Self {
        Self::Claim(uid.to_owned())
    }

    /// The PersistentVolume of this name.
    pub fn volume(name: &str) -> Self {
        Self::Volume(name.to_owned())
    }
}
