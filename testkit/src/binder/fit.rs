//! Whether a volume is for a claim, and whether it suits it: the checks of the PersistentVolume controller.

use std::collections::BTreeMap;

use go_fmt::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::api::resource::Quantity as Written,
};
use kube::ResourceExt as _;

/// The class of a claim or a volume under its older name, which wins over the field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The mode of a volume that does not say one.
const FILESYSTEM: &str = "Filesystem";

/// The volume a claim names.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref();
    name.filter(|name| !name.is_empty())
}

/// The class that a claim names; empty where it names none.
pub(super) fn class_name(claim: &PersistentVolumeClaim) -> &str {
    let field = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    claim.annotations().get(BETA_CLASS).or(field).map(String::as_str).unwrap_or_default()
}

fn class_of_volume(volume: &PersistentVolume) -> &str {
    let field = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    volume.annotations().get(BETA_CLASS).or(field).map(String::as_str).unwrap_or_default()
}

/// The claim that a volume is for.
pub(super) fn reference(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The UID of the claim that a volume is for; `None` where it is reserved by name alone.
pub(super) fn claim_uid(volume: &PersistentVolume) -> Option<&str> {
    reference(volume)?.uid.as_deref().filter(|uid| !uid.is_empty())
}

/// Whether a volume's `claimRef` names this claim, with its UID or without one.
pub(super) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    reference(volume).is_some_and(|reference| {
        reference.namespace == claim.metadata.namespace && reference.name == claim.metadata.name
    }) && claim_uid(volume).is_none_or(|uid| claim.metadata.uid.as_deref() == Some(uid))
}

/// Whether the claim, which names no volume, may be bound to the volume that is for it.
pub(super) fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.metadata.deletion_timestamp.is_none()
        && is_large_enough(volume, claim)
        && is_of_mode(volume, claim)
        && has_access_modes(volume, claim)
}

/// Whether a free volume may be bound to the claim that asks for it.
pub(super) fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    suits(volume, claim)
        && class_of_volume(volume) == class_name(claim)
        && attributes_of_volume(volume) == attributes_of_claim(claim)
}

fn attributes_of_volume(volume: &PersistentVolume) -> &str {
    let name = volume.spec.as_ref().and_then(|it| it.volume_attributes_class_name.as_deref());
    name.unwrap_or_default()
}

fn attributes_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let name = claim.spec.as_ref().and_then(|it| it.volume_attributes_class_name.as_deref());
    name.unwrap_or_default()
}

fn is_large_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    match (storage(capacity), storage(requests)) {
        (Some(has), Some(wants)) => has >= wants,
        (None, Some(wants)) => wants <= Quantity::from_bytes(0),
        (_, None) => true,
    }
}

fn storage(amounts: Option<&BTreeMap<String, Written>>) -> Option<Quantity> {
    Quantity::parse(&amounts?.get("storage")?.0).ok()
}

fn is_of_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let wants = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    has.unwrap_or(FILESYSTEM) == wants.unwrap_or(FILESYSTEM)
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref());
    let wants = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref());
    wants.unwrap_or_default().iter().all(|mode| has.unwrap_or_default().contains(mode))
}
