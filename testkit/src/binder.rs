//! A small PV binder: what kube-controller-manager does to claims and volumes, where there is none.
//!
//! Owns the decisions ([`plan`], pure) and carrying them out on any API server ([`run`]). They are those
//! of the PersistentVolume controller: claims are bound to the volume whose `claimRef` names them, or to
//! the free one that they name; volumes of gone claims are released, claims of gone volumes are lost,
//! and claims of dynamic classes get the annotation that calls their provisioner. Like that controller it
//! makes no difference between live claims and those that are being deleted. With [`Settings::protection`] it keeps the finalizers of
//! the two protection controllers as well. Promises to release or lose nothing without a read: what a watch
//! did not show is read first, because a released volume is deleted; and to decide about an object only
//! when something about it has changed, however many there are. Leaves finding a free volume for a claim that
//! names none, default classes, events, Pods, recycling and scheduling (but for a fixed node) to others.
//!
//! | module | content |
//! |---|---|
//! | `book` | what is known of claims, volumes and classes, and whom a change concerns |
//! | `claims` | what is to be done about a claim |
//! | `volumes` | what is to be done about a volume |
//! | `fit` | whether a volume is for a claim, and whether it suits it |
//! | `migration` | the annotation that says which driver took over from an in-tree plugin |
//! | `protection` | the finalizers of what is in use |
//! | `queue` | what must be decided, and what not until its own change is observed |
//! | `work` | the loop: watches in, changes out |

mod book;
mod claims;
mod fit;
mod migration;
mod protection;
mod queue;
mod volumes;
mod work;

use std::{path::PathBuf, sync::Arc};

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
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

/// What the binder does beyond binding.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The node that claims of late-binding classes are given, as if a Pod were scheduled there.
    pub node: Option<String>,
    /// The labels of the claims and volumes it minds; all where there is none.
    pub selector: Option<String>,
    /// Whether it keeps the finalizers `kubernetes.io/pvc-protection` and `kubernetes.io/pv-protection`,
    /// where no Pod uses a claim.
    pub protection: bool,
}

/// Everything that the decisions depend on.
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
    /// Merges `patch` into a volume, or into its status where it holds one.
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
    let volumes = book.volumes().filter_map(|volume| about_volume(volume, &book, settings));
    volumes.chain(claims).collect()
}

/// What is to be done about one object.
fn about(item: &Item, book: &Book, settings: &Settings) -> Option<Action> {
    match item {
        Item::Claim { .. } => about_claim(book.claim(item)?, book, settings),
        Item::Volume { .. } => about_volume(book.volume(item)?, book, settings),
        Item::Class { .. } => None,
    }
}

fn about_claim(claim: &PersistentVolumeClaim, book: &Book, settings: &Settings) -> Option<Action> {
    let protected = || settings.protection.then(|| protection::of_claim(claim)).flatten();
    protected().or_else(|| claims::sync(claim, book, settings))
}

fn about_volume(volume: &PersistentVolume, book: &Book, settings: &Settings) -> Option<Action> {
    let protected = || settings.protection.then(|| protection::of_volume(volume)).flatten();
    protected().or_else(|| volumes::sync(volume, book))
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

/// A merge patch on a volume, likewise.
fn change_volume(volume: &PersistentVolume, patch: Value) -> Action {
    Action::Volume { name: volume.name_any(), patch: at_version(patch, volume.resource_version()) }
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
    run(Client::try_from(config)?, Settings { node: command.node, ..Settings::default() }).await;
    Ok(())
}

#[cfg(test)]
mod tests;
