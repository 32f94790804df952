//! CSIStorageCapacity objects: publishes how much free space the driver has, for the scheduler.
//!
//! One object exists for each StorageClass in each [`Segment`] of the cluster. `index` holds the
//! desired and the existing objects and derives the difference (pure). `publisher` calls GetCapacity
//! and writes, through `store` in the API version that the server serves. `object` holds the content
//! of an object, `labels` tells whose it is, and `owner` finds its owner.
//!
//! Guarantees: of several objects for one class and segment, as a lost response to a POST leaves them, all
//! but one are deleted once they are seen; objects of others are never modified; nothing is written before
//! all inputs have been listed, or by a standby. Node topology belongs to `nodes`, the environment to `flags`.

mod index;
mod labels;
mod object;
mod owner;
mod publisher;
mod segment;
mod store;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use self::store::Version;
pub use self::{
    publisher::{Publisher, PublisherDeps},
    segment::Segment,
};
use crate::{
    flags,
    kube::{Client, Scope},
};

/// Where the objects go, resolved against the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Destination {
    /// The namespace of the objects.
    namespace: String,
    /// `namespace` as a scope for lists and watches.
    scope: Scope,
    /// The owner reference of each object.
    owner: Option<OwnerReference>,
    /// The API version that the server serves.
    version: Version,
}

impl Destination {
    /// Resolves the destination. Returns `None` if the server does not serve the kind. Writes
    /// nothing.
    ///
    /// # Errors
    /// What is missing; texts are external-provisioner's. As there, this is independent of the driver's
    /// capabilities.
    pub async fn find(client: &Client, flags: &flags::Capacity) -> Result<Option<Self>, String> {
        let flags::Capacity { namespace, pod, .. } = flags;
        if namespace.is_empty() {
            return Err("need NAMESPACE env variable for CSIStorageCapacity objects".to_owned());
        }
        let owner = match flags.owner_level() {
            None => None,
            Some(_) if pod.is_empty() => {
                let why = "need POD_NAME env variable to determine CSIStorageCapacity owner";
                return Err(why.to_owned());
            }
            Some(level) => {
                let found = owner::find_owner(client, namespace, pod, level).await;
                Some(found.map_err(|why| format!("look up owner(s) of pod: {why}"))?)
            }
        };
        if let Some(OwnerReference { api_version, kind, name, .. }) = &owner {
            tracing::info!(
                "using {api_version}/{kind} {name} as owner of CSIStorageCapacity objects"
            );
        }
        let scope = Scope::namespace(namespace).map_err(|bad| format!("NAMESPACE: {bad}"))?;
        let version = Version::find(client).await.map_err(|error| {
            format!("unexpected error when checking for the V1 CSIStorageCapacity API: {error}")
        })?;
        let Some(version) = version else {
            tracing::warn!(
                "this API server knows no CSIStorageCapacity (v1 or v1beta1): --enable-capacity publishes nothing"
            );
            return Ok(None);
        };
        tracing::info!("using the CSIStorageCapacity {} API", version.name());
        Ok(Some(Self { namespace: namespace.to_owned(), scope, owner, version }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::kube::testing::{Answer, Server, client};

    fn kinds(kinds: &Value) -> Answer {
        Answer::json(200, &json!({"resources": kinds}))
    }

    /// A server with the pod `prov-0` without owners, which serves the kind in `version`.
    fn server(version: &'static str) -> Server {
        let path = format!("/apis/storage.k8s.io/{version}");
        let objects = json!([{"name": "csistoragecapacities", "kind": "CSIStorageCapacity", "namespaced": true}]);
        Server::new(move |_, request| match &*request.url {
            "/api/v1" => kinds(&json!([{"name": "pods", "kind": "Pod", "namespaced": true}])),
            "/api/v1/namespaces/csi/pods/prov-0" => {
                Answer::json(200, &json!({"metadata": {"uid": "u"}}))
            }
            url if url == path => kinds(&objects),
            "/apis/storage.k8s.io/v1" => kinds(&json!([])),
            _ => Answer::refusal(404, "NotFound", "pods \"ghost\" not found"),
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

    fn flags(owner: Option<(&str, u32)>) -> flags::Capacity {
        in_namespace("csi", owner)
    }

    async fn find(flags: flags::Capacity) -> Result<Option<Destination>, String> {
        Destination::find(&client(&server("v1")), &flags).await
    }

    #[tokio::test]
    async fn objects_go_to_the_namespace_and_belong_to_the_owner() {
        let found = find(flags(Some(("prov-0", 0)))).await.unwrap().unwrap();
        assert_eq!(found.namespace, "csi");
        assert_eq!(found.owner.map(|owner| owner.uid).as_deref(), Some("u"));
        let without = find(flags(None)).await.unwrap().unwrap();
        assert_eq!(without.owner, None, "and no pod is needed");
    }

    #[tokio::test]
    async fn the_newest_version_is_taken_that_the_server_serves() {
        for (served, expected) in
            [("v1", Some(Version::V1)), ("v1beta1", Some(Version::V1beta1)), ("v2", None)]
        {
            let found = Destination::find(&client(&server(served)), &flags(None)).await.unwrap();
            assert_eq!(found.map(|found| found.version), expected, "{served}");
        }
        let mute = Server::new(|_, _| Answer::status(500));
        let error = Destination::find(&client(&mute), &flags(None)).await.unwrap_err();
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
            (flags(Some(("", 0))), pod),
            (
                flags(Some(("ghost", 0))),
                "look up owner(s) of pod: get object: pods \"ghost\" not found",
            ),
            (
                flags(Some(("prov-0", 1))),
                "look up owner(s) of pod: v1/Pod \"prov-0\" in namespace \"csi\" has no controlling owner, cannot unwind the ownership further",
            ),
        ] {
            assert_eq!(find(flags).await.unwrap_err(), expected);
        }
        let odd = find(in_namespace("..", None)).await.unwrap_err();
        assert!(odd.starts_with("NAMESPACE: "), "{odd}");
    }
}
