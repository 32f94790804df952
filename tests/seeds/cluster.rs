//! The cluster's own controllers: binding, releasing, protection of claims and volumes, scheduling.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{
    apiserver::ApiServer,
    binder::{Action, Book, CLAIM, CLASS, Settings, VOLUME, class_of},
};
use tokio::time::sleep;

use super::{
    core::{self, Core, NAMESPACE, NAMESPACES},
    dice::Dice,
    ledger::text,
    nodes, users,
};

/// The finalizer of a claim that is in use.
pub(crate) const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";

/// The finalizer of a volume that may be bound.
const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

/// The node that the scheduler chose for a claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// How many writes the binder makes at most before others get a turn.
const WRITES_AT_ONCE: usize = 4;

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
    empty_namespace(core);
    unprotect_claims(&core.api);
    if core.plan.protects {
        protect_volumes(&core.api);
    }
    schedule(core, dice);
    for _ in 0..WRITES_AT_ONCE {
        let changes = changes(&core.api);
        let last = changes.is_empty() || dice.percent(15);
        for change in &changes {
            carry_out(core, change);
        }
        if last {
            return;
        }
        core.observe();
    }
}

/// What binds and releases, but for claims of namespaces where another such controller works.
fn changes(api: &ApiServer) -> Vec<Action> {
    let mut book = Book::default();
    for kind in [VOLUME, CLAIM, CLASS] {
        let objects = api.objects(kind).into_iter();
        let minded =
            objects.filter(|it| kind != CLAIM || NAMESPACES.contains(&it.meta("namespace")));
        minded.for_each(|object| book.put(kind, object));
    }
    book.due(&Settings::default())
}

fn carry_out(core: &Core, Action { item, patch, .. }: &Action) {
    let (kind, name) = (item.kind, &item.name);
    // A change that came in between is looked at the next time.
    if core.api.merge(kind, &item.namespace, name, patch).is_ok() {
        core.ledger.log(&format!("cluster: {kind} {name} {}", brief(patch)));
    }
}

/// A patch in a word, for the trace.
fn brief(patch: &Value) -> String {
    let word = |path| text(patch, path).to_owned();
    let claimed = patch["spec"].get("claimRef").map(|_| "claimRef".to_owned());
    let words = [word("/status/phase"), word("/spec/volumeName"), claimed.unwrap_or_default()];
    words.concat()
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
    core.ledger.log("cluster: the namespace is gone, and comes again");
}

/// Claims that wait for their first consumer have one, for which a node is chosen.
fn schedule(core: &Core, dice: &Dice) {
    let nodes = nodes::standing(&core.api);
    for claim in core.api.objects("PersistentVolumeClaim") {
        let claim = claim.value();
        let class = core.api.get("StorageClass", "", class_of(claim));
        let late = class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
        let waits = match claim["metadata"]["annotations"][SELECTED_NODE].as_str() {
            None => late,
            // Its Pods went with the node, and come again.
            Some(node) => core.plan.local && !nodes.contains(&node) && dice.percent(20),
        };
        let zones = users::zones(core, class_of(claim));
        let nodes: Vec<&str> = nodes.iter().copied().filter(|node| zones.contains(node)).collect();
        if waits && text(claim, "/spec/volumeName").is_empty() && !nodes.is_empty() {
            let (name, node) = (text(claim, "/metadata/name"), dice.pick(&nodes));
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            let namespace = text(claim, "/metadata/namespace");
            let _ = core.api.merge("PersistentVolumeClaim", namespace, name, &patch);
            core.ledger.log(&format!("scheduler: {name} is for {node}"));
        }
    }
}

/// Claims that are being deleted are in no Pod's use here.
fn unprotect_claims(api: &ApiServer) {
    for claim in api.objects("PersistentVolumeClaim") {
        let deleted = claim.value()["metadata"]["deletionTimestamp"].is_string();
        if deleted && NAMESPACES.contains(&claim.meta("namespace")) {
            take_off("PersistentVolumeClaim", claim.value(), CLAIM_IN_USE, api);
        }
    }
}

/// Volumes stay while they are bound.
fn protect_volumes(api: &ApiServer) {
    for volume in api.objects("PersistentVolume") {
        let volume = volume.value();
        let finalizers = volume["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let is_protected = finalizers.iter().any(|it| it == VOLUME_IN_USE);
        if volume["metadata"]["deletionTimestamp"].is_string() {
            if text(volume, "/status/phase") != "Bound" {
                take_off("PersistentVolume", volume, VOLUME_IN_USE, api);
            }
        } else if !is_protected {
            let all = [finalizers, vec![json!(VOLUME_IN_USE)]].concat();
            let patch = json!({"metadata": {"finalizers": all}});
            let _ = api.merge("PersistentVolume", "", text(volume, "/metadata/name"), &patch);
        }
    }
}

fn take_off(kind: &str, object: &Value, finalizer: &str, api: &ApiServer) {
    let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let left: Vec<Value> = finalizers.iter().filter(|it| *it != finalizer).cloned().collect();
    if left.len() < finalizers.len() {
        let (namespace, name) =
            (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let _ = api.merge(kind, namespace, name, &json!({"metadata": {"finalizers": left}}));
    }
}
