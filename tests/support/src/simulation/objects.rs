//! Objects that tests create.

use serde_json::{Value, json};

use super::DRIVER;

/// A claim of the class, annotated as kube-controller-manager does.
pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "sc", "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A class of the simulation's driver with these fields.
pub fn class(name: &str, change: &Value) -> Value {
    let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name}, "provisioner": DRIVER});
    for (key, value) in change.as_object().unwrap() {
        class[key] = value.clone();
    }
    class
}

/// A PersistentVolume that another client created: its name is that of the claim `uid`'s volume, and
/// it is for the claim `owner`.
pub fn foreign_volume(uid: &str, owner: &str, handle: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pvc-{uid}")},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "sc", "name": "data", "uid": owner},
        },
    })
}
