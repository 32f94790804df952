//! What is to be done about a claim: the claim's side of the PersistentVolume controller (`syncClaim`). The volume's
//! side of a binding is written first (`volumes`).

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::{
    Action, BETA_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, MIGRATED_TO, PROVISIONER,
    SELECTED_NODE,
    book::{Book, Item},
    change,
    fit::{claim_uid, class_name, is_for, reference, satisfies, volume_name},
    upkeep, volumes,
};

/// What is to be done about a claim.
pub(super) fn sync(claim: &PersistentVolumeClaim, book: &Book) -> Option<Action> {
    let annotations = claim.annotations();
    let named = annotations.get(PROVISIONER).or_else(|| annotations.get(BETA_PROVISIONER));
    if let Some(patch) = upkeep::migration(annotations, named) {
        return Some(change(claim, patch));
    }
    match (is_bound(claim), volume_name(claim)) {
        (true, None) => set_phase(claim, "Lost"),
        (true, Some(name)) => sync_bound(claim, name, book),
        (false, Some(name)) => sync_named(claim, name, book),
        (false, None) => sync_waiting(claim, book),
    }
}

/// Whether the annotation says that the claim has been bound.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().contains_key(BIND_COMPLETED)
}

/// Whether a claim that names this volume may be bound to it.
pub(super) fn may_bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    match reference(volume) {
        None => is_bound(claim) || satisfies(volume, claim),
        Some(_) if is_bound(claim) => claim_uid(volume) == claim.metadata.uid.as_deref(),
        Some(_) => is_for(volume, claim),
    }
}

/// A claim that has been bound stays bound, or is lost.
fn sync_bound(claim: &PersistentVolumeClaim, name: &str, book: &Book) -> Option<Action> {
    match book.volume(&Item::Volume(name.to_owned())) {
        Some(volume) if may_bind(claim, volume) => bind(claim, volume),
        Some(_) => set_phase(claim, "Lost"),
        // Lost only once it is sure that the volume is gone.
        None => set_phase(claim, "Lost")
            .map(|lost| Action { unless: Some((Item::Volume(name.to_owned()), None)), ..lost }),
    }
}

/// A claim that names a volume is bound to that one or waits.
fn sync_named(claim: &PersistentVolumeClaim, name: &str, book: &Book) -> Option<Action> {
    match book.volume(&Item::Volume(name.to_owned())) {
        Some(volume) if may_bind(claim, volume) => bind(claim, volume),
        Some(_) if claim.annotations().contains_key(BOUND_BY_CONTROLLER) => None,
        _ => set_phase(claim, "Pending"),
    }
}

/// A claim that names no volume is bound to the one that is for it, or calls its provisioner.
fn sync_waiting(claim: &PersistentVolumeClaim, book: &Book) -> Option<Action> {
    match book.volume_for(claim) {
        Some(volume) => bind(claim, volume),
        None => call_provisioner(claim, book),
    }
}

/// The claim's part of a binding, once the volume's is done: its volume's name, and its status.
fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Action> {
    if !volumes::is_ready_for(volume, claim) {
        return None;
    }
    let named = volume_name(claim).is_some();
    if !named || !is_bound(claim) {
        let mut patch = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
        if !named {
            patch = json!({
                "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
                "spec": {"volumeName": volume.name_any()},
            });
        }
        return Some(change(claim, patch));
    }
    let spec = volume.spec.as_ref();
    let status = json!({
        "phase": "Bound",
        "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
        "capacity": spec.and_then(|spec| spec.capacity.clone()),
    });
    let patch = json!({"status": status});
    (phase(claim) != Some("Bound")).then(|| change(claim, patch))
}

fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

/// The status of a claim without a volume.
fn set_phase(claim: &PersistentVolumeClaim, wanted: &str) -> Option<Action> {
    let patch = json!({"status": {"phase": wanted, "accessModes": null, "capacity": null}});
    (phase(claim) != Some(wanted)).then(|| change(claim, patch))
}

/// Annotates a claim for its class's provisioner; of a late-binding class once it has a node.
fn call_provisioner(claim: &PersistentVolumeClaim, book: &Book) -> Option<Action> {
    if class_name(claim).is_empty() {
        return set_phase(claim, "Pending");
    }
    let class = book.class_of(claim)?;
    if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
        && !claim.annotations().contains_key(SELECTED_NODE)
    {
        return set_phase(claim, "Pending");
    }
    let provisioner = upkeep::provisioner(&class.provisioner)?;
    let mut missing = Map::new();
    // The older annotation alone is not looked at.
    if claim.annotations().get(PROVISIONER).map(String::as_str) != Some(provisioner) {
        missing.insert(PROVISIONER.to_owned(), provisioner.into());
        missing.insert(BETA_PROVISIONER.to_owned(), provisioner.into());
        if claim.annotations().contains_key(MIGRATED_TO) {
            missing.insert(MIGRATED_TO.to_owned(), Value::Null);
        }
    }
    let patch = json!({"metadata": {"annotations": missing}});
    (!missing.is_empty()).then(|| change(claim, patch))
}
