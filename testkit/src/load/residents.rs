//! What stands in the cluster from the start, and is nobody's work. It carries a label of its own, so that the
//! bench's watches and its binder leave it out: it stands there for the measured program.

use clap::Args;
use futures::{TryStreamExt as _, stream};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::{
    LoadError,
    objects::{ARCHIVED, Family, IN_USE},
    server::Server,
};

/// The label of residents, and the selector of everything else.
const LABEL: &str = "load.testkit/resident";
pub(super) const OTHERS: &str = "!load.testkit/resident";

/// Requests at once.
const AT_ONCE: usize = 32;

/// What stands in the cluster from the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args, Serialize)]
pub struct Residents {
    /// Bound claims of the run's class with their volumes, in pairs, that stand in the cluster from the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub bound: usize,
    /// The same of somebody else's driver.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub foreign: usize,
    /// Volumes of the run's driver that were released, and whose class wants them retained.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub archived: usize,
    /// VolumeAttachments of the `--bound` volumes (which need not be there); the driver then says that it attaches.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub attachments: usize,
    /// Claims of the run's driver whose class does not exist.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub waiting: usize,
}

impl Residents {
    /// Puts them into the cluster.
    pub(super) async fn settle(&self, server: &Server) -> Result<(), LoadError> {
        let family = |what: &str| {
            let mut family = Family::of_run(what);
            family.labels.insert(LABEL.to_owned(), "true".to_owned());
            family
        };
        let (bound, archived) = (&family("bound"), &family("archived"));
        let waiting = Family { class: "missing".to_owned(), ..family("waiting") };
        let (driver, class) = ("foreign.csi.example.com".to_owned(), "foreign".to_owned());
        let foreign = &Family { driver, class, ..family("foreign") };
        let each = |count: usize| stream::iter((0..count).map(Ok::<_, LoadError>));
        for (family, count) in [(bound, self.bound), (foreign, self.foreign)] {
            let pair = |number| async move {
                let uid = create(server, family.bound_claim(number)).await?;
                create(server, family.volume(number, &uid, IN_USE)).await
            };
            each(count)
                .try_for_each_concurrent(AT_ONCE, async |number| pair(number).await.map(drop))
                .await?;
        }
        let archived = (0..self.archived)
            .map(|number| archived.volume(number, &archived.uid("claim", number), ARCHIVED));
        let attachments = (0..self.attachments).map(|number| bound.attachment(number));
        let waiting = (0..self.waiting).map(|number| waiting.waiting_claim(number));
        stream::iter(archived.chain(attachments).chain(waiting).map(Ok))
            .try_for_each_concurrent(AT_ONCE, async |object| create(server, object).await.map(drop))
            .await?;
        // As etcd does after five minutes: what came before they stood there is nobody's need.
        server.in_memory().into_iter().for_each(|served| served.api().compact());
        Ok(())
    }
}

/// Creates an object with its status and its finalizers; gives its UID.
pub(super) async fn create(server: &Server, mut object: Value) -> Result<String, LoadError> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(field);
        }
    }
    if let Some(served) = server.in_memory() {
        yield_now().await;
        let created = served.api().create(&object).map_err(|status| status.message().to_owned())?;
        let uid = created.pointer("/metadata/uid").and_then(Value::as_str);
        return Ok(uid.unwrap_or_default().to_owned());
    }
    let resource = crate::apiserver::serve::manifests::resource_of(&object);
    let status = object.get("status").cloned();
    let object: DynamicObject = serde_json::from_value(object)?;
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(server.client.clone(), namespace, &resource),
        None => Api::all_with(server.client.clone(), &resource),
    };
    let created = api.create(&PostParams::default(), &object).await?;
    if let Some(status) = status {
        let status = Patch::Merge(json!({"status": status}));
        api.patch_status(&created.name_any(), &PatchParams::default(), &status).await?;
    }
    Ok(created.uid().unwrap_or_default())
}
