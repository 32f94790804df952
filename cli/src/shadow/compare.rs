//! Compares the PersistentVolume that this program would have saved with the one that exists.
//!
//! Both are compared field by field, except for what the API server sets and for what differs between any
//! two processes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use go_fmt::quantity::Quantity;
use serde_json::Value;

use csi_provisioner::{controller::model::finalizer::PROTECTION, plain_text::cut};

/// The most differences that are kept of one PersistentVolume.
const MAX_DIFFERENCES: usize = 20;

/// The longest value that is kept, in bytes.
const MAX_VALUE: usize = 256;

/// One field in which the two differ. An absent field is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The path of the field.
    pub(super) field: String,
    /// This program's value.
    pub(super) expected: String,
    /// The value that exists.
    pub(super) found: String,
    /// Whether another component may have set it, so that it says nothing about the provisioner.
    pub(super) is_foreign: bool,
}

/// Paths whose values are the API server's, or differ between any two processes.
const IGNORED: &[&str] = &[
    "apiVersion",
    "kind",
    "status",
    "metadata.creationTimestamp",
    "metadata.deletionGracePeriodSeconds",
    "metadata.deletionTimestamp",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.uid",
    // The version of the claim depends on when each of the two read it.
    "spec.claimRef.resourceVersion",
    "spec.csi.volumeAttributes[storage.kubernetes.io/csiProvisionerIdentity]",
];

/// What the API server and the PersistentVolume controller add to any PersistentVolume.
const ADDED: &[(&str, &str)] = &[
    ("metadata.annotations[pv.kubernetes.io/bound-by-controller]", "yes"),
    ("metadata.finalizers[kubernetes.io/pv-protection]", "present"),
    (POLICY, "Retain"),
    ("spec.volumeMode", "Filesystem"),
    ("spec.azureDisk.fsType", "ext4"),
];

/// The sources of in-tree plugins, which are made of what the driver said. Of their fields only the file system
/// and whether the volume is read-only are the provisioner's.
const IN_TREE: &[&str] = &[
    "spec.awsElasticBlockStore.",
    "spec.azureDisk.",
    "spec.azureFile.",
    "spec.cinder.",
    "spec.gcePersistentDisk.",
    "spec.portworxVolume.",
    "spec.rbd.",
    "spec.vsphereVolume.",
];

/// What any component may add.
const FOREIGN: &[&str] = &[
    "metadata.annotations[",
    "metadata.finalizers[",
    "metadata.labels[",
    "metadata.ownerReferences",
];

/// The reclaim policy.
const POLICY: &str = "spec.persistentVolumeReclaimPolicy";

/// The size, which the API server writes in its shortest form.
const CAPACITY: &str = "spec.capacity.storage";

/// The differences, by field.
pub(super) fn differences(expected: &Value, found: &Value) -> Vec<Difference> {
    let is_terminating = found.pointer("/metadata/deletionTimestamp").is_some();
    let (mut expected, found) = (fields(expected), fields(found));
    let policy = found.get(POLICY);
    // It is removed as soon as a volume that is kept is seen, and after the volume is deleted.
    if is_terminating || policy.is_none_or(|policy| policy != "Delete") {
        let finalizer = format!("metadata.finalizers[{PROTECTION}]");
        if !found.contains_key(&finalizer) {
            expected.remove(&finalizer);
        }
    }
    let paths: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let difference = |path: &&String| difference(path, expected.get(*path), found.get(*path));
    paths.iter().filter_map(difference).take(MAX_DIFFERENCES).collect()
}

