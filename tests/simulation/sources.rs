//! What claims are made from, in a simulated cluster: snapshots, grants, other claims.

use serde_json::{Value, json};
use testkit::apiserver::serve::manifests;

use super::world::{self, DRIVER, Simulation};

const CUSTOM_KINDS: &str = include_str!("../conformance/cluster/crds.yaml");

/// The namespace of claims.
pub(crate) const NAMESPACE: &str = "sc";

/// Installs the kinds of snapshots and grants.
pub(crate) fn serve(simulation: &Simulation) {
    for definition in manifests::parse(CUSTOM_KINDS).unwrap() {
        simulation.api.create(&definition).unwrap();
    }
}

/// A snapshot that is not ready yet, with its content, whose handle is `handle-NAME`.
pub(crate) fn create_unready_snapshot(simulation: &Simulation, namespace: &str, name: &str) {
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

/// The snapshot is ready.
pub(crate) fn make_ready(simulation: &Simulation, namespace: &str, name: &str) {
    let ready = json!({"status": {"readyToUse": true}});
    simulation.api.merge("VolumeSnapshot", namespace, name, &ready).unwrap();
}

/// A snapshot that is ready.
pub(crate) fn create_snapshot(simulation: &Simulation, name: &str) {
    create_snapshot_in(simulation, NAMESPACE, name);
}

/// A snapshot that is ready, in this namespace.
pub(crate) fn create_snapshot_in(simulation: &Simulation, namespace: &str, name: &str) {
    create_unready_snapshot(simulation, namespace, name);
    make_ready(simulation, namespace, name);
}

/// A claim that is to be made from this snapshot; its UID.
pub(crate) fn create_restore(simulation: &Simulation, name: &str, snapshot: &str) -> String {
    let source =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot});
    create_claim_from(simulation, name, &json!({"dataSource": source}))
}

/// A claim that is to be made from that claim; its UID.
pub(crate) fn create_clone(simulation: &Simulation, name: &str, origin: &str) -> String {
    let source = json!({"kind": "PersistentVolumeClaim", "name": origin});
    create_claim_from(simulation, name, &json!({"dataSource": source}))
}

/// A claim whose spec has these fields, too; its UID.
pub(crate) fn create_claim_from(simulation: &Simulation, name: &str, spec: &Value) -> String {
    let mut claim = world::claim(name);
    for (field, value) in spec.as_object().unwrap() {
        claim["spec"][field] = value.clone();
    }
    let made = simulation.api.create(&claim).unwrap();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A claim of nobody's, bound to a volume whose handle is `handle-NAME`.
pub(crate) fn create_origin(simulation: &Simulation, name: &str) {
    let uid = create_unbound_origin(simulation, name);
    bind_origin(simulation, name, &uid);
}

/// A claim of nobody's; its UID.
pub(crate) fn create_unbound_origin(simulation: &Simulation, name: &str) -> String {
    let mut claim = world::claim(name);
    claim["metadata"]["annotations"] = json!({});
    let made = simulation.api.create(&claim).unwrap();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Binds a claim to a volume of its own.
pub(crate) fn bind_origin(simulation: &Simulation, name: &str, uid: &str) {
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
