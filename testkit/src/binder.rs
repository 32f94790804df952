//! A small PV binder: what kube-controller-manager does to claims and volumes, where there is none.
//!
//! The decisions are those of the PersistentVolume controller: claims are bound to the volume whose `claimRef` names
//! them, to the free one that they name, or, where they name none and their class does not bind late, to a free one
//! that suits; volumes of gone claims are released, claims of gone volumes are lost, and claims of dynamic classes get
//! the annotation that calls their provisioner. Like that controller it makes no difference between live claims and
//! those that are being deleted. Nothing is released or lost without a read: what a watch did not show is read first,
//! because a released volume is deleted. Missing are: selectors of claims, which find no free volume, default classes,
//! events, Pods, recycling, and scheduling (but for a fixed node).

mod book;
mod claims;
mod fit;
mod upkeep;
mod volumes;
mod work;

use serde_json::{Value, json};

use crate::apiserver::tree;

pub use self::{
    book::{Book, CLAIM, CLASS, Item, VOLUME},
    fit::{BETA_CLASS, annotation, class_of},
    work::run,
};

/// Says that a claim is bound, or has been (`pkg/controller/volume/persistentvolume` in Kubernetes, as the others).
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Calls a claim's provisioner.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

/// What the binder does beyond binding.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The labels of the claims and volumes it minds; all where there is none.
    pub selector: Option<String>,
    /// Whether it keeps the finalizers `kubernetes.io/pvc-protection` and `kubernetes.io/pv-protection`,
    /// where no Pod uses a claim.
    pub protection: bool,
}

/// A change to one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// The object.
    pub item: Item,
    /// Merged into the object, or into its status where it holds one.
    pub patch: Value,
    /// An object, where there is a UID the one that has it, that must be gone first: it is read before the change.
    unless: Option<(Item, Option<String>)>,
}

impl Book {
    /// All that is to be done, volumes first.
    pub fn due(&self, settings: &Settings) -> Vec<Action> {
        self.items().filter_map(|item| about(item, self, settings)).collect()
    }
}

/// What is to be done about one object now: at most one change, which leads to the next.
fn about(item: &Item, book: &Book, settings: &Settings) -> Option<Action> {
    let object = book.get(item)?;
    let protected = settings.protection.then(|| upkeep::protected(item, object)).flatten();
    protected.or_else(|| match item.kind {
        CLAIM => claims::sync(object, book),
        VOLUME => volumes::sync(object, book),
        _ => None,
    })
}

/// A merge patch, for just the version that the decision rests on.
fn change(kind: &'static str, object: &Value, mut patch: Value) -> Action {
    tree::copy(&mut patch, object, &["metadata", "resourceVersion"]);
    Action { item: Item::of(kind, object), patch, unless: None }
}

/// Moves an object to a phase, with what else its status then has.
fn phase(kind: &'static str, object: &Value, status: &Value) -> Option<Action> {
    let now = tree::text(object, &["status", "phase"]);
    (now != tree::text(status, &["phase"])).then(|| change(kind, object, json!({"status": status})))
}
