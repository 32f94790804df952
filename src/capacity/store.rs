//! Access to the objects at the API server, in the version that it serves.
//!
//! A change is patched only onto the version for which it was made, and a deletion applies only to
//! that very object (UID precondition).

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::{labels::ObjectLabels, object::Object, owner};
use crate::{
    flags,
    kube::{
        ApiError, Client, Informer, InformerEvent, Name, Patch, Scope,
        objects::{StorageCapacity, View as _},
    },
    metrics::Metrics,
    runtime::{Random, Tasks},
};

/// The versions in which a server may have the kind, all with the same fields: v1beta1 before Kubernetes 1.24.
const VERSIONS: [&str; 2] = [StorageCapacity::VERSION, "v1beta1"];

/// Where our objects are.
pub struct Store {
    client: Client,
    /// The namespace of the objects.
    namespace: String,
    /// `namespace` as a scope for lists and watches.
    scope: Scope,
    /// The owner reference of each object.
    pub(super) owner: Option<OwnerReference>,
}

impl Store {
    /// Finds out by `reads` where the objects go, which `client` reads and writes. Returns `None` if the server
    /// does not serve the kind. Writes nothing.
    ///
    /// # Errors
    /// What is missing; texts are external-provisioner's. As there, this is independent of the driver's
    /// capabilities.
    pub async fn find(
        reads: &Client,
        client: &Client,
        flags: &flags::Capacity,
    ) -> Result<Option<Self>, String> {
        let namespace = flags.namespace.clone();
        if namespace.is_empty() {
            return Err("need NAMESPACE env variable for CSIStorageCapacity objects".to_owned());
        }
        let owner = find_owner(reads, flags).await?;
        let scope = Scope::namespace(&namespace).map_err(|bad| format!("NAMESPACE: {bad}"))?;
        let version = find_version(reads).await.map_err(|error| {
            format!("unexpected error when checking for the V1 CSIStorageCapacity API: {error}")
        })?;
        let Some(version) = version else {
            tracing::warn!(
                "this API server knows no CSIStorageCapacity (v1 or v1beta1): --enable-capacity publishes nothing"
            );
            return Ok(None);
        };
        tracing::info!("using the CSIStorageCapacity {version} API");
        let client = client.in_version::<StorageCapacity>(version);
        Ok(Some(Self { client, namespace, scope, owner }))
    }

    /// Creates an object.
    pub(super) async fn create(&self, body: &Value) -> Result<Object, ApiError> {
        let created = self.client.create::<StorageCapacity>(Some(&self.namespace), body).await;
        created.map(Object::from)
    }

    /// Applies the merge patch if the object is still in the known version; `None` if it is gone.
    pub(super) async fn correct(
        &self,
        object: &Object,
        patch: Value,
    ) -> Result<Option<Object>, ApiError> {
        let name = Name::namespaced(&self.namespace, &object.name)?;
        match self.client.patch::<StorageCapacity>(name, &Patch::Merge(patch)).await {
            Err(error) if error.is_not_found() => Ok(None),
            patched => patched.map(Object::from).map(Some),
        }
    }

    /// Deletes this very object.
    pub(super) async fn delete(&self, object: &Object) -> Result<(), ApiError> {
        let name = Name::namespaced(&self.namespace, &object.name)?;
        self.client.delete::<StorageCapacity>(name, Some(&object.uid)).await.map(drop)
    }

    /// Starts the watch of the objects with these labels.
    pub(super) fn watch(
        &self,
        labels: &ObjectLabels,
        tasks: &Tasks,
        random: Arc<dyn Random>,
        metrics: &Metrics,
        handler: impl FnMut(InformerEvent<StorageCapacity>) + Send + 'static,
    ) {
        let scope = self.scope.clone().labelled(&labels.selector());
        let informer = Informer::new(&self.client, scope, random, metrics);
        tasks.spawn_critical("watch of CSIStorageCapacities", informer.run(handler));
    }
}

/// The owner of the objects, if they are to have one.
async fn find_owner(
    client: &Client,
    flags: &flags::Capacity,
) -> Result<Option<OwnerReference>, String> {
    let flags::Capacity { namespace, pod, .. } = flags;
    let Some(level) = flags.owner_level() else { return Ok(None) };
    if pod.is_empty() {
        let why = "need POD_NAME env variable to determine CSIStorageCapacity owner";
        return Err(why.to_owned());
    }
    let found = owner::find_owner(client, namespace, pod, level).await;
    let owner = found.map_err(|why| format!("look up owner(s) of pod: {why}"))?;
    let OwnerReference { api_version, kind, name, .. } = &owner;
    tracing::info!("using {api_version}/{kind} {name} as owner of CSIStorageCapacity objects");
    Ok(Some(owner))
}

/// The newest version that the server serves.
async fn find_version(client: &Client) -> Result<Option<&'static str>, ApiError> {
    for version in VERSIONS {
        let (group, kind) = (StorageCapacity::GROUP, StorageCapacity::KIND);
        if client.find_kind(group, version, kind).await?.is_some() {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::kube::testing::{Answer, Server, client};

    /// A server that serves the objects, and nothing else.
    fn server() -> Server {
        let objects = json!([{"name": "csistoragecapacities", "kind": "CSIStorageCapacity", "namespaced": true}]);
        Server::new(move |_, request| match &*request.url {
            "/apis/storage.k8s.io/v1" => Answer::json(200, &json!({"resources": objects})),
            _ => Answer::refusal(404, "NotFound", "not found"),
        })
    }

    fn in_namespace(namespace: &str, owner: Option<(&str, u32)>) -> flags::Capacity {
        let (pod, level) = owner.unwrap_or_default();
        flags::Capacity {
            enable_capacity: true,
            workers: 1,
            poll_interval: Duration::from_secs(60),
            for_immediate_binding: false,
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            owner_level: if owner.is_some() { level.into() } else { -1 },
        }
    }

    async fn find(flags: flags::Capacity) -> Result<Option<Store>, String> {
        let client = client(&server());
        Store::find(&client, &client, &flags).await
    }

    #[tokio::test]
    async fn a_server_that_does_not_say_what_it_serves_is_reported() {
        let mute = Server::new(|_, _| Answer::status(500));
        let client = client(&mute);
        let found = Store::find(&client, &client, &in_namespace("csi", None)).await;
        let error = found.err().unwrap();
        let prefix = "unexpected error when checking for the V1 CSIStorageCapacity API: ";
        assert!(error.starts_with(prefix), "{error}");
    }

    #[tokio::test]
    async fn missing_configuration_is_reported_in_order() {
        let namespace = "need NAMESPACE env variable for CSIStorageCapacity objects";
        let pod = "need POD_NAME env variable to determine CSIStorageCapacity owner";
        for (flags, expected) in [
            (in_namespace("", Some(("", 1))), namespace),
            (in_namespace("", None), namespace),
            (in_namespace("csi", Some(("", 0))), pod),
        ] {
            assert_eq!(find(flags).await.err().as_deref(), Some(expected));
        }
        let odd = find(in_namespace("..", None)).await.err().unwrap();
        assert!(odd.starts_with("NAMESPACE: "), "{odd}");
    }
}
