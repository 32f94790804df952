//! Reads, watches and writes Leases.

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};

use crate::kube::{ApiError, Client, name::check_namespace, url::segment};

/// The server ends a watch after this time, in seconds.
const WATCH_SECONDS: u32 = 290;

/// The Leases of a namespace, whose name kube-rs writes into the URL as it is. A Lease's name needs no check:
/// [`lease_name`](super::lease_name) leaves only letters, digits and dashes.
fn api(client: &Client, namespace: &str) -> Result<Api<Lease>, ApiError> {
    check_namespace(namespace)?;
    Ok(Api::namespaced(client.kube(), &segment(namespace)))
}

fn failed(error: kube::Error) -> ApiError {
    ApiError::of_kube(error, "leases.coordination.k8s.io")
}

/// GET.
pub(crate) async fn get(client: &Client, namespace: &str, name: &str) -> Result<Lease, ApiError> {
    api(client, namespace)?.get(name).await.map_err(failed)
}

/// POST, or PUT of a Lease with a `resourceVersion`, which fails if that is outdated. May have been
/// carried out although it failed here.
pub(super) async fn write(client: &Client, lease: &Lease) -> Result<Lease, ApiError> {
    let ObjectMeta { namespace, name, resource_version, .. } = &lease.metadata;
    let api = api(client, namespace.as_deref().unwrap_or_default())?;
    let parameters = PostParams::default();
    let written = match (name, resource_version) {
        (Some(name), Some(_)) => api.replace(name, &parameters, lease).await,
        _ => api.create(&parameters, lease).await,
    };
    written.map_err(failed)
}

/// Watches one Lease from a version on. The stream may end at any time, with or without an error.
pub(super) fn watch(
    client: &Client,
    namespace: &str,
    name: &str,
    version: &str,
) -> BoxStream<'static, Result<WatchEvent<Lease>, ApiError>> {
    let parameters = WatchParams::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS)
        .disable_bookmarks();
    let (api, version) = (api(client, namespace), version.to_owned());
    stream::once(async move { api?.watch(&parameters, &version).await.map_err(failed) })
        .map_ok(|events| events.map_err(failed))
        .try_flatten()
        .map(|event| match event {
            Ok(WatchEvent::Error(status)) => Err(ApiError::from(*status)),
            event => event,
        })
        .boxed()
}
