//! Finds the owner of published objects: this pod, or the controller a number of levels above it.
//!
//! Each step is decided by a pure function. Names from owner references are checked before they are
//! used in a URL. The last step needs no RBAC permission, since the owner is named in the reference
//! of the object that it controls.

use go_fmt::quote;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::kube::{ApiError, Client, Name, Served, objects::Metadata};

/// Why the owner cannot be found; texts are external-provisioner's.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// An object in the chain cannot be read.
    #[error("get object: {0}")]
    Get(#[from] ApiError),
    /// The server does not serve the kind of an object in the chain.
    #[error("get object: no matches for kind {} in version {}", quote(.kind), quote(.api_version))]
    UnknownKind {
        /// Its kind.
        kind: String,
        /// Group and version.
        api_version: String,
    },
    /// A controller's API version is malformed.
    #[error("parse OwnerReference.APIVersion: unexpected GroupVersion string: {0}")]
    ApiVersion(String),
    /// An object in the chain has no controller, but levels are left.
    #[error("{about} has no controlling owner, cannot unwind the ownership further")]
    NoController {
        /// The object: `v1/Pod "name" in namespace "namespace"`.
        about: String,
    },
}

/// The result of reading one object in the chain.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// This is the owner.
    Owner(OwnerReference),
    /// Continue with this controller.
    Continue(OwnerReference),
}

/// Finds the owner `levels` above the pod: 0 is the pod itself, 1 its controller, and so on.
///
/// # Errors
/// See [`LookupError`].
pub async fn find_owner(
    client: &Client,
    namespace: &str,
    pod: &str,
    levels: u32,
) -> Result<OwnerReference, LookupError> {
    let mut current = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.to_owned(),
        ..OwnerReference::default()
    };
    let mut left = levels;
    loop {
        let metadata = read(client, namespace, &current).await?;
        match step(&current, namespace, &metadata, left)? {
            Step::Owner(owner) => return Ok(owner),
            Step::Continue(controller) => current = controller,
        }
        left = left.saturating_sub(1);
    }
}

/// Decides the step from the object `current` with `left` levels left.
fn step(
    current: &OwnerReference,
    namespace: &str,
    metadata: &Metadata,
    left: u32,
) -> Result<Step, LookupError> {
    if left == 0 {
        let uid = metadata.uid.clone().unwrap_or_default().to_string();
        return Ok(Step::Owner(OwnerReference { uid, controller: Some(true), ..current.clone() }));
    }
    let mut owners = metadata.owner_references.iter();
    let controller = owners
        .find(|owner| owner.controller == Some(true))
        .ok_or_else(|| LookupError::NoController { about: about(current, namespace) })?;
    group_and_version(&controller.api_version)?;
    let controller = OwnerReference { block_owner_deletion: None, ..controller.clone() };
    Ok(if left == 1 { Step::Owner(controller) } else { Step::Continue(controller) })
}

fn about(
    OwnerReference { api_version, kind, name, .. }: &OwnerReference,
    namespace: &str,
) -> String {
    format!("{api_version}/{kind} {} in namespace {}", quote(name), quote(namespace))
}

async fn read(
    client: &Client,
    namespace: &str,
    current: &OwnerReference,
) -> Result<Metadata, LookupError> {
    let (group, version) = group_and_version(&current.api_version)?;
    let Some(Served { kind, namespaced }) = client.find_kind(group, version, &current.kind).await?
    else {
        let kind = current.kind.clone();
        let api_version = current.api_version.clone();
        return Err(LookupError::UnknownKind { kind, api_version });
    };
    let name = if namespaced {
        Name::namespaced(namespace, &current.name)
    } else {
        Name::cluster(&current.name)
    };
    Ok(client.get_metadata(&kind, name.map_err(ApiError::from)?).await?)
}

