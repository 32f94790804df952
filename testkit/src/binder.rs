//! A small PV binder: what kube-controller-manager does to claims and volumes, where there is none.
//!
//! Owns the decisions ([`plan`], pure) and a loop that carries them out on any API server
//! ([`run`]): pending claims are bound to the volume whose `claimRef` names them, volumes of gone
//! claims are released, claims of gone volumes are lost, and claims of dynamic classes get the
//! annotation that calls their provisioner. Promises to release or lose nothing on hearsay: what a
//! watch did not show is asked for first, for a released volume is deleted. Leaves protection by
//! finalizers, matching of free volumes, and scheduling (but for a fixed node) to others.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, reflector, reflector::Store, watcher},
};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Annotations of the binder's own (`pkg/controller/volume/persistentvolume` in Kubernetes).
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// How long the loop gathers changes after the first, so that several are looked at together.
const GATHER: Duration = Duration::from_millis(10);

/// How often everything is looked at even when nothing changed: a refused change is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How many changes are carried out at once: each is of another object.
const AT_ONCE: usize = 16;

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
    let index = Index::of(cluster);
    let claims = cluster.claims.iter().filter_map(|claim| about_claim(claim, &index, settings));
    let volumes = cluster.volumes.iter().filter_map(|volume| about_volume(volume, &index));
    volumes.chain(claims).collect()
}

/// What the decisions look up, for clusters with thousands of claims and volumes.
struct Index<'a> {
    /// Claims by UID.
    claims: BTreeMap<&'a str, &'a PersistentVolumeClaim>,
    /// Volumes by name.
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    /// The first volume for each claim, by the UID in `claimRef` and the claim's name.
    of_claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolume>,
    classes: &'a [Arc<StorageClass>],
}

impl<'a> Index<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let Cluster { claims, volumes, classes } = cluster;
        let claims = claims.iter().map(|claim| (uid(claim), &**claim));
        let for_claims = volumes.iter().rev().filter_map(|volume| {
            let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
            Some(((claim.uid.as_deref()?, claim.name.as_deref()?), &**volume))
        });
        let names = volumes
            .iter()
            .map(|volume| (volume.metadata.name.as_deref().unwrap_or_default(), &**volume));
        Self {
            claims: claims.collect(),
            volumes: names.collect(),
            of_claims: for_claims.collect(),
            classes,
        }
    }

    /// The claim that the volume is for.
    fn claim_of(&self, volume: &PersistentVolume) -> Option<&'a PersistentVolumeClaim> {
        let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
        let claim = self.claims.get(reference.uid.as_deref()?).copied();
        claim.filter(|claim| is_for(volume, claim))
    }

    /// The volume that is for the claim.
    fn volume_of(&self, claim: &PersistentVolumeClaim) -> Option<&'a PersistentVolume> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let volume = self.of_claims.get(&(uid(claim), name)).copied();
        volume.filter(|volume| is_for(volume, claim))
    }
}

