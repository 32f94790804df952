//! A small PV binder: what kube-controller-manager does to claims and volumes, where there is none.
//!
//! Owns the decisions ([`plan`], pure) and carrying them out on any API server ([`run`]): pending
//! claims are bound to the volume whose `claimRef` names them, volumes of gone claims are released,
//! claims of gone volumes are lost, and claims of dynamic classes get the annotation that calls their
//! provisioner. Promises to release or lose nothing on hearsay: what a watch did not show is asked for
//! first, for a released volume is deleted; and to look at an object only when something has changed
//! about it, however many there are. Leaves protection by finalizers, matching of free volumes, and
//! scheduling (but for a fixed node) to others.
//!
//! | room | what lives there |
//! |---|---|
//! | `book` | what is known of claims, volumes and classes, and whom a change concerns |
//! | `queue` | who must be looked at, and who not until his own change is seen |
//! | `work` | the loop: watches in, changes out |

mod book;
mod queue;
mod work;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use clap::Args;
use k8s_openapi::api::{
    core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Client, Config, ResourceExt as _,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use self::book::{Book, Item};
pub use self::work::run;

/// Annotations of the binder's own (`pkg/controller/volume/persistentvolume` in Kubernetes).
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What the binder does beyond binding.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The node that claims of late-binding classes are given, as if a Pod were scheduled there.
    pub node: Option<String>,
    /// The labels of the claims and volumes it minds; all where there is none.
    pub selector: Option<String>,
}

/// Everything the decisions look at.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// All claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// All volumes.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// All classes.
    pub classes: Vec<Arc<StorageClass>>,
}

/// One change to one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Merges `patch` into a claim.
    Claim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Whether the patch is of its status.
        status: bool,
        /// What changes.
        patch: Value,
    },
    /// Merges `patch` into a volume's status.
    Volume {
        /// Its name.
        name: String,
        /// What changes.
        patch: Value,
    },
    /// Releases a volume, once it is sure that its claim is gone.
    Release {
        /// The volume.
        name: String,
        /// Its resource version.
        version: Option<String>,
        /// The claim that must be gone.
        claim: ObjectReference,
    },
    /// Marks a claim as lost, once it is sure that its volume is gone.
    Lose {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// Its resource version.
        version: Option<String>,
        /// The volume that must be gone.
        volume: String,
    },
}

// === Deciding ===

/// What is to be done now: at most one change per object, each of which leads to the next.
pub fn plan(cluster: &Cluster, settings: &Settings) -> Vec<Action> {
    let book = Book::of(cluster);
    let claims = book.claims().filter_map(|claim| about_claim(claim, &book, settings));
    let volumes = book.volumes().filter_map(|volume| about_volume(volume, &book));
    volumes.chain(claims).collect()
}

/// What is to be done about one object.
fn about(item: &Item, book: &Book, settings: &Settings) -> Option<Action> {
    match item {
        Item::Claim { .. } => about_claim(book.claim(item)?, book, settings),
        Item::Volume { .. } => about_volume(book.volume(item)?, book),
        Item::Class { .. } => None,
    }
}

fn about_claim(claim: &PersistentVolumeClaim, book: &Book, settings: &Settings) -> Option<Action> {
    if let Some(volume) = volume_name(claim) {
        return about_bound(claim, volume, book);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    match book.volume_for(claim) {
        Some(volume) => Some(point(claim, &volume.name_any())),
        None => call_provisioner(claim, book, settings),
    }
}

/// A claim that names its volume becomes `Bound` or `Lost`.
fn about_bound(claim: &PersistentVolumeClaim, name: &str, book: &Book) -> Option<Action> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    match (book.volume(&Item::volume(name)), phase) {
        (Some(volume), phase) if phase != Some("Bound") && is_for(volume, claim) => {
            let spec = volume.spec.as_ref();
            let status = json!({
                "phase": "Bound",
                "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
                "capacity": spec.and_then(|spec| spec.capacity.clone()),
            });
            Some(change(claim, true, json!({"status": status})))
        }
        (None, phase) if phase == Some("Bound") || is_half_bound(claim) => Some(Action::Lose {
            namespace: claim.namespace().unwrap_or_default(),
            name: claim.name_any(),
            version: claim.resource_version(),
            volume: name.to_owned(),
        }),
        _ => None,
    }
}

