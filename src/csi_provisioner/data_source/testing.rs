//! Test helpers of this module: a cluster of a few objects.

use go_fmt::quantity::Quantity;
use serde_json::{Value, json};

use super::{Source, identify, resolve};
use crate::{
    controller::{
        dependencies::Dependency,
        provisioner::{Failure, NotPrepared, ProvisionRequest},
    },
    csi_provisioner::{
        ProvisionerSettings,
        testing::{DRIVER, reads, request, settings_with},
    },
    kube::testing::{Answer, Server},
};

/// A server that has these objects, each under its URL.
pub(super) fn cluster(objects: Vec<(String, Value)>) -> Server {
    Server::new(move |_, request| {
        let found = objects.iter().find(|(url, _)| *url == request.url);
        match found {
            Some((_, Value::String(refusal))) => Answer::refusal(403, "Forbidden", refusal),
            Some((_, object)) => Answer::json(200, object),
            None => {
                let name = request.url.rsplit('/').next().unwrap_or_default();
                Answer::refusal(404, "NotFound", &format!("{name:?} not found"))
            }
        }
    })
}

/// Settings with the feature gate for sources in other namespaces.
pub(super) fn gated() -> ProvisionerSettings {
    settings_with(&[], |settings| settings.gates.cross_namespace_volume_data_source = true)
}

/// The source of a claim with this spec, found in the cluster.
pub(super) async fn find(server: &Server, spec: &Value) -> Result<Source, Failure> {
    find_for(server, &gated(), &request(spec, &json!({"provisioner": DRIVER}))).await
}

/// The source of the claim of a request.
pub(super) async fn find_for(
    server: &Server,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
) -> Result<Source, Failure> {
    let reads = reads(server);
    let named = match identify(&reads, settings, request).await {
        Ok(named) => named.unwrap(),
        Err(NotPrepared::Failed(failure)) => return Err(failure),
        Err(other) => panic!("{other:?}"),
    };
    let requested = request.claim.spec.resources.requests.storage.as_deref();
    let size = Quantity::parse(requested.unwrap_or("0")).unwrap();
    resolve(&reads, settings, request, &size, &named).await
}

/// The kinds of the failure's dependencies.
pub(super) fn dependencies(failure: &Failure) -> Vec<String> {
    let name = |dependency: &Dependency| {
        let place = dependency.namespace.as_deref().map(|namespace| format!("{namespace}/"));
        let name = dependency.name.as_deref().unwrap_or("*");
        format!("{} {}{name}", dependency.kind.plural, place.unwrap_or_default())
    };
    failure.dependencies.iter().map(name).collect()
}
