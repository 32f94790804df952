//! CSIStorageCapacity objects: how much room there is, told to the scheduler.
//!
//! One object for each class in each [`Segment`] of the cluster (reference 6). What follows from
//! what was seen is decided by pure bookkeeping (`book`); `publisher` asks the driver and writes,
//! through `store` in the version that the server serves; `object` says what an object holds,
//! `names` what it is called and whose it is, [`owner`] who owns it, and [`Refresher`] when room may
//! have changed between two polls.
//!
//! Promises: no two objects for one pair, whoever publishes and whatever answer was lost; objects
//! of others are never touched; nothing is written before all that counts is listed, or by a
//! standby. Leaves where nodes are to `nodes`, and reading the environment to `flags`.

mod book;
mod names;
mod object;
pub mod owner;
mod publisher;
mod refresh;
mod segment;
mod store;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub use self::{
    publisher::{Deps, Publisher, Settings},
    refresh::Refresher,
    segment::Segment,
    store::Version,
};
use crate::kube::{ApiError, BadName, Client, Scope};

/// What flags and environment say of the objects' place.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The objects' namespace, and that of this pod; empty where the environment has none.
    pub namespace: &'a str,
    /// This pod (empty where the environment names none), and how many controllers above it the owner is; `None`: no owner.
    pub owner: Option<(&'a str, u32)>,
}

/// Where the objects go.
#[derive(Debug, Clone, PartialEq)]
pub struct Destination {
    /// The namespace they live in.
    namespace: String,
    /// The same as lists and watches want it.
    scope: Scope,
    /// Whose end is theirs too.
    owner: Option<OwnerReference>,
    /// The version that the server serves.
    version: Version,
}

/// Why nothing can be published; in the original's words (reference 1.3).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The objects need a namespace.
    #[error("need NAMESPACE env variable for CSIStorageCapacity objects")]
    NoNamespace,
    /// The way to the owner begins at the pod.
    #[error("need POD_NAME env variable to determine CSIStorageCapacity owner")]
    NoPodName,
    /// There is no such owner, or it cannot be found out.
    #[error("look up owner(s) of pod: {0}")]
    Owner(#[from] owner::LookupError),
    /// The namespace cannot be one.
    #[error("NAMESPACE: {0}")]
    Namespace(#[from] BadName),
    /// The server does not say what it serves.
    #[error("unexpected error when checking for the V1 CSIStorageCapacity API: {0}")]
    Version(#[source] ApiError),
}

impl Destination {
    /// Where the objects go; none on a server that does not know them. Nothing is written.
    ///
    /// # Errors
    /// What is missing, whatever the driver can do: as in the original.
    pub async fn find(client: &Client, place: Place<'_>) -> Result<Option<Self>, Error> {
        let Place { namespace, owner } = place;
        if namespace.is_empty() {
            return Err(Error::NoNamespace);
        }
        let owner = match owner {
            None => None,
            Some(("", _)) => return Err(Error::NoPodName),
            Some((pod, levels)) => Some(owner::look_up(client, namespace, pod, levels).await?),
        };
        if let Some(OwnerReference { api_version, kind, name, .. }) = &owner {
            tracing::info!(
                "using {api_version}/{kind} {name} as owner of CSIStorageCapacity objects"
            );
        }
        let scope = Scope::namespace(namespace)?;
        let Some(version) = Version::find(client).await.map_err(Error::Version)? else {
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
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::testing::{Answer, Server, client};

    fn kinds(kinds: &Value) -> Answer {
        Answer::json(200, &json!({"resources": kinds}))
    }

    /// A server with the pod `prov-0`, which nobody owns, that serves objects in that version.
    fn server(version: &'static str) -> Server {
        let path = format!("/apis/storage.k8s.io/{version}");
        let objects = json!([{"name": "csistoragecapacities", "kind": "CSIStorageCapacity", "namespaced": true}]);
        Server::new(move |_, seen| match &*seen.url {
            "/api/v1" => kinds(&json!([{"name": "pods", "kind": "Pod", "namespaced": true}])),
            "/api/v1/namespaces/csi/pods/prov-0" => {
                Answer::json(200, &json!({"metadata": {"uid": "u"}}))
            }
            url if url == path => kinds(&objects),
            "/apis/storage.k8s.io/v1" => kinds(&json!([])),
            _ => Answer::refusal(404, "NotFound", "pods \"ghost\" not found"),
        })
    }

    fn place(owner: Option<(&str, u32)>) -> Place<'_> {
        Place { namespace: "csi", owner }
    }

    async fn find(place: Place<'_>) -> Result<Option<Destination>, Error> {
        Destination::find(&client(&server("v1")), place).await
    }

    #[tokio::test]
    async fn objects_go_to_the_namespace_and_belong_to_the_owner() {
        let found = find(place(Some(("prov-0", 0)))).await.unwrap().unwrap();
        assert_eq!(found.namespace, "csi");
        assert_eq!(found.owner.map(|owner| owner.uid).as_deref(), Some("u"));
        let without = find(place(None)).await.unwrap().unwrap();
        assert_eq!(without.owner, None, "and no pod is needed");
    }

    #[tokio::test]
    async fn the_newest_version_is_taken_that_the_server_serves() {
        for (served, expected) in
            [("v1", Some(Version::V1)), ("v1beta1", Some(Version::V1beta1)), ("v1alpha1", None)]
        {
            let found = Destination::find(&client(&server(served)), place(None)).await.unwrap();
            assert_eq!(found.map(|found| found.version), expected, "{served}");
        }
        let mute = Server::new(|_, _| Answer::status(500));
        let error = Destination::find(&client(&mute), place(None)).await.unwrap_err();
        let told = "unexpected error when checking for the V1 CSIStorageCapacity API: ";
        assert!(error.to_string().starts_with(told), "{error}");
    }

    #[tokio::test]
    async fn what_is_missing_is_told_in_this_order() {
        let namespace = "need NAMESPACE env variable for CSIStorageCapacity objects";
        let pod = "need POD_NAME env variable to determine CSIStorageCapacity owner";
        for (place, expected) in [
            (Place { namespace: "", owner: Some(("", 1)) }, namespace),
            (Place { namespace: "", owner: None }, namespace),
            (place(Some(("", 0))), pod),
            (
                place(Some(("ghost", 0))),
                "look up owner(s) of pod: get object: pods \"ghost\" not found",
            ),
            (
                place(Some(("prov-0", 1))),
                "look up owner(s) of pod: v1/Pod \"prov-0\" in namespace \"csi\" has no controlling owner, cannot unwind the ownership further",
            ),
        ] {
            assert_eq!(find(place).await.unwrap_err().to_string(), expected);
        }
        let odd = find(Place { namespace: "..", owner: None }).await.unwrap_err();
        assert!(matches!(odd, Error::Namespace(_)), "{odd}");
    }
}
