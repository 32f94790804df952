//! What stands in the cluster from the start, and is nobody's work.
//!
//! Owns which objects those are ([`Residents`] on the command line), putting them there and taking
//! them away again. Promises that they carry a label of their own, so that the bench's watches and
//! its binder can leave them out: they stand there for the measured program. Leaves their shape to
//! `objects`.

use std::fmt::Debug;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::{
    cluster::Cluster,
    error::LoadError,
    objects::{ARCHIVED, Family, IN_USE, Standing},
};

/// The label of residents, beside the run's.
const LABEL: &str = "load.testkit/resident";

/// The label selector of everything else.
pub(super) const OTHERS: &str = "!load.testkit/resident";

/// Requests at once that make or remove residents in somebody else's cluster.
const AT_ONCE: usize = 32;

/// Objects on a page of those to remove.
const PAGE: u32 = 500;

/// What stands in the cluster from the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args, Serialize)]
pub struct Residents {
    /// Bound claims of the run's class with their volumes, in pairs, that stand in the cluster
    /// from the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub bound: usize,
    /// The same of somebody else's driver.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub foreign: usize,
    /// Volumes of the run's driver that were released, and whose class wants them retained.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub archived: usize,
    /// VolumeAttachments of the `--bound` volumes (which need not be there); the driver then says
    /// that it attaches.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub attachments: usize,
    /// Claims of the run's driver whose class does not exist.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub waiting: usize,
}

/// One or two of them.
#[derive(Debug)]
enum Resident<'a> {
    Pair(&'a Family, usize),
    Claim(&'a Family, usize),
    Volume(&'a Family, usize, Standing),
    Attachment(&'a Family, usize),
}

/// The families they are of.
struct Families {
    bound: Family,
    foreign: Family,
    archived: Family,
    waiting: Family,
}

impl Families {
    fn of(cluster: &Cluster) -> Self {
        let family = |what| {
            let mut family = cluster.family(what);
            family.labels.insert(LABEL.to_owned(), "true".to_owned());
            family
        };
        Self {
            bound: family("bound"),
            archived: family("archived"),
            waiting: Family { class: "missing".to_owned(), ..family("waiting") },
            foreign: Family {
                driver: "foreign.csi.example.com".to_owned(),
                class: "foreign".to_owned(),
                ..family("foreign")
            },
        }
    }
}

impl Residents {
    fn all<'a>(&self, families: &'a Families) -> impl Iterator<Item = Resident<'a>> + use<'a> {
        let Families { bound, foreign, archived, waiting } = families;
        let pairs = (0..self.bound).map(|number| Resident::Pair(bound, number));
        let foreign = (0..self.foreign).map(|number| Resident::Pair(foreign, number));
        let archived =
            (0..self.archived).map(|number| Resident::Volume(archived, number, ARCHIVED));
        let attachments = (0..self.attachments).map(|number| Resident::Attachment(bound, number));
        let waiting = (0..self.waiting).map(|number| Resident::Claim(waiting, number));
        pairs.chain(foreign).chain(archived).chain(attachments).chain(waiting)
    }

    /// Puts them into the cluster.
    pub(super) async fn settle(&self, cluster: &Cluster) -> Result<(), LoadError> {
        let families = Families::of(cluster);
        let all = stream::iter(self.all(&families)).map(Ok);
        all.try_for_each_concurrent(AT_ONCE, |resident| resident.settle(cluster)).await?;
        // As etcd does after five minutes: what came before they stood there is nobody's need.
        cluster.served().into_iter().for_each(|served| served.api().compact());
        Ok(())
    }

    /// Takes the run's residents out of the cluster: volumes first, so that none is released and
    /// deleted at the driver.
    pub(super) async fn leave(&self, cluster: &Cluster) -> Result<(), LoadError> {
        if *self == Self::default() {
            return Ok(());
        }
        remove_all(&cluster.volumes(), cluster).await?;
        remove_all(&cluster.claims(), cluster).await?;
        remove_all(&Api::<VolumeAttachment>::all(cluster.client.clone()), cluster).await
    }
}

impl Resident<'_> {
    async fn settle(self, cluster: &Cluster) -> Result<(), LoadError> {
        match self {
            Self::Pair(family, number) => {
                let claim = family.bound_claim(number);
                let uid = create(cluster, &cluster.claims(), claim).await?;
                let volume = family.volume(number, &uid, IN_USE);
                create(cluster, &cluster.volumes(), volume).await?;
            }
            Self::Claim(family, number) => {
                create(cluster, &cluster.claims(), family.waiting_claim(number)).await?;
            }
            Self::Volume(family, number, standing) => {
                let volume = family.volume(number, &family.uid("claim", number), standing);
                create(cluster, &cluster.volumes(), volume).await?;
            }
            Self::Attachment(family, number) => {
                let attachments = Api::<VolumeAttachment>::all(cluster.client.clone());
                create(cluster, &attachments, family.attachment(number)).await?;
            }
        }
        Ok(())
    }
}

// === Into the cluster ===

/// Creates an object with its status and its finalizers; gives its UID.
async fn create<K>(cluster: &Cluster, api: &Api<K>, object: Value) -> Result<String, LoadError>
where
    K: Resource + DeserializeOwned + Serialize + Clone + Debug,
{
    let object = without_identity(object);
    if let Some(served) = cluster.served() {
        // Whoever interrupts a long preload is heard.
        yield_now().await;
        let created = served.api().create(&object).map_err(LoadError::Refused)?;
        let uid = created.pointer("/metadata/uid").and_then(Value::as_str);
        return Ok(uid.unwrap_or_default().to_owned());
    }
    let status = json!({"status": object.get("status")});
    let created = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    // Elsewhere kube-controller-manager says so itself.
    if cluster.binds() {
        let (name, status) = (created.name_any(), Patch::Merge(&status));
        api.patch_status(&name, &PatchParams::default(), &status).await?;
    }
    Ok(created.uid().unwrap_or_default())
}

/// The object without what only the server gives it.
fn without_identity(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(field);
        }
    }
    object
}

// === And out again ===

/// Removes the run's residents of a kind, finalizers or not.
async fn remove_all<K>(api: &Api<K>, cluster: &Cluster) -> Result<(), LoadError>
where
    K: Resource + DeserializeOwned + Clone + Debug,
{
    let residents = ListParams::default().limit(PAGE);
    let residents = residents.labels(&format!("{},{LABEL}", cluster.names.selector()));
    let mut before = None;
    loop {
        let page = api.list_metadata(&residents).await?;
        let first = page.items.first().map(kube::ResourceExt::name_any);
        if first.is_none() {
            return Ok(());
        }
        if first == before {
            return Err(cluster.left_behind(page.items.len(), "residents"));
        }
        before = first;
        let names = page.items.iter().map(|object| Ok(object.name_any()));
        let names = stream::iter(names);
        names.try_for_each_concurrent(AT_ONCE, async |name| remove(api, &name).await).await?;
    }
}

/// Removes an object in spite of its finalizers. Deleted first: to an object that is on its way out
/// nobody can add a finalizer any more, as a provisioner otherwise does that protects its volumes.
pub(super) async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), LoadError>
where
    K: DeserializeOwned + Clone + Debug,
{
    let deleted = api.delete(name, &DeleteParams::default()).await;
    unless_gone(deleted.map(drop))?;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    unless_gone(api.patch(name, &PatchParams::default(), &bare).await.map(drop))
}

/// A request's result, where an object that is not there any more is as good as done.
fn unless_gone(result: kube::Result<()>) -> Result<(), LoadError> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}
