//! A volume that the driver made and that cannot be used.
//!
//! Contains what is needed to remove it directly, without a PersistentVolume (safety rule 8).
//! `discard` decides whether that may be done, and the provisioner does it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{failure::Failure, volume_handle::VolumeHandle};

/// A volume that cannot be used. It is removed before the next call for its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableVolume {
    /// The driver's ID of the volume.
    pub handle: VolumeHandle,
    /// The credentials with which the volume was made.
    pub credentials: Credentials,
    /// What is wrong with it, for the user.
    pub defect: Failure,
    /// The message for the user if the volume could not be removed; the reason is appended to it.
    pub orphaned: Failure,
}

/// Secrets for calls to the driver. They are never printed. Clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(Arc<BTreeMap<String, String>>);

// === impl Credentials ===

impl Credentials {
    /// Credentials with these values by their keys.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(Arc::new(values))
    }

    /// The values, only for a request to the driver.
    pub fn expose(&self) -> BTreeMap<String, String> {
        BTreeMap::clone(&self.0)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***stripped***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_never_printed() {
        let values = BTreeMap::from([("user".to_owned(), "s3cr3t".to_owned())]);
        let unusable = UnusableVolume {
            handle: "h".into(),
            credentials: Credentials::new(values.clone()),
            defect: Failure::new("small"),
            orphaned: Failure::new("small and left"),
        };
        assert_eq!(unusable.credentials.expose(), values);
        let printed = format!("{unusable:?}");
        assert!(printed.contains("***stripped***") && !printed.contains("s3cr3t"), "{printed}");
    }
}
