//! Finds the owner of published objects: this pod, or the controller a number of levels above it.
//!
//! Names from owner references are checked before they are used in a URL. The owner itself needs no RBAC
//! permission, since it is named in the reference of the object that it controls. Error texts are
//! external-provisioner's.

use go_fmt::quote;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::kube::{ApiError, Client, Name, Served, objects::Metadata};

/// Finds the owner `levels` above the pod: 0 is the pod itself, 1 its controller, and so on.
///
/// # Errors
/// An object on the way cannot be read or has no controller.
pub(super) async fn find_owner(
    client: &Client,
    namespace: &str,
    pod: &str,
    levels: u32,
) -> Result<OwnerReference, String> {
    let mut owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.to_owned(),
        ..OwnerReference::default()
    };
    if levels == 0 {
        let pod = read(client, namespace, &owner).await?;
        let uid = pod.uid.unwrap_or_default().to_string();
        return Ok(OwnerReference { uid, controller: Some(true), ..owner });
    }
    for _ in 0..levels {
        let metadata = read(client, namespace, &owner).await?;
        owner = controller_of(&owner, namespace, &metadata)?;
    }
    Ok(owner)
}

/// The controller of the object `current`.
fn controller_of(
    current: &OwnerReference,
    namespace: &str,
    metadata: &Metadata,
) -> Result<OwnerReference, String> {
    let mut owners = metadata.owner_references.iter();
    let Some(controller) = owners.find(|owner| owner.controller == Some(true)) else {
        let OwnerReference { api_version, kind, name, .. } = current;
        return Err(format!(
            "{api_version}/{kind} {} in namespace {} has no controlling owner, cannot unwind the ownership further",
            quote(name),
            quote(namespace)
        ));
    };
    group_and_version(&controller.api_version)?;
    Ok(OwnerReference { block_owner_deletion: None, ..controller.clone() })
}

async fn read(
    client: &Client,
    namespace: &str,
    current: &OwnerReference,
) -> Result<Metadata, String> {
    let failed = |error: ApiError| format!("get object: {error}");
    let OwnerReference { api_version, kind, name, .. } = current;
    let (group, version) = group_and_version(api_version)?;
    let Some(Served { kind, namespaced }) =
        client.find_kind(group, version, kind).await.map_err(failed)?
    else {
        let (kind, version) = (quote(kind), quote(api_version));
        return Err(format!("get object: no matches for kind {kind} in version {version}"));
    };
    let name = if namespaced { Name::namespaced(namespace, name) } else { Name::cluster(name) };
    let name = name.map_err(|bad| failed(bad.into()))?;
    client.get_metadata(&kind, name).await.map_err(failed)
}

/// Parses `apiVersion` as apimachinery does: `<group>/<version>`, or a version of the core group.
fn group_and_version(api_version: &str) -> Result<(&str, &str), String> {
    match api_version.split_once('/') {
        None => Ok(("", api_version)),
        Some((group, version)) if !version.contains('/') => Ok((group, version)),
        Some(_) => Err(format!(
            "parse OwnerReference.APIVersion: unexpected GroupVersion string: {api_version}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reference(value: Value) -> OwnerReference {
        serde_json::from_value(value).unwrap()
    }

    fn pod() -> OwnerReference {
        reference(json!({"apiVersion": "v1", "kind": "Pod", "name": "prov-0", "uid": ""}))
    }

    /// The owner as it is written into objects.
    fn shown(owner: &OwnerReference) -> String {
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), None));
        format!("{} {} {} {}", owner.api_version, owner.kind, owner.name, owner.uid)
    }

    fn owner(kind: &str, name: &str, controller: Option<bool>) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name,
               "controller": controller, "blockOwnerDeletion": true})
    }

    #[test]
    fn an_object_leads_to_its_controller_or_nowhere() {
        let second = json!([
            owner("ConfigMap", "other", None),
            owner("Secret", "third", Some(false)),
            owner("ReplicaSet", "prov-abc", Some(true)),
        ]);
        let of_version = |version: &str| json!([{"apiVersion": version, "kind": "K", "name": "n", "uid": "n", "controller": true}]);
        let nowhere = Err(
            "v1/Pod \"prov-0\" in namespace \"csi\" has no controlling owner, cannot unwind the ownership further",
        );
        for (owners, expected) in [
            (
                json!([owner("StatefulSet", "prov", Some(true))]),
                Ok("apps/v1 StatefulSet prov prov"),
            ),
            (second, Ok("apps/v1 ReplicaSet prov-abc prov-abc")),
            (json!(null), nowhere),
            (json!([]), nowhere),
            (json!([owner("ConfigMap", "other", None)]), nowhere),
            (
                of_version("a/b/c"),
                Err("parse OwnerReference.APIVersion: unexpected GroupVersion string: a/b/c"),
            ),
            (of_version("v1"), Ok("v1 K n n")),
        ] {
            let metadata =
                serde_json::from_value(json!({"uid": "u", "ownerReferences": owners})).unwrap();
            let found = controller_of(&pod(), "csi", &metadata).map(|owner| shown(&owner));
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{owners}");
        }
    }
}
