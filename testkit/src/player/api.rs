//! The API server as a scenario uses it: as an admin, object by object, on any server that the client reaches.

use std::{sync::LazyLock, time::Duration};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::PlayError;
use crate::{
    apiserver::{
        resources::{Kind, Kinds, ServerVersion},
        serve::manifests,
        tree,
    },
    until,
};

/// The kinds whose objects are taken off a used cluster, in this order.
const CLEANED: [&str; 19] = [
    "PersistentVolumeClaim",
    "PersistentVolume",
    "VolumeAttachment",
    "StorageClass",
    "CSINode",
    "Node",
    "VolumeAttributesClass",
    "VolumeSnapshot",
    "VolumeSnapshotContent",
    "CSIStorageCapacity",
    "Lease",
    "ReferenceGrant",
    "Secret",
    "Pod",
    "ReplicaSet",
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "Event",
];

/// The kinds that go where a scenario has no snapshots.
const OF_SNAPSHOTS: [&str; 2] = ["VolumeSnapshot", "VolumeSnapshotContent"];

/// The kinds of every server: built in, and of the manifests that stand in it.
static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    let mut kinds = Kinds::of(ServerVersion::default());
    let objects = manifests::embedded().unwrap_or_default();
    let definitions = objects.iter().filter(|it| !tree::at(it, &["spec", "names"]).is_null());
    definitions.for_each(|definition| kinds.define(definition));
    kinds
});

/// Namespaces that scenarios play in; `sc` is the usual one.
pub(super) const NAMESPACE: &str = "sc";
const NAMESPACES: [&str; 2] = [NAMESPACE, "other"];

/// How long, and how often, it is looked whether a kind is still served.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

fn find(name: &str) -> Result<&'static Kind, PlayError> {
    let found = KINDS.by_name(name);
    Ok(found.ok_or_else(|| format!("the server has no kind {name:?}"))?)
}

/// An object's address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address<'a> {
    pub(super) kind: &'a str,
    /// Its namespace; not looked at for kinds that have none.
    pub(super) namespace: Option<&'a str>,
    pub(super) name: &'a str,
}

impl Address<'_> {
    fn path(self) -> Result<String, PlayError> {
        Ok(format!("{}/{}", collection(find(self.kind)?, self.namespace), self.name))
    }
}

fn collection(kind: &Kind, namespace: Option<&str>) -> String {
    let base = if kind.group.is_empty() { "api" } else { "apis" };
    let (version, plural) = (kind.api_version(), &kind.plural);
    match namespace.filter(|_| kind.namespaced) {
        Some(namespace) => format!("/{base}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{base}/{version}/{plural}"),
    }
}

/// The API server, with all rights.
#[derive(Clone)]
pub(super) struct Api {
    client: kube::Client,
}

