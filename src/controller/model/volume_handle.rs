//! The driver's ID of a volume.

use std::fmt;

/// The driver's ID of a volume. IDs that are known to name the same volume are equal.
#[derive(Clone, Default)]
pub struct VolumeHandle {
    id: String,
    /// The part that identifies the volume; `None`: all of it.
    key: Option<String>,
}

impl VolumeHandle {
    /// The handle with this ID, whose part `key` identifies the volume.
    pub fn with_key(id: String, key: impl FnOnce(&str) -> &str) -> Self {
        let part = key(&id);
        let key = (part != id).then(|| part.to_owned());
        Self { id, key }
    }

    /// The ID, for the driver and for users.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The part by which handles are compared.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.id)
    }
}

impl From<&str> for VolumeHandle {
    fn from(id: &str) -> Self {
        Self { id: id.to_owned(), key: None }
    }
}

impl PartialEq for VolumeHandle {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for VolumeHandle {}

impl fmt::Debug for VolumeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.id, f)
    }
}
