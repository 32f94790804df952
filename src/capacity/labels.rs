//! The labels of the objects: for which driver they are, and who manages them.

use serde_json::{Value, json};

use crate::kube::objects::StorageCapacity;

/// The label with the driver's name.
const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";

/// The label with the name of the process that manages an object.
const MANAGER_LABEL: &str = "csi.storage.k8s.io/managed-by";

/// The manager of the objects of a whole cluster.
const MANAGER: &str = "external-provisioner";

/// The maximum length of a label value.
const LABEL_LENGTH: usize = 63;

/// The length of a hash with its dashes: `-53f40b57-`.
const HASH_LENGTH: usize = 10;

/// The labels by which our objects are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectLabels {
    pub(super) driver: String,
    pub(super) manager: String,
}

impl ObjectLabels {
    /// The labels of a driver's objects, for the whole cluster or for one node.
    pub(super) fn new(driver: &str, node: Option<&str>) -> Self {
        let manager = node.map_or_else(|| MANAGER.to_owned(), manager_on);
        Self { driver: driver.to_owned(), manager }
    }

    /// Both, for a new object.
    pub(super) fn to_json(&self) -> Value {
        json!({DRIVER_LABEL: self.driver, MANAGER_LABEL: self.manager})
    }

    /// The label selector of the objects.
    pub(super) fn selector(&self) -> String {
        format!("{DRIVER_LABEL}={},{MANAGER_LABEL}={}", self.driver, self.manager)
    }

    /// Whether both mark the object as ours. The server filters by them; this check protects objects of
    /// others from a server that does not.
    pub(super) fn are_on(&self, object: &StorageCapacity) -> bool {
        let label = |key: &str| object.metadata.labels.get(key);
        label(DRIVER_LABEL) == Some(&self.driver) && label(MANAGER_LABEL) == Some(&self.manager)
    }
}

/// external-provisioner's label value for the manager on a node; shortened with a hash to fit a
/// label.
fn manager_on(node: &str) -> String {
    let whole = format!("{MANAGER}-{node}");
    if whole.len() <= LABEL_LENGTH {
        return whole;
    }
    let kept = LABEL_LENGTH.saturating_sub(HASH_LENGTH + node.len());
    match MANAGER.get(..kept) {
        Some(prefix) if kept > 0 => format!("{prefix}-{:08x}-{node}", fnv1a_32(MANAGER)),
        _ => format!("{MANAGER}-{:08x}", fnv1a_32(&whole)),
    }
}

/// The 32-bit FNV-1a hash.
fn fnv1a_32(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_manager_on_a_node_is_named_as_in_external_provisioner() {
        let long = "worker-0123456789.rack-12.rack-12.rack-12.rack-12.rack-12.rack-12.internal.example.org";
        let expected = |length: usize| match length {
            0..=42 => format!("external-provisioner-{}", "n".repeat(length)),
            43 => format!("external-p-53f40b57-{}", "n".repeat(43)),
            44 => format!("external--53f40b57-{}", "n".repeat(44)),
            _ => format!("e-53f40b57-{}", "n".repeat(52)),
        };
        for length in [1, 42, 43, 44, 52] {
            let labels = ObjectLabels::new("d", Some(&"n".repeat(length)));
            assert_eq!(labels.manager, expected(length));
        }
        assert_eq!(ObjectLabels::new("d", Some(long)).manager, "external-provisioner-d2239423");
        assert_eq!(ObjectLabels::new("d", Some(&"n".repeat(53))).manager.len(), 29);
        assert_eq!(ObjectLabels::new("d", None).manager, "external-provisioner");
    }

    proptest! {
        #[test]
        fn a_manager_fits_into_a_label(node in "[a-z0-9.-]{1,253}") {
            prop_assert!(ObjectLabels::new("d", Some(&node)).manager.len() <= 63);
        }
    }
}
