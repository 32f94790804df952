//! The sources of volumes in a simulated cluster: snapshots, claims to clone, grants.

use serde_json::{Value, json};
use testkit::apiserver::serve::manifests;

use crate::simulation::{DRIVER, Simulation, claim};

const CUSTOM_KINDS: &str = include_str!("../../conformance/cluster/crds.yaml");

/// The namespace of claims.
pub const NAMESPACE: &str = "sc";

/// Installs the kinds of snapshots and grants.
pub fn install_kinds(simulation: &Simulation) {
    for definition in manifests::parse(CUSTOM_KINDS).unwrap() {
        simulation.api.create(&definition).unwrap();
    }
}

/// Creates a snapshot that is not ready, and its content, whose handle is `handle-NAME`.
pub fn create_unready_snapshot(simulation: &Simulation, namespace: &str, name: &str) {
    let content = format!("content-{name}");
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"source": {"persistentVolumeClaimName": "origin"}},
        "status": {"boundVolumeSnapshotContentName": content, "readyToUse": false, "restoreSize": "1Gi"},
    });
    let snapshot = simulation.api.create(&snapshot).unwrap();
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": content},
        "spec": {
            "driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": "origin"},
            "volumeSnapshotRef": {"namespace": namespace, "name": name, "uid": snapshot["metadata"]["uid"]},
        },
        "status": {"snapshotHandle": format!("handle-{name}"), "readyToUse": true},
    });
    simulation.api.create(&content).unwrap();
}

/// Sets a snapshot to ready.
pub fn make_ready(simulation: &Simulation, namespace: &str, name: &str) {
    let ready = json!({"status": {"readyToUse": true}});
    simulation.api.merge("VolumeSnapshot", namespace, name, &ready).unwrap();
}

/// Creates a snapshot that is ready.
pub fn create_snapshot(simulation: &Simulation, name: &str) {
    create_snapshot_in(simulation, NAMESPACE, name);
}

/// Creates a snapshot that is ready, in this namespace.
pub fn create_snapshot_in(simulation: &Simulation, namespace: &str, name: &str) {
    create_unready_snapshot(simulation, namespace, name);
    make_ready(simulation, namespace, name);
}

/// Creates a claim to be restored from this snapshot; returns its UID.
pub fn create_restore(simulation: &Simulation, name: &str, snapshot: &str) -> String {
    let source =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot});
    create_claim_from(simulation, name, &json!({"dataSource": source}))
}

/// Creates a claim to be cloned from the claim `origin`; returns its UID.
pub fn create_clone(simulation: &Simulation, name: &str, origin: &str) -> String {
    let source = json!({"kind": "PersistentVolumeClaim", "name": origin});
    create_claim_from(simulation, name, &json!({"dataSource": source}))
}

/// Creates a claim whose spec has these fields, too; returns its UID.
pub fn create_claim_from(simulation: &Simulation, name: &str, spec: &Value) -> String {
    let mut claim = claim(name);
    for (field, value) in spec.as_object().unwrap() {
        claim["spec"][field] = value.clone();
    }
    simulation.create(&claim)
}

/// Creates a claim that no provisioner serves, bound to a volume whose handle is `handle-NAME`.
pub fn create_origin(simulation: &Simulation, name: &str) {
    let uid = create_unbound_origin(simulation, name);
    bind_origin(simulation, name, &uid);
}

/// Creates a claim that no provisioner serves; returns its UID.
pub fn create_unbound_origin(simulation: &Simulation, name: &str) -> String {
    let mut claim = claim(name);
    claim["metadata"]["annotations"] = json!({});
    simulation.create(&claim)
}

/// Binds a claim to a volume that it creates.
pub fn bind_origin(simulation: &Simulation, name: &str, uid: &str) {
    let volume = format!("pv-{name}");
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": format!("handle-{name}")},
            "claimRef": {"namespace": NAMESPACE, "name": name, "uid": uid},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
        },
        "status": {"phase": "Bound"},
    });
    simulation.api.create(&object).unwrap();
    let kind = "PersistentVolumeClaim";
    let spec = json!({"spec": {"volumeName": volume}});
    simulation.api.merge(kind, NAMESPACE, name, &spec).unwrap();
    simulation.api.merge(kind, NAMESPACE, name, &json!({"status": {"phase": "Bound"}})).unwrap();
}

/// The ReferenceGrant `grant`: claims of the namespace `from` may be made from snapshots of the namespace `of`.
pub fn grant(from: &str, of: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"name": "grant", "namespace": of},
        "spec": {"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": from}],
                 "to": [{"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}]},
    })
}
