//! What is to be done about a claim: the claim's side of the PersistentVolume controller (`syncClaim`), and the writes
//! that bind the two (`bind`).

use serde_json::{Value, json};

use super::{
    Action, BETA_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, MIGRATED_TO, PROVISIONER,
    SELECTED_NODE,
    book::{Book, CLAIM, Item, VOLUME},
    change,
    fit::{annotation, claim_uid, class_of, is_for, is_free, satisfies, uid, volume_name},
    phase, upkeep,
};
use crate::apiserver::tree::{at, set, text};

/// What is to be done about a claim.
pub(super) fn sync(claim: &Value, book: &Book) -> Option<Action> {
    let named = annotation(claim, PROVISIONER).or_else(|| annotation(claim, BETA_PROVISIONER));
    let mended = upkeep::migration(CLAIM, claim, named);
    mended.or_else(|| match (is_bound(claim), volume_name(claim)) {
        (true, "") => set_phase(claim, "Lost"),
        (true, name) => sync_bound(claim, name, book),
        (false, "") => sync_waiting(claim, book),
        (false, _) => sync_named(claim, book),
    })
}

/// Whether the annotation says that the claim has been bound.
fn is_bound(claim: &Value) -> bool {
    annotation(claim, BIND_COMPLETED).is_some()
}

/// Whether a claim that names this volume may be bound to it.
fn may_bind(claim: &Value, volume: &Value) -> bool {
    match is_bound(claim) {
        true => is_free(volume) || claim_uid(volume) == uid(claim),
        false if is_free(volume) => satisfies(volume, claim),
        false => is_for(volume, claim),
    }
}

/// A claim that has been bound stays bound, or is lost.
fn sync_bound(claim: &Value, name: &str, book: &Book) -> Option<Action> {
    match book.volume_of(claim) {
        Some(volume) if may_bind(claim, volume) => bind(claim, volume),
        Some(_) => set_phase(claim, "Lost"),
        // Lost only once it is sure that the volume is gone.
        None => set_phase(claim, "Lost")
            .map(|lost| Action { unless: Some((Item::new(VOLUME, "", name), None)), ..lost }),
    }
}

/// A claim that names a volume is bound to that one or waits.
fn sync_named(claim: &Value, book: &Book) -> Option<Action> {
    match book.volume_of(claim) {
        Some(volume) if may_bind(claim, volume) => bind(claim, volume),
        Some(_) if annotation(claim, BOUND_BY_CONTROLLER).is_some() => None,
        _ => set_phase(claim, "Pending"),
    }
}

/// A claim that names no volume is bound to the one that is for it or to a free one, or calls its provisioner. For
/// claims whose class binds late only the scheduler looks for a free one.
fn sync_waiting(claim: &Value, book: &Book) -> Option<Action> {
    let class = book.class_of(claim);
    let is_late =
        class.is_some_and(|it| text(it, &["volumeBindingMode"]) == "WaitForFirstConsumer");
    let free = || book.free_volume(claim).filter(|_| !is_late);
    if let Some(volume) = book.volume_for(claim).or_else(free) {
        return bind(claim, volume);
    }
    if class_of(claim).is_empty() || is_late && annotation(claim, SELECTED_NODE).is_none() {
        return set_phase(claim, "Pending");
    }
    call_provisioner(claim, text(class?, &["provisioner"]))
}

/// The next of the four writes by which the two are bound.
fn bind(claim: &Value, volume: &Value) -> Option<Action> {
    if claim_uid(volume) != uid(claim) {
        return Some(point(volume, claim));
    }
    let status = json!({
        "phase": "Bound",
        "accessModes": at(volume, &["spec", "accessModes"]),
        "capacity": at(volume, &["spec", "capacity"]),
    });
    phase(VOLUME, volume, &json!({"phase": "Bound"}))
        .or_else(|| name(claim, volume))
        .or_else(|| phase(CLAIM, claim, &status))
}

/// Points the volume at the claim, with the annotation of the controller where nobody else had done so.
fn point(volume: &Value, claim: &Value) -> Action {
    let member = |member| at(claim, &["metadata", member]);
    let mut patch = json!({"spec": {"claimRef": {
        "apiVersion": "v1", "kind": CLAIM,
        "namespace": member("namespace"), "name": member("name"), "uid": member("uid"),
    }}});
    if is_free(volume) {
        set(&mut patch, &["metadata", "annotations", BOUND_BY_CONTROLLER], "yes".into());
    }
    change(VOLUME, volume, patch)
}

/// Names the volume in the claim, with the annotation of the controller where nobody else had done so.
fn name(claim: &Value, volume: &Value) -> Option<Action> {
    let is_named = !volume_name(claim).is_empty();
    let mut annotations = json!({BIND_COMPLETED: "yes"});
    if !is_named {
        set(&mut annotations, &[BOUND_BY_CONTROLLER], "yes".into());
    }
    let volume = at(volume, &["metadata", "name"]);
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}});
    (!is_named || !is_bound(claim)).then(|| change(CLAIM, claim, patch))
}

/// The status of a claim without a volume.
fn set_phase(claim: &Value, wanted: &str) -> Option<Action> {
    phase(CLAIM, claim, &json!({"phase": wanted, "accessModes": null, "capacity": null}))
}

/// Annotates a claim for its class's provisioner. The older annotation alone is not looked at.
fn call_provisioner(claim: &Value, of_class: &str) -> Option<Action> {
    let provisioner = upkeep::provisioner(of_class)?;
    let patch = json!({"metadata": {"annotations": {
        PROVISIONER: provisioner, BETA_PROVISIONER: provisioner, MIGRATED_TO: null,
    }}});
    (annotation(claim, PROVISIONER) != Some(provisioner)).then(|| change(CLAIM, claim, patch))
}