/// Parses `apiVersion` as apimachinery does: `<group>/<version>`, or a version of the core group.
fn group_and_version(api_version: &str) -> Result<(&str, &str), LookupError> {
    match api_version.split_once('/') {
        None => Ok(("", api_version)),
        Some((group, version)) if !version.contains('/') => Ok((group, version)),
        Some(_) => Err(LookupError::ApiVersion(api_version.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::testing::{Answer, Server, client};

    fn reference(value: Value) -> OwnerReference {
        serde_json::from_value(value).unwrap()
    }

    fn pod() -> OwnerReference {
        reference(json!({"apiVersion": "v1", "kind": "Pod", "name": "prov-0", "uid": ""}))
    }

    fn owner(kind: &str, name: &str, controller: Option<bool>) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name,
               "controller": controller, "blockOwnerDeletion": true})
    }

    /// The result of `step` as text.
    fn outcome(owners: &Value, left: u32) -> String {
        let metadata =
            serde_json::from_value(json!({"uid": "u", "ownerReferences": owners})).unwrap();
        let of = |owner: OwnerReference| {
            assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), None));
            format!("{} {} {} {}", owner.api_version, owner.kind, owner.name, owner.uid)
        };
        match step(&pod(), "csi", &metadata, left) {
            Ok(Step::Owner(owner)) => format!("arrived at {}", of(owner)),
            Ok(Step::Continue(owner)) => format!("climb to {}", of(owner)),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_step_leads_to_the_object_itself_to_its_controller_or_nowhere() {
        let set = json!([owner("StatefulSet", "prov", Some(true))]);
        let second = json!([
            owner("ConfigMap", "other", None),
            owner("Secret", "third", Some(false)),
            owner("ReplicaSet", "prov-abc", Some(true)),
        ]);
        let bad = |version: &str| json!([{"apiVersion": version, "kind": "K", "name": "n", "uid": "n", "controller": true}]);
        let nowhere = "v1/Pod \"prov-0\" in namespace \"csi\" has no controlling owner, cannot unwind the ownership further";
        let unreadable = "parse OwnerReference.APIVersion: unexpected GroupVersion string: a/b/c";
        for (owners, left, expected) in [
            (json!(null), 0, "arrived at v1 Pod prov-0 u"),
            (set.clone(), 0, "arrived at v1 Pod prov-0 u"),
            (set.clone(), 1, "arrived at apps/v1 StatefulSet prov prov"),
            (set, 2, "climb to apps/v1 StatefulSet prov prov"),
            (second.clone(), 1, "arrived at apps/v1 ReplicaSet prov-abc prov-abc"),
            (second, u32::MAX, "climb to apps/v1 ReplicaSet prov-abc prov-abc"),
            (json!(null), 1, nowhere),
            (json!([]), 1, nowhere),
            (json!([owner("ConfigMap", "other", None)]), 1, nowhere),
            (bad("a/b/c"), 0, "arrived at v1 Pod prov-0 u"),
            (bad("a/b/c"), 1, unreadable),
            (bad("a/b/c"), 2, unreadable),
            (bad("v1"), 1, "arrived at v1 K n n"),
        ] {
            assert_eq!(outcome(&owners, left), expected, "{owners} {left}");
        }
    }

    #[test]
    fn an_api_version_is_read_as_apimachinery_reads_it() {
        for (text, expected) in [
            ("v1", Some(("", "v1"))),
            ("apps/v1", Some(("apps", "v1"))),
            ("/v1", Some(("", "v1"))),
            ("", Some(("", ""))),
            ("a/b/c", None),
        ] {
            assert_eq!(group_and_version(text).ok(), expected, "{text}");
        }
    }

    /// A cluster where a pod's owners are a `ReplicaSet`, a Deployment and a World.
    fn cluster(url: &str) -> Answer {
        let kinds = |kinds: Value| Answer::json(200, &json!({"resources": kinds}));
        let owned = |owners: Value| {
            Answer::json(200, &json!({"metadata": {"uid": "u", "ownerReferences": owners}}))
        };
        let world = json!([{"apiVersion": "example.com/v1", "kind": "World", "name": "w",
                            "uid": "w", "controller": true}]);
        match url {
            "/api/v1" => kinds(json!([{"name": "pods", "kind": "Pod", "namespaced": true}])),
            "/apis/apps/v1" => kinds(json!([
                {"name": "replicasets", "kind": "ReplicaSet", "namespaced": true},
                {"name": "deployments", "kind": "Deployment", "namespaced": true},
            ])),
            "/apis/example.com/v1" => kinds(json!([{"name": "worlds", "kind": "World"}])),
            "/api/v1/namespaces/csi/pods/prov-0" => {
                owned(json!([owner("ReplicaSet", "rs", Some(true))]))
            }
            "/apis/apps/v1/namespaces/csi/replicasets/rs" => {
                owned(json!([owner("Deployment", "prov", Some(true))]))
            }
            "/apis/apps/v1/namespaces/csi/deployments/prov" => owned(world),
            "/apis/example.com/v1/worlds/w" => owned(json!([owner("Galaxy", "../g", Some(true))])),
            _ => Answer::refusal(404, "NotFound", "not found"),
        }
    }

    #[tokio::test]
    async fn the_owner_itself_is_not_read() {
        for (levels, expected, reads) in [
            (0, "Pod prov-0", 1),
            (1, "ReplicaSet rs", 1),
            (2, "Deployment prov", 2),
            (3, "World w", 3),
            (4, "Galaxy ../g", 4),
        ] {
            let server = Server::new(|_, request| cluster(&request.url));
            let owner = find_owner(&client(&server), "csi", "prov-0", levels).await.unwrap();
            assert_eq!(format!("{} {}", owner.kind, owner.name), expected);
            assert_eq!(server.requests().len(), 2 * reads, "each with its kind's names");
        }
    }

    #[tokio::test]
    async fn an_unreadable_object_is_an_error() {
        for (pod, levels, expected) in [
            ("ghost", 0, "get object: not found"),
            ("a/b", 1, "get object: invalid resource name \"a/b\": [may not contain '/']"),
            ("prov-0", 5, "get object: no matches for kind \"Galaxy\" in version \"apps/v1\""),
        ] {
            let server = Server::new(|_, request| cluster(&request.url));
            let error = find_owner(&client(&server), "csi", pod, levels).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let refused = Server::new(|_, _| Answer::refusal(403, "Forbidden", "no"));
        let error = find_owner(&client(&refused), "csi", "prov-0", 1).await.unwrap_err();
        assert_eq!(error.to_string(), "get object: no");
    }
}
