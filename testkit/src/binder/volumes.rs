//! What is to be done about a volume: the volume's side of the PersistentVolume controller (`syncVolume`). What binds it
//! is written with its claim (`claims`).

use serde_json::{Value, json};

use super::{
    Action, BOUND_BY_CONTROLLER, PROVISIONED_BY,
    book::{Book, VOLUME, claim_named},
    change,
    fit::{annotation, claim_uid, volume_name},
    phase, upkeep,
};
use crate::apiserver::tree::text;

/// What is to be done about a volume.
pub(super) fn sync(volume: &Value, book: &Book) -> Option<Action> {
    let mended = upkeep::migration(VOLUME, volume, annotation(volume, PROVISIONED_BY));
    if mended.is_some() {
        return mended;
    }
    if claim_uid(volume).is_empty() {
        return phase(VOLUME, volume, &json!({"phase": "Available"}));
    }
    // Released only once it is sure that the claim is gone.
    let Some(claim) = book.claim_of(volume) else {
        let gone = (claim_named(volume), Some(claim_uid(volume).to_owned()));
        return release(volume).map(|released| Action { unless: Some(gone), ..released });
    };
    match volume_name(claim) {
        "" => None,
        name if name == text(volume, &["metadata", "name"]) => {
            phase(VOLUME, volume, &json!({"phase": "Bound"}))
        }
        _ => unbind(volume),
    }
}

fn release(volume: &Value) -> Option<Action> {
    let has_failed = text(volume, &["status", "phase"]) == "Failed";
    phase(VOLUME, volume, &json!({"phase": "Released"})).filter(|_| !has_failed)
}

/// A volume whose claim is bound to another one. If it was provisioned for the claim and its policy is
/// Delete, it is released. Otherwise its `claimRef` goes, or only the UID in it where somebody else than
/// the controller had written the reference.
fn unbind(volume: &Value) -> Option<Action> {
    let policy = text(volume, &["spec", "persistentVolumeReclaimPolicy"]);
    if annotation(volume, PROVISIONED_BY).is_some() && policy == "Delete" {
        return release(volume);
    }
    let patch = match annotation(volume, BOUND_BY_CONTROLLER) {
        Some(_) => json!({
            "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}},
            "spec": {"claimRef": null},
        }),
        None => json!({"spec": {"claimRef": {"uid": null}}}),
    };
    Some(change(VOLUME, volume, patch))
}
