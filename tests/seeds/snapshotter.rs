//! The snapshot controller and the driver's snapshotter: snapshots get ready late, and go.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    core::{Core, DRIVER},
    dice::Dice,
    ledger::text,
};

const GROUP: &str = "snapshot.storage.k8s.io";

/// The kinds of snapshots, as their controller's manifests bring them.
pub(crate) fn install(core: &Core) {
    for (kind, scope) in [("VolumeSnapshot", "Namespaced"), ("VolumeSnapshotContent", "Cluster")] {
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{GROUP}")},
            "spec": {
                "group": GROUP, "scope": scope,
                "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}],
            },
        });
        core.api.create(&definition).unwrap();
    }
}

/// Works until the seed's end.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "snapshotter");
    loop {
        let lag = if core.is_healed() { 1_500 } else { core.plan.lag };
        sleep(dice.stretch(20..lag)).await;
        core.observe();
        for snapshot in core.api.list("VolumeSnapshot", "") {
            promote(&core, &dice, &snapshot);
        }
        clear(&core);
        core.observe();
    }
}

/// Brings a snapshot a step further: to its content, then to its readiness.
fn promote(core: &Core, dice: &Dice, snapshot: &Value) {
    let name = text(snapshot, "/metadata/name");
    if !snapshot["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let content = format!("snapcontent-{}", text(snapshot, "/metadata/uid"));
    if text(snapshot, "/status/boundVolumeSnapshotContentName").is_empty() {
        if let Some(handle) = cut(core, snapshot) {
            core.api.create(&content_of(snapshot, &content, &handle)).unwrap();
            status(core, snapshot, &json!({"boundVolumeSnapshotContentName": content}));
        }
        return;
    }
    if snapshot["status"]["readyToUse"] != true && (core.is_healed() || dice.percent(40)) {
        status(core, snapshot, &json!({"readyToUse": true, "restoreSize": "1Gi"}));
        core.ledger.log(&format!("snapshotter: {name} is ready"));
    }
}

fn status(core: &Core, snapshot: &Value, status: &Value) {
    let (namespace, name) = (namespace_of(snapshot), text(snapshot, "/metadata/name"));
    let _ = core.api.merge("VolumeSnapshot", namespace, name, &json!({"status": status}));
}

fn namespace_of(snapshot: &Value) -> &str {
    text(snapshot, "/metadata/namespace")
}

/// Cuts the snapshot at the driver, where its source is bound: its handle there.
fn cut(core: &Core, snapshot: &Value) -> Option<String> {
    let claim = text(snapshot, "/spec/source/persistentVolumeClaimName");
    let claim = core.api.get("PersistentVolumeClaim", namespace_of(snapshot), claim)?;
    let volume = core.api.get("PersistentVolume", "", text(&claim, "/spec/volumeName"))?;
    let ours = volume["spec"]["csi"]["driver"] == DRIVER
        && text(&claim, "/status/phase") == "Bound"
        && claim["metadata"]["deletionTimestamp"].is_null();
    let handle = format!("snap-{}", text(snapshot, "/metadata/uid"));
    ours.then(|| core.storage.cut(&handle))?;
    core.ledger.log(&format!("storage: {handle} is cut"));
    Some(handle)
}

fn content_of(snapshot: &Value, name: &str, handle: &str) -> Value {
    let metadata = &snapshot["metadata"];
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "VolumeSnapshotContent", "metadata": {"name": name},
        "spec": {
            "driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": "some"},
            "volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": metadata["namespace"],
                                  "name": metadata["name"], "uid": metadata["uid"]},
        },
        "status": {"snapshotHandle": handle, "readyToUse": true},
    })
}

/// What no VolumeSnapshot stands for any more goes, at the driver too.
fn clear(core: &Core) {
    for content in core.api.list("VolumeSnapshotContent", "") {
        let reference = &content["spec"]["volumeSnapshotRef"];
        let (namespace, name) = (text(reference, "/namespace"), text(reference, "/name"));
        let snapshot = core.api.get("VolumeSnapshot", namespace, name);
        let stands =
            snapshot.is_some_and(|snapshot| snapshot["metadata"]["uid"] == reference["uid"]);
        if !stands {
            let (name, handle) =
                (text(&content, "/metadata/name"), text(&content, "/status/snapshotHandle"));
            core.storage.uncut(handle);
            core.ledger.log(&format!("storage: {handle} is no more"));
            core.api.delete("VolumeSnapshotContent", "", name).unwrap();
        }
    }
}
