//! What stands in a control plane before a test begins (custom kinds, roles and bindings of
//! `tests/conformance/cluster/*.yaml`), and creating objects on any server.

use std::time::Duration;

use kube::{
    Client, ResourceExt as _,
    api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    apiserver::tree::{items, text},
    until,
};

/// The manifests that tests and scenarios rest on.
const EMBEDDED: [&str; 3] = [
    include_str!("../../../../tests/conformance/cluster/crds.yaml"),
    include_str!("../../../../tests/conformance/cluster/rbac-cephcsi.yaml"),
    include_str!("../../../../tests/conformance/cluster/rbac-full.yaml"),
];

/// How long a custom kind may take until it is served.
const PATIENCE: Duration = Duration::from_secs(30);

/// The objects of the compiled-in manifests.
pub fn embedded() -> Result<Vec<Value>, crate::Error> {
    EMBEDDED.into_iter().map(parse).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
}

/// The objects of one manifest.
pub fn parse(text: &str) -> Result<Vec<Value>, crate::Error> {
    let documents =
        serde_yaml_ng::Deserializer::from_str(text).map(serde::Deserialize::deserialize);
    let objects: Result<Vec<Value>, serde_yaml_ng::Error> = documents.collect();
    Ok(objects?.into_iter().filter(|object| !object.is_null()).collect())
}

/// Creates `objects`; those that exist already stay as they are.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<(), crate::Error> {
    for object in objects {
        match create(client, object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => {
                let (kind, name) = (text(object, &["kind"]), text(object, &["metadata", "name"]));
                return Err(format!("can't create {kind} {name:?} in the cluster: {error}").into());
            }
        }
    }
    for definition in objects.iter().filter(|o| text(o, &["kind"]) == "CustomResourceDefinition") {
        served(client, definition).await?;
    }
    Ok(())
}

/// Creates an object, and then its status.
pub(crate) async fn create(client: &Client, value: &Value) -> kube::Result<DynamicObject> {
    let object = serde_json::from_value(value.clone()).map_err(kube::Error::SerdeError)?;
    let api = api_of(client, value);
    let created: DynamicObject = api.create(&PostParams::default(), &object).await?;
    let status = value.get("status");
    // Without a subresource it has been created with the rest.
    if status.is_some() && created.data.get("status") != status {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&created.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(created)
}

/// Where an object lives, the plural of its kind guessed as English has it.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let api_version = text(object, &["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, text(object, &["kind"]));
    let resource = ApiResource::from_gvk(&kind);
    match text(object, &["metadata", "namespace"]) {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Waits until the first version of a custom kind can be listed.
async fn served(client: &Client, definition: &Value) -> Result<(), crate::Error> {
    let version = items(definition, &["spec", "versions"])
        .first()
        .map(|version| text(version, &["name"]))
        .unwrap_or_default();
    let kind = GroupVersionKind::gvk(
        text(definition, &["spec", "group"]),
        version,
        text(definition, &["spec", "names", "kind"]),
    );
    let plural = text(definition, &["spec", "names", "plural"]);
    let api: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural));
    let listed = async || api.list(&ListParams::default()).await.ok();
    match until(PATIENCE, Duration::from_millis(100), listed).await {
        Some(_) => Ok(()),
        None => {
            Err(format!("the server does not serve {plural} though its definition was created")
                .into())
        }
    }
}