fn difference(path: &str, expected: Option<&String>, found: Option<&String>) -> Option<Difference> {
    let is_same_size =
        || path == CAPACITY && size(expected).is_some_and(|it| Some(it) == size(found));
    let is_added = || match (expected, found) {
        (None, Some(found)) => ADDED.iter().any(|added| *added == (path, found)),
        _ => false,
    };
    // Go leaves out fields with these values.
    let is_left_out = || {
        let is_zero = |value: &String| ["0", "false", ""].contains(&value.as_str());
        found.is_none() && !path.contains('[') && expected.is_some_and(is_zero)
    };
    let is_same = expected == found || is_left_out() || is_same_size();
    if is_same || is_added() || is_of_driver(path) {
        return None;
    }
    let text =
        |value: Option<&String>| value.map(|value| cut(value, MAX_VALUE)).unwrap_or_default();
    Some(Difference {
        field: cut(path, MAX_VALUE),
        expected: text(expected),
        found: text(found),
        is_foreign: expected.is_none() && FOREIGN.iter().any(|prefix| path.starts_with(prefix)),
    })
}

/// Whether the field of an in-tree source is made of what the driver said.
fn is_of_driver(path: &str) -> bool {
    let field = IN_TREE.iter().find_map(|source| path.strip_prefix(source));
    field.is_some_and(|field| !["fsType", "readOnly"].contains(&field))
}

fn size(quantity: Option<&String>) -> Option<Quantity> {
    Quantity::parse(quantity?).ok()
}

/// The values of all fields by their paths. Lists are values, except for finalizers, whose order does not
/// matter. Empty maps and lists count as absent.
fn fields(object: &Value) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    collect("", object, &mut fields);
    fields
}

fn collect(path: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    match value {
        _ if IGNORED.contains(&path) => {}
        Value::Null => {}
        Value::Object(entries) => {
            for (key, value) in entries {
                collect(&child(path, key), value, fields);
            }
        }
        Value::Array(items) if path == "metadata.finalizers" => {
            for item in items.iter().filter_map(Value::as_str) {
                fields.insert(format!("{path}[{item}]"), "present".to_owned());
            }
        }
        Value::Array(items) if items.is_empty() => {}
        Value::String(text) => {
            fields.insert(path.to_owned(), text.clone());
        }
        other => {
            fields.insert(path.to_owned(), other.to_string());
        }
    }
}

