//! A small PV binder: what kube-controller-manager does to claims and volumes, where there is none.
//!
//! The decisions are those of the PersistentVolume controller: claims are bound to the volume whose `claimRef` names
//! them, or to the free one that they name; volumes of gone claims are released, claims of gone volumes are lost, and
//! claims of dynamic classes get the annotation that calls their provisioner. Like that controller it makes no
//! difference between live claims and those that are being deleted. Nothing is released or lost without a read: what
//! a watch did not show is read first, because a released volume is deleted. Missing are: finding a free volume for a
//! claim that names none, default classes, events, Pods, recycling, and scheduling (but for a fixed node).

mod book;
mod claims;
mod fit;
mod upkeep;
mod volumes;
mod work;

use std::path::PathBuf;

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use self::book::{Book, Item, Kept};
pub use self::work::run;

/// Annotations of the controller's own (`pkg/controller/volume/persistentvolume` in Kubernetes).
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
    /// The labels of the claims and volumes it minds; all where there is none.
    pub selector: Option<String>,
    /// Whether it keeps the finalizers `kubernetes.io/pvc-protection` and `kubernetes.io/pv-protection`,
    /// where no Pod uses a claim.
    pub protection: bool,
}

/// A change to one object.
#[derive(Debug, Clone, PartialEq)]
struct Action {
    item: Item,
    /// Merged into the object, or into its status where it holds one.
    patch: Value,
    /// An object (a claim by its UID) that must be gone first: it is read before the change.
    unless: Option<(Item, Option<String>)>,
}

/// What is to be done about one object now: at most one change, which leads to the next.
fn about(item: &Item, book: &Book, settings: &Settings) -> Option<Action> {
    match item {
        Item::Claim(..) => {
            let claim = book.claim(item)?;
            let protected = settings.protection.then(|| upkeep::protected_claim(claim)).flatten();
            protected.or_else(|| claims::sync(claim, book))
        }
        Item::Volume(_) => {
            let volume = book.volume(item)?;
            let protected = settings.protection.then(|| upkeep::protected_volume(volume)).flatten();
            protected.or_else(|| volumes::sync(volume, book))
        }
        Item::Class(_) => None,
    }
}

/// A merge patch, for just the version that the decision rests on.
fn change<K: Kept>(object: &K, mut patch: Value) -> Action {
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            let version = object.meta().resource_version.clone();
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
    }
    Action { item: object.item(), patch, unless: None }
}

/// Where the binder works.
#[derive(Debug, Args)]
pub struct Binder {
    /// How the API server is reached; without it as kubectl finds it.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Runs the binder until the process is ended.
pub async fn main(command: Binder) -> Result<(), crate::Error> {
    let config = match command.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    run(Client::try_from(config)?, Settings::default()).await;
    Ok(())
}
