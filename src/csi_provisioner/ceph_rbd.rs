//! The feature gate `CephRBDExtensions`, for classes of ceph-csi's RBD driver.
//!
//! Recognizes such classes, enforces the minimum size of an xfs volume, and selects the secret for
//! deletion. Pure. While the gate is off, and for other classes (those of `CephFS` among them),
//! nothing changes.

use std::collections::BTreeMap;

use go_fmt::quantity::Quantity;

use super::{
    keys::SecretKeys,
    secrets::{self, SecretReference, TemplateContext},
};
use crate::controller::provisioner::Failure;

/// A parameter of classes of RBD, optional in classes of `CephFS`.
const POOL: &str = "pool";
/// A parameter of classes of `CephFS` only.
const FS_NAME: &str = "fsName";
/// The minimum size; below it `mkfs.xfs` fails when the volume is staged ("agsize too small").
const LEAST_XFS: i64 = 1 << 30;

/// The feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CephRbd {
    /// Whether it is on.
    pub(super) enabled: bool,
}

impl CephRbd {
    fn concerns(self, parameters: &BTreeMap<String, String>) -> bool {
        self.enabled && parameters.contains_key(POOL) && !parameters.contains_key(FS_NAME)
    }

    /// Refuses xfs on a volume that is too small for it. `fs_type` is the class's or the default.
    ///
    /// # Errors
    /// The fork's text, including its trailing blank.
    pub(super) fn check_size(
        self,
        parameters: &BTreeMap<String, String>,
        fs_type: &str,
        size: &Quantity,
    ) -> Result<(), Failure> {
        if !self.concerns(parameters) || fs_type != "xfs" || size.value() >= LEAST_XFS {
            return Ok(());
        }
        Err(Failure::new(format!(
            "fstype xfs volume size request must be equal or larger than 1Gi, but your volume size request is {size} "
        )))
    }

    /// The secret for deleting a volume of the class: its own deletion secret if the class names
    /// one, else the provisioner's.
    pub(super) fn deletion_secret(
        self,
        parameters: &BTreeMap<String, String>,
        context: &TemplateContext<'_>,
    ) -> Result<Option<SecretReference>, Failure> {
        let own = SecretKeys::DELETION;
        let named = [own.name, own.namespace].iter().any(|key| parameters.contains_key(*key));
        let keys = if self.concerns(parameters) && named {
            SecretKeys::DELETION
        } else {
            SecretKeys::PROVISIONER
        };
        secrets::reference(keys, parameters, context)
    }

    /// Whether the gate reserves this parameter of the class for the provisioner.
    pub(super) fn is_known(self, parameters: &BTreeMap<String, String>, key: &str) -> bool {
        let keys = SecretKeys::DELETION;
        self.concerns(parameters) && [keys.name, keys.namespace].contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::map, *};

    const ON: CephRbd = CephRbd { enabled: true };
    const OFF: CephRbd = CephRbd { enabled: false };

    const RBD: [(&str, &str); 2] = [("pool", "rbd"), ("clusterID", "c")];
    const CEPHFS: [(&str, &str); 2] = [("pool", "data"), ("fsName", "fs")];

    fn checked(gate: CephRbd, class: &[(&str, &str)], fs_type: &str, size: &str) -> Option<String> {
        let size = Quantity::parse(size).unwrap();
        gate.check_size(&map(class), fs_type, &size).err().map(|why| why.to_string())
    }

    #[test]
    fn xfs_below_one_gibibyte_is_refused_for_rbd_and_nothing_else() {
        let reason = |size: &str| {
            Some(format!(
                "fstype xfs volume size request must be equal or larger than 1Gi, but your volume size request is {size} "
            ))
        };
        let table = [
            (ON, &RBD[..], "xfs", "1023Mi", reason("1023Mi")),
            (ON, &RBD, "xfs", "1000M", reason("1G")),
            (ON, &RBD, "xfs", "0", reason("0")),
            (ON, &RBD, "xfs", "1Gi", None),
            (ON, &RBD, "xfs", "1073741824", None),
            (ON, &RBD, "ext4", "1Mi", None),
            (ON, &RBD, "", "1Mi", None),
            (ON, &CEPHFS, "xfs", "1Mi", None),
            (ON, &[], "xfs", "1Mi", None),
            (OFF, &RBD, "xfs", "1Mi", None),
        ];
        for (gate, class, fs_type, size, expected) in table {
            assert_eq!(checked(gate, class, fs_type, size), expected, "{class:?} {fs_type} {size}");
        }
    }
}
