//! Reads, watches and writes Leases.

use std::{future::Future, time::Duration};

use futures::{
    StreamExt as _, TryStreamExt as _,
    future::ready,
    stream::{self, BoxStream},
};
use kube::api::WatchEvent;
use serde::Deserialize;
use serde_json::Value;

use super::record::Lease;
use crate::kube::{ApiError, Client, Kind, Name, View, objects::Metadata};

/// The server ends a watch after this time, in seconds.
const WATCH_SECONDS: u32 = 290;

/// The requests of an election. A PUT contains the `resourceVersion` on which it is based, and fails if that
/// is outdated.
pub trait Leases: Send + Sync {
    /// GET.
    fn get(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Value, LeaseError>> + Send;

    /// POST.
    fn create(
        &self,
        namespace: &str,
        lease: &Value,
    ) -> impl Future<Output = Result<Value, LeaseError>> + Send;

    /// PUT.
    fn replace(
        &self,
        namespace: &str,
        name: &str,
        lease: &Value,
    ) -> impl Future<Output = Result<Value, LeaseError>> + Send;

    /// Watches one Lease from a version on. The stream may end at any time, with or without an error.
    fn watch(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
    ) -> BoxStream<'static, Result<LeaseEvent, LeaseError>>;
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseEvent {
    /// The Lease was added or changed.
    Applied(Value),
    /// The Lease was deleted.
    Deleted,
}

/// A Lease could not be read, watched or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The Lease does not exist.
    #[error("the Lease does not exist")]
    NotFound,
    /// A permission is missing.
    #[error("{0}")]
    Forbidden(String),
    /// Another error. A write may have been carried out nevertheless.
    #[error("{0}")]
    Failed(String),
}

/// Reads the Lease.
///
/// # Errors
/// The Lease does not exist or cannot be read.
pub async fn read_lease(
    leases: &impl Leases,
    namespace: &str,
    name: &str,
) -> Result<Lease, LeaseError> {
    leases.get(namespace, name).await.map(Lease::new)
}

/// The holder of the Lease at `now`. A Lease without a duration is held.
pub fn holder(lease: &Value, now: jiff::Timestamp) -> Option<&str> {
    let spec = lease.get("spec")?;
    let holder = last_holder(lease)?;
    let renewed = spec.get("renewTime").and_then(Value::as_str).and_then(|time| time.parse().ok());
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_u64);
    let (Some(renewed), Some(seconds)) = (renewed, seconds) else { return Some(holder) };
    let since = Duration::try_from(now.duration_since(renewed)).unwrap_or_default();
    (since <= Duration::from_secs(seconds)).then_some(holder)
}

/// The host name in a holder's identity, which is the pod's name unless the pod uses the host's network.
pub fn host_of(holder: &str) -> &str {
    holder.split('_').next().unwrap_or_default()
}

/// The holder that the Lease names, whether its time is over or not.
pub fn last_holder(lease: &Value) -> Option<&str> {
    lease.get("spec")?.get("holderIdentity")?.as_str().filter(|holder| !holder.is_empty())
}

// === impl Client ===

impl Leases for Client {
    async fn get(&self, namespace: &str, name: &str) -> Result<Value, LeaseError> {
        let name = Name::namespaced(namespace, name).map_err(ApiError::from)?;
        Ok(self.get_raw(&Kind::of::<WholeLease>(), name).await?)
    }

    async fn create(&self, namespace: &str, lease: &Value) -> Result<Value, LeaseError> {
        let created: WholeLease = Client::create(self, Some(namespace), lease).await?;
        Ok(created.object)
    }

    async fn replace(
        &self,
        namespace: &str,
        name: &str,
        lease: &Value,
    ) -> Result<Value, LeaseError> {
        let name = Name::namespaced(namespace, name).map_err(ApiError::from)?;
        let replaced: WholeLease = self.replace_raw(name, lease).await?;
        Ok(replaced.object)
    }