/// The path of a field. Keys of maps, which may contain dots, are in brackets.
fn child(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        "metadata.annotations" | "metadata.labels" | "spec.csi.volumeAttributes" => {
            format!("{path}[{key}]")
        }
        _ => format!("{path}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume() -> Value {
        json!({
            "metadata": {
                "name": "pvc-u",
                "annotations": {"pv.kubernetes.io/provisioned-by": "driver"},
                "finalizers": [OURS],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"kind": "PersistentVolumeClaim", "name": "c", "resourceVersion": "5"},
                "csi": {"driver": "driver", "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": "1-2-driver", "pool": "p"}},
                "mountOptions": [],
                "persistentVolumeReclaimPolicy": "Delete",
            },
        })
    }

    /// The volume with this change.
    fn with(pointer: &str, value: Value) -> Value {
        let mut volume = volume();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        volume.pointer_mut(parent).unwrap()[key] = value;
        volume
    }

    fn found(volume: &Value) -> Vec<(String, bool)> {
        let all = differences(&super::tests::volume(), volume);
        all.into_iter().map(|it| (it.field, it.is_foreign)).collect()
    }

    const OURS: &str = "external-provisioner.volume.kubernetes.io/finalizer";

    #[test]
    fn what_the_api_server_sets_and_what_differs_between_processes_is_no_difference() {
        let bound = json!({"pv.kubernetes.io/provisioned-by": "driver", "pv.kubernetes.io/bound-by-controller": "yes"});
        let attributes =
            json!({"storage.kubernetes.io/csiProvisionerIdentity": "7-8-driver", "pool": "p"});
        for (pointer, value) in [
            ("/metadata/uid", json!("u")),
            ("/metadata/managedFields", json!([{}])),
            ("/metadata/finalizers", json!(["kubernetes.io/pv-protection", OURS])),
            ("/metadata/annotations", bound),
            ("/spec/claimRef/resourceVersion", json!("9")),
            ("/spec/volumeMode", json!("Filesystem")),
            ("/spec/capacity/storage", json!("1024Mi")),
            ("/spec/awsElasticBlockStore", json!({"volumeID": "aws://a/v"})),
            ("/spec/csi/volumeAttributes", attributes),
            ("/status", json!({"phase": "Bound"})),
        ] {
            assert_eq!(found(&with(pointer, value)), [], "{pointer}");
        }
    }

    #[test]
    fn a_volume_that_is_kept_or_deleted_already_may_have_lost_the_protection_finalizer() {
        let mut found = with("/metadata/finalizers", json!(["kubernetes.io/pv-protection"]));
        assert_eq!(differences(&volume(), &found).len(), 1, "somebody has removed it");
        found["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(differences(&volume(), &found), []);
        let expected = with("/spec/persistentVolumeReclaimPolicy", json!("Retain"));
        let mut found = expected.clone();
        found["metadata"]["finalizers"] = json!([]);
        assert_eq!(differences(&expected, &found), []);
    }

    #[test]
    fn a_field_that_go_leaves_out_is_no_difference() {
        let expected = with("/spec/csi/readOnly", json!(false));
        assert_eq!(differences(&expected, &volume()), []);
        let annotation = with("/metadata/annotations", json!({"a": ""}));
        assert_eq!(differences(&annotation, &volume()).len(), 2, "keys of maps are not left out");
    }

    #[test]
    fn every_other_field_is_compared() {
        let finalizer = format!("metadata.finalizers[{OURS}]");
        let annotation = "metadata.annotations[pv.kubernetes.io/provisioned-by]";
        let policy = "spec.persistentVolumeReclaimPolicy";
        for (pointer, value, field) in [
            ("/metadata/name", json!("pvc-v"), "metadata.name"),
            ("/spec/accessModes", json!(["ReadWriteMany"]), "spec.accessModes"),
            ("/spec/volumeMode", json!("Block"), "spec.volumeMode"),
            ("/spec/persistentVolumeReclaimPolicy", json!("Retain"), policy),
            ("/spec/csi/readOnly", json!(true), "spec.csi.readOnly"),
            ("/spec/azureDisk", json!({"fsType": "xfs"}), "spec.azureDisk.fsType"),
            ("/spec/claimRef/name", json!("d"), "spec.claimRef.name"),
            ("/metadata/finalizers", json!([]), &finalizer),
            ("/metadata/annotations", json!({}), annotation),
        ] {
            assert_eq!(found(&with(pointer, value)), [(field.to_owned(), false)]);
        }
    }

    #[test]
    fn what_another_component_may_have_added_is_foreign() {
        let annotations = json!({"pv.kubernetes.io/provisioned-by": "driver", "x.y/z": "1"});
        for (pointer, value, field) in [
            ("/metadata/labels", json!({"a": "b"}), "metadata.labels[a]"),
            ("/metadata/annotations", annotations, "metadata.annotations[x.y/z]"),
            ("/metadata/ownerReferences", json!([{"uid": "o"}]), "metadata.ownerReferences"),
        ] {
            assert_eq!(found(&with(pointer, value)), [(field.to_owned(), true)]);
        }
    }

    #[test]
    fn values_and_their_number_are_bounded() {
        let long = with("/spec/mountOptions", json!(["x".repeat(10_000)]));
        let one = &differences(&volume(), &long)[0];
        assert!(one.found.len() <= MAX_VALUE && one.found.contains("cut, 10004 bytes"), "{one:?}");
        let labels: BTreeMap<String, &str> = (0..100).map(|n| (n.to_string(), "x")).collect();
        let many = with("/metadata/labels", json!(labels));
        assert_eq!(differences(&volume(), &many).len(), MAX_DIFFERENCES);
    }
}
