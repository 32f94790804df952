//! A volume that the driver made and that cannot be used.
//!
//! Owns what must be known to remove it directly, without a PersistentVolume (safety rule 8).
//! Leaves whether that may be done to `discard`, and doing it to the provisioner.

use std::{collections::BTreeMap, fmt};

use crate::controller::provisioner::Failure;

/// A volume that cannot be used: it must go before its claim is asked for again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableVolume {
    /// The driver's id of it.
    pub handle: String,
    /// The credentials with which it was made.
    pub credentials: Credentials,
    /// What is wrong with it, in the words its user reads.
    pub defect: Failure,
    /// The same for when it could not be removed; why is added to it.
    pub orphaned: Failure,
}

/// What a driver needs to know to let somebody in. Prints as nothing but its being there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(BTreeMap<String, String>);

// === impl Credentials ===

impl Credentials {
    /// These values by their keys.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    /// The values, for a request to the driver and nothing else.
    pub fn expose(&self) -> BTreeMap<String, String> {
        self.0.clone()
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
        let leftover = UnusableVolume {
            handle: "h".into(),
            credentials: Credentials::new(values.clone()),
            defect: Failure::new("small"),
            orphaned: Failure::new("small and left"),
        };
        assert_eq!(leftover.credentials.expose(), values);
        let printed = format!("{leftover:?}");
        assert!(printed.contains("***stripped***") && !printed.contains("s3cr3t"), "{printed}");
    }
}