    fn watch(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
    ) -> BoxStream<'static, Result<LeaseEvent, LeaseError>> {
        let (client, version) = (self.clone(), version.to_owned());
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let events = async move {
            let name = Name::namespaced(&namespace, &name)?;
            client.watch_object(name, &version, WATCH_SECONDS).await
        };
        stream::once(events)
            .try_flatten()
            .map_err(LeaseError::from)
            .try_filter_map(|event| ready(Ok(lease_event(event))))
            .boxed()
    }
}

/// Converts an event of a watch; `None` if it says nothing of the Lease.
fn lease_event(event: WatchEvent<WholeLease>) -> Option<LeaseEvent> {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
            Some(LeaseEvent::Applied(lease.object))
        }
        WatchEvent::Deleted(_) => Some(LeaseEvent::Deleted),
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}

impl From<ApiError> for LeaseError {
    fn from(error: ApiError) -> Self {
        if error.is_not_found() {
            Self::NotFound
        } else if error.is_forbidden() {
            Self::Forbidden(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// A Lease with all its fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Value")]
pub struct WholeLease {
    metadata: Metadata,
    /// The object.
    pub object: Value,
}

impl From<Value> for WholeLease {
    fn from(object: Value) -> Self {
        let text = |field: &str| Some(object.get("metadata")?.get(field)?.as_str()?.into());
        let metadata = Metadata {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid").map(Into::into),
            resource_version: text("resourceVersion"),
            ..Metadata::default()
        };
        Self { metadata, object }
    }
}

impl View for WholeLease {
    const GROUP: &'static str = "coordination.k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Lease";
    const PLURAL: &'static str = "leases";
    const NAMESPACED: bool = true;

    fn meta(&self) -> &Metadata {
        &self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::testing::{Answer, End, Server, client};

    /// The events of a watch of the Lease.
    async fn watched(watch: Answer) -> (Server, Vec<Result<LeaseEvent, LeaseError>>) {
        let server = Server::new(move |_, _| watch.clone());
        let events = Leases::watch(&client(&server), "ns", "l", "5").collect();
        let events = tokio::time::timeout(Duration::from_secs(60), events).await;
        (server, events.expect("the watch ends"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_yields_whole_leases() {
        let lease = |version: &str| json!({"metadata": {"name": "l", "resourceVersion": version}, "spec": {"x": 1}});
        let watch = Answer::watch()
            .event(1, "MODIFIED", &lease("6"))
            .event(1, "DELETED", &lease("7"))
            .end(End::Closed);
        let (server, events) = watched(watch).await;
        assert_eq!(events, [Ok(LeaseEvent::Applied(lease("6"))), Ok(LeaseEvent::Deleted)]);
        let url = &server.requests()[0].url;
        let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases?";
        assert!(url.starts_with(path) && url.contains("fieldSelector=metadata.name%3Dl"), "{url}");
        assert!(url.contains("resourceVersion=5") && url.contains("timeoutSeconds=290"), "{url}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_ends_with_the_reason() {
        let (_, events) = watched(Answer::refusal(403, "Forbidden", "no")).await;
        assert_eq!(events, [Err(LeaseError::Forbidden("no".to_owned()))]);
    }

    #[test]
    fn a_lease_is_held_until_it_has_run_out() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let lease = |holder: &str| json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:10.000000Z"}});
        for (lease, now, expected) in [
            (lease("a"), 10, Some("a")),
            (lease("a"), 25, Some("a")),
            (lease("a"), 26, None),
            (lease(""), 10, None),
            (json!({"spec": {"holderIdentity": "a"}}), 10, Some("a")),
            (
                json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": -1, "renewTime": "?"}}),
                10,
                Some("a"),
            ),
            (json!({}), 10, None),
        ] {
            assert_eq!(holder(&lease, at(now)), expected, "{lease} {now}");
        }
    }
}
