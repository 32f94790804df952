//! Whether a volume is for a claim, and whether it suits it: the checks of the PersistentVolume controller.

use go_fmt::quantity::Quantity;
use serde_json::Value;

use super::book::{CLAIM, Item, claim_named};
use crate::apiserver::tree::{at, items, text};

/// The class of a claim or a volume under its older name, which wins over the field.
pub const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// An annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, &["metadata", "annotations", key]).as_str()
}

/// The class that a claim or a volume names; empty where it names none.
pub fn class_of(object: &Value) -> &str {
    annotation(object, BETA_CLASS).unwrap_or_else(|| text(object, &["spec", "storageClassName"]))
}

/// The volume that a claim names; empty where it names none.
pub(super) fn volume_name(claim: &Value) -> &str {
    text(claim, &["spec", "volumeName"])
}

/// Whether a volume is nobody's.
pub(super) fn is_free(volume: &Value) -> bool {
    at(volume, &["spec", "claimRef"]).is_null()
}

/// The UID of the claim that a volume is for; empty where it is reserved by name alone.
pub(super) fn claim_uid(volume: &Value) -> &str {
    text(volume, &["spec", "claimRef", "uid"])
}

/// The object's UID.
pub(super) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// Whether a volume's `claimRef` names this claim, with its UID or without one.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    claim_named(volume) == Item::of(CLAIM, claim) && ["", uid(claim)].contains(&claim_uid(volume))
}

/// Whether the claim, which names no volume, may be bound to the volume that is for it.
pub(super) fn suits(volume: &Value, claim: &Value) -> bool {
    let wanted = items(claim, &["spec", "accessModes"]);
    text(volume, &["metadata", "deletionTimestamp"]).is_empty()
        && is_large_enough(volume, claim)
        && mode(volume) == mode(claim)
        && wanted.iter().all(|mode| items(volume, &["spec", "accessModes"]).contains(mode))
}

/// Whether a free volume may be bound to the claim that asks for it.
pub(super) fn satisfies(volume: &Value, claim: &Value) -> bool {
    let attributes = |object| text(object, &["spec", "volumeAttributesClassName"]);
    suits(volume, claim)
        && class_of(volume) == class_of(claim)
        && attributes(volume) == attributes(claim)
}

fn is_large_enough(volume: &Value, claim: &Value) -> bool {
    let bytes = |object, path: &[&str]| Quantity::parse(text(object, path)).ok();
    let has = bytes(volume, &["spec", "capacity", "storage"]);
    let wants = bytes(claim, &["spec", "resources", "requests", "storage"]);
    wants.is_none_or(|wants| has.unwrap_or_else(|| Quantity::from_bytes(0)) >= wants)
}

/// How the volume is used.
fn mode(object: &Value) -> &str {
    Some(text(object, &["spec", "volumeMode"]))
        .filter(|mode| !mode.is_empty())
        .unwrap_or("Filesystem")
}
