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

/// Parameters of a class that names this secret.
pub fn with_secret(name: &str) -> Value {
    json!({
        "csi.storage.k8s.io/provisioner-secret-name": name,
        "csi.storage.k8s.io/provisioner-secret-namespace": "sc",
    })
}

/// A Secret whose `key` is this text.
pub fn secret(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "sc"},
           "stringData": {"key": text}})
}

/// A Node with these labels.
pub fn node(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// A CSINode that has the driver with these topology keys.
pub fn csi_node(name: &str, keys: &[&str]) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
           "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": keys}]}})
}

/// The attachment `VOLUME-NODE` of a PersistentVolume to a node.
pub fn attachment(volume: &str, node: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": format!("{volume}-{node}")},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
    })
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

/// A PersistentVolume that the driver's provisioner has made, for a claim that is gone.
pub fn provisioned_volume(name: &str, handle: &str) -> Value {
    let owner = format!("claim-of-{name}");
    let mut volume = foreign_volume("", &owner, handle);
    volume["metadata"] =
        json!({"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}});
    volume["spec"]["claimRef"]["name"] = json!("gone");
    volume
}