/// Whether the claim was bound by the controller and its status does not say so yet: like a bound
/// one it has lost a volume that is gone (`syncBoundClaim`).
fn is_half_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    claim.annotations().contains_key(BIND_COMPLETED) && phase != Some("Lost")
}

/// The volume a claim names.
fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref();
    name.filter(|name| !name.is_empty())
}

/// Whether a volume's `claimRef` names just this claim.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
        return false;
    };
    reference.namespace == claim.metadata.namespace
        && reference.name == claim.metadata.name
        && reference.uid.is_some()
        && reference.uid == claim.metadata.uid
}

/// Names the volume in the claim.
fn point(claim: &PersistentVolumeClaim, volume: &str) -> Action {
    let patch = json!({
        "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"volumeName": volume},
    });
    change(claim, false, patch)
}

/// A merge patch on a claim, for just the version the decision rests on.
fn change(claim: &PersistentVolumeClaim, status: bool, patch: Value) -> Action {
    Action::Claim {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        status,
        patch: at_version(patch, claim.resource_version()),
    }
}

fn at_version(mut patch: Value, version: Option<String>) -> Value {
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
    }
    patch
}

/// Annotates a claim for its class's provisioner; of a late-binding class once it has a node.
fn call_provisioner(
    claim: &PersistentVolumeClaim,
    book: &Book,
    settings: &Settings,
) -> Option<Action> {
    let class = book.class_of(claim)?;
    if class.provisioner == NO_PROVISIONER {
        return None;
    }
    let mut missing = BTreeMap::new();
    if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") {
        match (claim.annotations().get(SELECTED_NODE), &settings.node) {
            (Some(_), _) => {}
            (None, Some(node)) => {
                missing.insert(SELECTED_NODE, node);
            }
            (None, None) => return None,
        }
    }
    for key in [PROVISIONER, BETA_PROVISIONER] {
        if claim.annotations().get(key) != Some(&class.provisioner) {
            missing.insert(key, &class.provisioner);
        }
    }
    let patch = json!({"metadata": {"annotations": missing}});
    (!missing.is_empty()).then(|| change(claim, false, patch))
}

/// A volume follows its claim: `Bound` with it, `Released` without it.
fn about_volume(volume: &PersistentVolume, book: &Book) -> Option<Action> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    reference.uid.as_ref()?;
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    match (book.claim_of(volume), phase) {
        (Some(_), Some("Bound")) | (None, Some("Released" | "Failed")) => None,
        (Some(claim), _) => {
            // A claim that found another volume leaves this one to its fate.
            let ours = volume_name(claim).is_none_or(|name| name == volume.name_any());
            let patch = json!({"status": {"phase": "Bound"}});
            ours.then(|| Action::Volume {
                name: volume.name_any(),
                patch: at_version(patch, volume.resource_version()),
            })
        }
        (None, _) => Some(Action::Release {
            name: volume.name_any(),
            version: volume.resource_version(),
            claim: reference.clone(),
        }),
    }
}

// === Command line ===

/// Where the binder works.
#[derive(Debug, Args)]
pub struct Binder {
    /// How the API server is reached; without it as kubectl finds it.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Node that claims of late-binding classes are given; without it a scheduler is needed.
    #[arg(long)]
    node: Option<String>,
}

/// Runs the binder until the process is ended.
pub async fn main(command: Binder) -> Result<(), Box<dyn std::error::Error>> {
    let config = match command.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    run(Client::try_from(config)?, Settings { node: command.node, selector: None }).await;
    Ok(())
}

#[cfg(test)]
mod tests;