fn uid(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

fn about_claim(
    claim: &PersistentVolumeClaim,
    index: &Index<'_>,
    settings: &Settings,
) -> Option<Action> {
    if let Some(volume) = volume_name(claim) {
        return about_bound(claim, volume, index);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    match index.volume_of(claim) {
        Some(volume) => Some(point(claim, &volume.name_any())),
        None => call_provisioner(claim, index.classes, settings),
    }
}

/// A claim that names its volume becomes `Bound` or `Lost`.
fn about_bound(claim: &PersistentVolumeClaim, name: &str, index: &Index<'_>) -> Option<Action> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    match (index.volumes.get(name).copied(), phase) {
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
    classes: &[Arc<StorageClass>],
    settings: &Settings,
) -> Option<Action> {
    let wanted = claim.spec.as_ref()?.storage_class_name.as_deref()?;
    let class = classes.iter().find(|class| class.name_any() == wanted)?;
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
fn about_volume(volume: &PersistentVolume, index: &Index<'_>) -> Option<Action> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    reference.uid.as_ref()?;
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    match (index.claim_of(volume), phase) {
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

// === Doing ===

/// Binds for as long as it is polled.
pub async fn run(client: Client, settings: Settings) {
    let selected = settings.selector.as_deref();
    let (claims, claim_changes) = watched::<PersistentVolumeClaim>(&client, selected);
    let (volumes, volume_changes) = watched::<PersistentVolume>(&client, selected);
    let (classes, class_changes) = watched::<StorageClass>(&client, None);
    let mut changes = stream::select_all([claim_changes, volume_changes, class_changes]);
    loop {
        // Without a change in time everything is looked at anyway.
        let _ = timeout(AGAIN, changes.next()).await;
        // Not until it is quiet: under load it never is.
        let _ = timeout(GATHER, async { while changes.next().await.is_some() {} }).await;
        let cluster =
            Cluster { claims: all(&claims), volumes: all(&volumes), classes: all(&classes) };
        let carried_out = stream::iter(plan(&cluster, &settings)).map(|action| {
            let client = &client;
            async move {
                if let Err(error) = carry_out(client, &action).await {
                    // A later look decides anew.
                    tracing::debug!(?action, %error, "not done");
                }
            }
        });
        carried_out.buffer_unordered(AT_ONCE).for_each(|()| std::future::ready(())).await;
    }
}

type Changes = stream::BoxStream<'static, ()>;

/// The store of a kind's selected objects, and a stream that says when it changed.
fn watched<K>(client: &Client, selector: Option<&str>) -> (Store<K>, Changes)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    K: serde::de::DeserializeOwned,
{
    let (store, writer) = reflector::store();
    let config =
        watcher::Config { label_selector: selector.map(str::to_owned), ..Default::default() };
    let events = watcher(Api::<K>::all(client.clone()), config);
    let changes = events.default_backoff().reflect(writer);
    (store, looked_at(changes).boxed())
}

/// Errors count as changes: the watcher mends itself.
fn looked_at<T>(changes: impl Stream<Item = T> + Send + 'static) -> impl Stream<Item = ()> + Send {
    changes.map(|_| ())
}

/// A store's objects, in order of their keys.
fn all<K>(store: &Store<K>) -> Vec<Arc<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let mut objects = store.state();
    objects.sort_by(|a, b| {
        let (a, b) = (a.meta(), b.meta());
        (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name))
    });
    objects
}

async fn carry_out(client: &Client, action: &Action) -> kube::Result<()> {
    match action {
        Action::Claim { namespace, name, status, patch } => {
            patch_claim(client, namespace, name, *status, patch).await
        }
        Action::Volume { name, patch } => patch_volume(client, name, patch).await,
        Action::Release { name, version, claim } => {
            let claims = Api::<PersistentVolumeClaim>::namespaced(
                client.clone(),
                claim.namespace.as_deref().unwrap_or_default(),
            );
            let found = claims.get_opt(claim.name.as_deref().unwrap_or_default()).await?;
            if found.is_some_and(|found| found.metadata.uid == claim.uid) {
                return Ok(());
            }
            let patch = json!({"status": {"phase": "Released"}});
            patch_volume(client, name, &at_version(patch, version.clone())).await
        }
        Action::Lose { namespace, name, version, volume } => {
            let volumes = Api::<PersistentVolume>::all(client.clone());
            if volumes.get_opt(volume).await?.is_some() {
                return Ok(());
            }
            let patch = at_version(json!({"status": {"phase": "Lost"}}), version.clone());
            patch_claim(client, namespace, name, true, &patch).await
        }
    }
}

async fn patch_claim(
    client: &Client,
    namespace: &str,
    name: &str,
    status: bool,
    patch: &Value,
) -> kube::Result<()> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    if status {
        claims.patch_status(name, &params, &patch).await.map(|_| ())
    } else {
        claims.patch(name, &params, &patch).await.map(|_| ())
    }
}

async fn patch_volume(client: &Client, name: &str, patch: &Value) -> kube::Result<()> {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    volumes.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
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
