//! The cluster's own controllers: binding, releasing, protection of claims.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{
    apiserver::ApiServer,
    binder::{self, Action, Settings},
};
use tokio::time::sleep;

use super::{
    core::{self, Core, DRIVER, NAMESPACE},
    dice::Dice,
    ledger::text,
    nodes,
};

/// The finalizer of a claim that is in use.
pub(crate) const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";

/// The node that the scheduler chose for a claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Works until the seed's end.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "cluster");
    loop {
        let lag = if core.is_healed() { 1_500 } else { core.plan.lag };
        sleep(dice.stretch(20..lag)).await;
        core.observe();
        step(&core, &dice);
        core.observe();
    }
}

/// Does whatever is to be done now.
fn step(core: &Core, dice: &Dice) {
    let api = &core.api;
    empty_namespace(core);
    unprotect_claims(api);
    schedule(core, dice);
    claim_named_volumes(api);
    release_unneeded(api);
    let cluster = binder::Cluster {
        claims: parsed(api.list("PersistentVolumeClaim", NAMESPACE)),
        volumes: parsed(api.list("PersistentVolume", "")),
        classes: parsed(api.list("StorageClass", "")),
    };
    for action in binder::plan(&cluster, &Settings::default()) {
        carry_out(core, action);
    }
}

fn parsed<T: serde::de::DeserializeOwned>(objects: Vec<Value>) -> Vec<Arc<T>> {
    objects.into_iter().map(|object| Arc::new(serde_json::from_value(object).unwrap())).collect()
}

fn carry_out(core: &Core, action: Action) {
    let merge = |kind: &str, namespace: &str, name: &str, patch: &Value| {
        // A change that came in between is looked at the next time.
        if core.api.merge(kind, namespace, name, patch).is_ok() {
            core.ledger.tell(&format!("cluster: {kind} {name} {}", brief(patch)));
        }
    };
    match action {
        Action::Claim { namespace, name, patch, .. } => {
            merge("PersistentVolumeClaim", &namespace, &name, &patch);
        }
        Action::Volume { name, patch } => merge("PersistentVolume", "", &name, &patch),
        Action::Release { name, .. } => merge("PersistentVolume", "", &name, &phase("Released")),
        Action::Lose { namespace, name, .. } => {
            merge("PersistentVolumeClaim", &namespace, &name, &phase("Lost"));
        }
    }
}

fn phase(phase: &str) -> Value {
    json!({"status": {"phase": phase}})
}

/// A patch in a word, for the trace.
fn brief(patch: &Value) -> String {
    let (phase, volume) = (text(patch, "/status/phase"), text(patch, "/spec/volumeName"));
    format!("{phase}{volume}")
}

/// A namespace that is being deleted goes with all that is in it, and comes again.
fn empty_namespace(core: &Core) {
    let api = &core.api;
    let Some(namespace) = api.get("Namespace", "", NAMESPACE) else { return namespace_again(core) };
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    for kind in ["PersistentVolumeClaim", "Secret", "VolumeSnapshot"] {
        for object in api.list(kind, NAMESPACE) {
            if object["metadata"]["deletionTimestamp"].is_null() {
                let _ = api.delete(kind, NAMESPACE, text(&object, "/metadata/name"));
            }
        }
    }
    let is_empty = |kind: &str| api.list(kind, NAMESPACE).is_empty();
    if is_empty("PersistentVolumeClaim") && is_empty("VolumeSnapshot") {
        let none = json!({"metadata": {"finalizers": null}});
        let _ = api.merge("Namespace", "", NAMESPACE, &none);
    }
}

fn namespace_again(core: &Core) {
    core::namespace(&core.api);
    core.ledger.tell("cluster: the namespace is gone, and comes again");
}

/// Claims that wait for their first consumer have one, for which a node is chosen.
fn schedule(core: &Core, dice: &Dice) {
    let nodes = nodes::standing(&core.api);
    for claim in core.api.list("PersistentVolumeClaim", NAMESPACE) {
        let class = core.api.get("StorageClass", "", text(&claim, "/spec/storageClassName"));
        let waits = class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
            && claim["metadata"]["annotations"][SELECTED_NODE].is_null()
            && text(&claim, "/spec/volumeName").is_empty();
        if waits {
            let (name, node) = (text(&claim, "/metadata/name"), dice.pick(&nodes));
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            let _ = core.api.merge("PersistentVolumeClaim", NAMESPACE, name, &patch);
            core.ledger.tell(&format!("scheduler: {name} is for {node}"));
        }
    }
}

/// Claims that are being deleted are in no Pod's use here.
fn unprotect_claims(api: &ApiServer) {
    for claim in api.list("PersistentVolumeClaim", NAMESPACE) {
        let finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let left: Vec<Value> =
            finalizers.iter().filter(|it| *it != CLAIM_IN_USE).cloned().collect();
        if claim["metadata"]["deletionTimestamp"].is_string() && left.len() < finalizers.len() {
            let patch = json!({"metadata": {"finalizers": left}});
            let _ = api.merge(
                "PersistentVolumeClaim",
                NAMESPACE,
                text(&claim, "/metadata/name"),
                &patch,
            );
        }
    }
}

/// A volume that a claim's user has named becomes the claim's, if it is nobody's.
fn claim_named_volumes(api: &ApiServer) {
    for claim in api.list("PersistentVolumeClaim", NAMESPACE) {
        let named = text(&claim, "/spec/volumeName");
        let Some(volume) = api.get("PersistentVolume", "", named) else { continue };
        if volume["spec"]["claimRef"].is_null() {
            let metadata = &claim["metadata"];
            let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]});
            let _ =
                api.merge("PersistentVolume", "", named, &json!({"spec": {"claimRef": reference}}));
        }
    }
}

/// A volume made for a claim that has found another is not needed: `syncVolume` in Kubernetes'
/// PV controller releases it.
fn release_unneeded(api: &ApiServer) {
    for volume in api.list("PersistentVolume", "") {
        let reference = &volume["spec"]["claimRef"];
        let Some(claim) = api.get("PersistentVolumeClaim", NAMESPACE, text(reference, "/name"))
        else {
            continue;
        };
        let elsewhere = text(&claim, "/spec/volumeName");
        let unneeded = claim["metadata"]["uid"] == reference["uid"]
            && !elsewhere.is_empty()
            && elsewhere != text(&volume, "/metadata/name")
            && text(&volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by") == DRIVER
            && text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
            && text(&volume, "/status/phase") != "Released";
        if unneeded {
            let _ = api.merge(
                "PersistentVolume",
                "",
                text(&volume, "/metadata/name"),
                &phase("Released"),
            );
        }
    }
}
