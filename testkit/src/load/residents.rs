//! What stands in the cluster from the start, beside what a run comes to measure: with a label of its own, so that the
//! bench's watches and its binder leave it out: it stands there for the measured program.

use futures::{TryStreamExt as _, stream};
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::task::yield_now;

use crate::apiserver::serve::manifests;

use super::{
    LoadError,
    objects::{Family, IN_USE},
    server::Server,
};

/// The label of residents, and the selector of everything else.
const LABEL: &str = "load.testkit/resident";
pub(super) const OTHERS: &str = "!load.testkit/resident";

/// Requests at once.
pub(super) const AT_ONCE: usize = 32;

/// Puts so many bound claims and their volumes into the cluster.
pub(super) async fn settle(server: &Server, bound: usize) -> Result<(), LoadError> {
    let mut family = Family::of_run("bound");
    family.labels.insert(LABEL.to_owned(), "true".to_owned());
    let pair = async |number| {
        let uid = create(server, family.bound_claim(number)).await?;
        create(server, family.volume(number, &uid, IN_USE)).await.map(drop)
    };
    stream::iter((0..bound).map(Ok)).try_for_each_concurrent(AT_ONCE, pair).await?;
    // As etcd does after five minutes: what came before they stood there is nobody's need.
    server.in_memory().into_iter().for_each(|served| served.api().compact());
    Ok(())
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
    let created = manifests::create(&server.client, &object).await?;
    Ok(created.uid().unwrap_or_default())
}
