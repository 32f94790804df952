//! Sample objects with all fields set, valid for a real API server.

use serde_json::{Value, json};

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "uid": "u", "resourceVersion": "7", "generateName": "g-", "generation": 3, "selfLink": "/s",
        "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "1969-12-31T23:59:59Z",
        "deletionGracePeriodSeconds": 0, "labels": {"l": "1", "empty": ""},
        "annotations": {"example.com/a": "\"\\\n\u{e9}\u{1f4be}<&>", "b": ""},
        "finalizers": ["example.com/f", "example.com/g"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pu", "controller": true, "blockOwnerDeletion": false},
            {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "qu"},
        ],
    })
}

/// A claim.
pub(crate) fn claim(name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["namespace"] = "default".into();
    let source =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "selector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "w"]}],
            },
            "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
            "volumeName": "pv", "storageClassName": "", "volumeMode": "Block",
            "dataSource": source, "dataSourceRef": source, "volumeAttributesClassName": "gold",
        },
        "status": {
            "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "conditions": [
                {
                    "type": "Resizing", "status": "True", "lastProbeTime": "2026-01-02T03:04:05Z",
                    "lastTransitionTime": "2026-01-02T03:04:06Z", "reason": "r", "message": "m",
                },
                {"type": "Other", "status": "False", "lastProbeTime": null, "lastTransitionTime": null},
            ],
            "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "currentVolumeAttributesClassName": "silver",
            "modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold", "status": "InProgress"},
        },
    })
}

/// A volume with the source `part` of the plugin `source`.
pub(crate) fn volume(name: &str, source: &str, part: &Value) -> Value {
    json!({
        "kind": "PersistentVolume", "apiVersion": "v1",
        "metadata": metadata(name),
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, source: part,
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c",
                "uid": "cu", "resourceVersion": "5",
            },
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "sc",
            "mountOptions": ["ro"], "volumeMode": "Filesystem",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "In", "values": ["a", "b"]},
                        {"key": "x", "operator": "Exists"},
                    ],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                },
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}]},
            ]}},
        },
        "status": {"phase": "Released", "message": "m", "reason": "r"},
    })
}

/// The source of each plugin, by the name of its field.
pub(crate) fn sources() -> Vec<(&'static str, Value)> {
    let secret = json!({"name": "s", "namespace": "ns"});
    let csi = json!({
        "driver": "d", "volumeHandle": "h", "readOnly": true, "fsType": "ext4",
        "volumeAttributes": {"a": "b"}, "nodeStageSecretRef": secret,
    });
    let rbd = json!({
        "monitors": ["a", "b"], "image": "i", "fsType": "ext4", "pool": "p", "user": "u",
        "keyring": "k", "secretRef": secret, "readOnly": true,
    });
    let azure_file =
        json!({"secretName": "s", "shareName": "sh", "readOnly": true, "secretNamespace": "ns"});
    let azure_disk = json!({
        "diskName": "d", "diskURI": "/subscriptions/u", "cachingMode": "None", "fsType": "",
        "readOnly": false, "kind": "Managed",
    });
    let vsphere = json!({
        "volumePath": "[d] v", "fsType": "ext4", "storagePolicyName": "p", "storagePolicyID": "id",
    });
    let disk = |name: &str| json!({name: "v", "fsType": "ext4", "partition": 2, "readOnly": true});
    vec![
        ("csi", csi),
        ("gcePersistentDisk", disk("pdName")),
        ("awsElasticBlockStore", disk("volumeID")),
        ("rbd", rbd),
        (
            "cinder",
            json!({"volumeID": "v", "fsType": "ext4", "readOnly": true, "secretRef": secret}),
        ),
        ("azureFile", azure_file),
        ("vsphereVolume", vsphere),
        ("azureDisk", azure_disk),
        ("portworxVolume", json!({"volumeID": "px", "fsType": "ext4", "readOnly": true})),
        ("nfs", json!({"server": "s", "path": "/p"})),
    ]
}
