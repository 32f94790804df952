//! Who owns what is published: this pod, or what controls it so many levels up.
//!
//! Owns the way up. Promises that each step is judged by a pure function, that names from owner
//! references never reach a URL unchecked, and that the last step needs no right: what owns is
//! named by what it controls. Leaves what is owned to the callers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::{
    go_fmt::quote,
    kube::{ApiError, Client, Name, Served},
};

/// Why there is no owner; in the original's words.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// An object on the way cannot be read.
    #[error("get object: {0}")]
    Get(#[from] ApiError),
    /// An object on the way is of a kind that the server does not serve.
    #[error("get object: no matches for kind {} in version {}", quote(.kind), quote(.api_version))]
    UnknownKind {
        /// Its kind.
        kind: String,
        /// Group and version.
        api_version: String,
    },
    /// A controller's API version is none.
    #[error("parse OwnerReference.APIVersion: unexpected GroupVersion string: {0}")]
    ApiVersion(String),
    /// Nothing controls an object on the way, but levels are left.
    #[error("{about} has no controlling owner, cannot unwind the ownership further")]
    NoController {
        /// The object: `v1/Pod "name" in namespace "namespace"`.
        about: String,
    },
}

/// What one object on the way says.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// This is the owner.
    Arrived(OwnerReference),
    /// The way leads on through this one.
    Climb(OwnerReference),
}

/// The owner so many `levels` above the pod: itself at 0, its controller at 1 and so on.
///
/// # Errors
/// See [`LookupError`].
pub async fn look_up(
    client: &Client,
    namespace: &str,
    pod: &str,
    levels: u32,
) -> Result<OwnerReference, LookupError> {
    let mut at = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.to_owned(),
        ..OwnerReference::default()
    };
    let mut left = levels;
    loop {
        let metadata = read(client, namespace, &at).await?;
        match step(&at, namespace, &metadata, left)? {
            Step::Arrived(owner) => return Ok(owner),
            Step::Climb(controller) => at = controller,
        }
        left = left.saturating_sub(1);
    }
}

/// Where the way leads from the object `at` with so many levels `left`.
fn step(
    at: &OwnerReference,
    namespace: &str,
    metadata: &ObjectMeta,
    left: u32,
) -> Result<Step, LookupError> {
    if left == 0 {
        let uid = metadata.uid.clone().unwrap_or_default();
        return Ok(Step::Arrived(OwnerReference { uid, controller: Some(true), ..at.clone() }));
    }
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners
        .find(|owner| owner.controller == Some(true))
        .ok_or_else(|| LookupError::NoController { about: about(at, namespace) })?;
    group_and_version(&controller.api_version)?;
    let controller = OwnerReference { block_owner_deletion: None, ..controller.clone() };
    Ok(if left == 1 { Step::Arrived(controller) } else { Step::Climb(controller) })
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
    at: &OwnerReference,
) -> Result<ObjectMeta, LookupError> {
    let (group, version) = group_and_version(&at.api_version)?;
    let Some(Served { kind, namespaced }) = client.find_kind(group, version, &at.kind).await?
    else {
        let (kind, api_version) = (at.kind.clone(), at.api_version.clone());
        return Err(LookupError::UnknownKind { kind, api_version });
    };
    let name =
        if namespaced { Name::namespaced(namespace, &at.name) } else { Name::cluster(&at.name) };
    Ok(client.get_metadata(&kind, name.map_err(ApiError::from)?).await?)
}

/// apimachinery's reading of `apiVersion`: `<group>/<version>`, or a version of the core group.
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

    /// What `step` says, as a text.
    fn told(owners: &Value, left: u32) -> String {
        let metadata =
            serde_json::from_value(json!({"uid": "u", "ownerReferences": owners})).unwrap();
        let of = |owner: OwnerReference| {
            assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), None));
            format!("{} {} {} {}", owner.api_version, owner.kind, owner.name, owner.uid)
        };
        match step(&pod(), "csi", &metadata, left) {
            Ok(Step::Arrived(owner)) => format!("arrived at {}", of(owner)),
            Ok(Step::Climb(owner)) => format!("climb to {}", of(owner)),
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
            assert_eq!(told(&owners, left), expected, "{owners} {left}");
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
    fn cluster(seen: &str) -> Answer {
        let kinds = |kinds: Value| Answer::json(200, &json!({"resources": kinds}));
        let owned = |owners: Value| {
            Answer::json(200, &json!({"metadata": {"uid": "u", "ownerReferences": owners}}))
        };
        let world = json!([{"apiVersion": "example.com/v1", "kind": "Env", "name": "w",
                            "uid": "w", "controller": true}]);
        match seen {
            "/api/v1" => kinds(json!([{"name": "pods", "kind": "Pod", "namespaced": true}])),
            "/apis/apps/v1" => kinds(json!([
                {"name": "replicasets", "kind": "ReplicaSet", "namespaced": true},
                {"name": "deployments", "kind": "Deployment", "namespaced": true},
            ])),
            "/apis/example.com/v1" => kinds(json!([{"name": "worlds", "kind": "Env"}])),
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
    async fn the_way_up_reads_all_but_the_last() {
        for (levels, expected, reads) in [
            (0, "Pod prov-0", 1),
            (1, "ReplicaSet rs", 1),
            (2, "Deployment prov", 2),
            (3, "Env w", 3),
            (4, "Galaxy ../g", 4),
        ] {
            let server = Server::new(|_, seen| cluster(&seen.url));
            let owner = look_up(&client(&server), "csi", "prov-0", levels).await.unwrap();
            assert_eq!(format!("{} {}", owner.kind, owner.name), expected);
            assert_eq!(server.seen().len(), 2 * reads, "each with its kind's names");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_ends_the_way() {
        for (pod, levels, expected) in [
            ("ghost", 0, "get object: not found"),
            ("a/b", 1, "get object: invalid resource name \"a/b\": [may not contain '/']"),
            ("prov-0", 5, "get object: no matches for kind \"Galaxy\" in version \"apps/v1\""),
        ] {
            let server = Server::new(|_, seen| cluster(&seen.url));
            let error = look_up(&client(&server), "csi", pod, levels).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let refused = Server::new(|_, _| Answer::refusal(403, "Forbidden", "no"));
        let error = look_up(&client(&refused), "csi", "prov-0", 1).await.unwrap_err();
        assert_eq!(error.to_string(), "get object: no");
    }
}