impl Api {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// Sends a request; the answer's status and, where it is JSON, its body.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&Value, &str)>,
    ) -> Result<(u16, Value), PlayError> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some((_, content_type)) = body {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        let bytes = body.map(|(value, _)| value.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(Body::from(bytes))?;
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&body).unwrap_or_else(|_| json!({}))))
    }

    /// Sends a request that must succeed.
    pub(super) async fn demand(
        &self,
        method: Method,
        path: &str,
        body: Option<(&Value, &str)>,
    ) -> Result<Value, PlayError> {
        match self.send(method.clone(), path, body).await? {
            (code, answer) if code < 300 => Ok(answer),
            (code, answer) => Err(format!("{method} {path}: {code} {answer}").into()),
        }
    }

    /// Creates objects that may be there already.
    pub(super) async fn ensure(&self, objects: &[Value]) -> Result<(), PlayError> {
        manifests::apply(&self.client, objects).await
    }

    /// Merge-patches whatever is at `path`.
    pub(super) async fn patch(&self, path: &str, change: &Value) -> Result<Value, PlayError> {
        self.demand(Method::PATCH, path, Some((change, MERGE_PATCH))).await
    }

    /// All objects of a kind; none where they cannot be listed.
    pub(super) async fn list(&self, name: &str) -> Result<Vec<Value>, PlayError> {
        let path = collection(find(name)?, None);
        let (_, mut answer) = self.send(Method::GET, &path, None).await?;
        Ok(match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    /// An object, or the server's word on it.
    pub(super) async fn get(&self, address: Address<'_>) -> Result<(u16, Value), PlayError> {
        self.send(Method::GET, &address.path()?, None).await
    }

    /// Deletes an object; when `maybe`, it need not be there.
    pub(super) async fn delete(&self, address: Address<'_>, maybe: bool) -> Result<(), PlayError> {
        let path = address.path()?;
        if maybe {
            self.send(Method::DELETE, &path, None).await.map(|_| ())
        } else {
            self.demand(Method::DELETE, &path, None).await.map(|_| ())
        }
    }

    /// Merge-patches an object or a subresource of it.
    pub(super) async fn merge(
        &self,
        address: Address<'_>,
        subresource: Option<&str>,
        change: &Value,
    ) -> Result<(), PlayError> {
        let path = address.path()?;
        let path = subresource.map_or_else(|| path.clone(), |sub| format!("{path}/{sub}"));
        self.patch(&path, change).await.map(|_| ())
    }

    /// Makes an object as a scenario writes it: without `apiVersion` and, often, namespace, but
    /// with its status.
    pub(super) async fn create(&self, mut object: Value) -> Result<Value, PlayError> {
        let kind = find(object.get("kind").and_then(Value::as_str).unwrap_or_default())?;
        complete(&mut object, kind);
        Ok(serde_json::to_value(manifests::create(&self.client, &object).await?)?)
    }

    /// Takes away what earlier scenarios left, and makes the namespaces.
    pub(super) async fn clean(&self) -> Result<(), PlayError> {
        for kind in CLEANED {
            for object in self.list(kind).await? {
                self.wipe(kind, &object).await?;
            }
        }
        self.ensure(&NAMESPACES.map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        ))
        .await
    }

    /// Takes the kinds of snapshots away, until `manifests` puts them back.
    pub(super) async fn forget_snapshots(&self) -> Result<(), PlayError> {
        const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for kind in OF_SNAPSHOTS {
            let kind = find(kind)?;
            let path = format!("{DEFINITIONS}/{}.snapshot.storage.k8s.io", kind.plural);
            self.send(Method::DELETE, &path, None).await?;
            let path = collection(kind, None);
            let gone = async || {
                let answer = self.send(Method::GET, &path, None).await;
                answer.map(|(code, _)| (code == 404).then_some(())).transpose()
            };
            until(PATIENCE, POLL_INTERVAL, gone).await.transpose()?;
        }
        Ok(())
    }

    /// Deletes an object with its finalizers; those of the system's own namespaces stay.
    async fn wipe(&self, kind: &str, object: &Value) -> Result<(), PlayError> {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let namespace = text("/metadata/namespace");
        if namespace.is_some_and(|namespace| namespace.starts_with("kube-")) {
            return Ok(());
        }
        let name = text("/metadata/name").unwrap_or_default();
        let path = Address { kind, namespace, name }.path()?;
        if object.pointer("/metadata/finalizers").is_some() {
            let bare = json!({"metadata": {"finalizers": null}});
            self.send(Method::PATCH, &path, Some((&bare, MERGE_PATCH))).await?;
        }
        let at_once = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
        self.send(Method::DELETE, &path, Some((&at_once, JSON))).await?;
        Ok(())
    }
}

/// Adds what a scenario leaves out: the namespace and the version.
fn complete(object: &mut Value, kind: &Kind) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
    let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata.filter(|_| kind.namespaced) {
        metadata.entry("namespace").or_insert_with(|| NAMESPACE.into());
    }
}
