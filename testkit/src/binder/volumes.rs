//! What is to be done about a volume: the volume's side of the PersistentVolume controller (`syncVolume`, and the
//! part of `bind` that writes the volume).

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    Action, BOUND_BY_CONTROLLER, PROVISIONED_BY,
    book::{Book, Item},
    change, claims,
    fit::{claim_uid, reference, volume_name},
    upkeep,
};

/// What is to be done about a volume.
pub(super) fn sync(volume: &PersistentVolume, book: &Book) -> Option<Action> {
    let annotations = volume.annotations();
    if let Some(patch) = upkeep::migration(annotations, annotations.get(PROVISIONED_BY)) {
        return Some(change(volume, patch));
    }
    if claim_uid(volume).is_none() {
        return match claim_to_bind(volume, book) {
            Some(claim) => Some(point(volume, claim)),
            None => set_phase(volume, "Available"),
        };
    }
    let Some(claim) = book.claim_of(volume) else {
        return reference(volume).and_then(|reference| release(volume, reference));
    };
    match volume_name(claim) {
        Some(name) if name == volume.name_any() => set_phase(volume, "Bound"),
        Some(_) => unbind(volume),
        None if claim_to_bind(volume, book).is_some() => set_phase(volume, "Bound"),
        None => None,
    }
}

/// The claim that is to be bound to the volume.
fn claim_to_bind<'a>(
    volume: &PersistentVolume,
    book: &'a Book,
) -> Option<&'a PersistentVolumeClaim> {
    let waits = |claim: &&PersistentVolumeClaim| {
        let found = book.volume_for(claim).map(kube::ResourceExt::name_any);
        !claims::is_bound(claim) && volume_name(claim).is_none() && found == Some(volume.name_any())
    };
    let mut naming = book.claims_naming(volume);
    book.claim_of(volume)
        .filter(waits)
        .or_else(|| naming.find(|claim| claims::may_bind(claim, volume)))
}

/// Whether the volume's part of a binding is done, so that the claim's may follow.
pub(super) fn is_ready_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_uid(volume).is_some()
        && claim_uid(volume) == claim.metadata.uid.as_deref()
        && phase(volume) == Some("Bound")
}

/// The volume's phase.
pub(super) fn phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}

fn set_phase(volume: &PersistentVolume, wanted: &str) -> Option<Action> {
    let patch = json!({"status": {"phase": wanted}});
    (phase(volume) != Some(wanted)).then(|| change(volume, patch))
}

/// Points the volume at the claim, with the annotation of the controller where nobody else had done so.
fn point(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Action {
    let reference_to = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
    });
    let mut patch = json!({"spec": {"claimRef": reference_to}});
    if let (None, Some(patch)) = (reference(volume), patch.as_object_mut()) {
        let metadata = json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
        patch.insert("metadata".to_owned(), metadata);
    }
    change(volume, patch)
}

/// Releases a volume whose claim is gone, once that is sure.
fn release(volume: &PersistentVolume, claim: &ObjectReference) -> Option<Action> {
    let claim = claim.clone();
    let item = Item::Claim(claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    let released = change(volume, json!({"status": {"phase": "Released"}}));
    (!is_released(volume)).then_some(Action { unless: Some((item, claim.uid)), ..released })
}

fn is_released(volume: &PersistentVolume) -> bool {
    matches!(phase(volume), Some("Released" | "Failed"))
}

/// A volume whose claim is bound to another one. If it was provisioned for the claim and its policy is
/// Delete, it is released. Otherwise its `claimRef` goes, or only the UID in it where somebody else than
/// the controller had written the reference.
fn unbind(volume: &PersistentVolume) -> Option<Action> {
    let policy = volume.spec.as_ref().and_then(|it| it.persistent_volume_reclaim_policy.as_deref());
    let is_made = volume.annotations().contains_key(PROVISIONED_BY);
    if is_made && policy == Some("Delete") {
        let released = json!({"status": {"phase": "Released"}});
        return (!is_released(volume)).then(|| change(volume, released));
    }
    let patch = if volume.annotations().contains_key(BOUND_BY_CONTROLLER) {
        json!({
            "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}},
            "spec": {"claimRef": null},
        })
    } else {
        json!({"spec": {"claimRef": {"uid": null}}})
    };
    Some(change(volume, patch))
}
