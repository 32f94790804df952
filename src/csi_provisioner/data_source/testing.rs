//! What the tests of this room start from: a cluster of a few objects.

use serde_json::{Value, json};

use super::{Copyable, NotUsed, Source, identify, resolve};
use crate::{
    controller::{
        dependencies::index::Dependency,
        provisioner::{Failure, ProvisionRequest},
    },
    csi_provisioner::{
        Settings,
        testing::{DRIVER, order, settings},
    },
    kube::{
        quantity::Quantity,
        testing::{Answer, Server, client},
    },
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
pub(super) fn gated() -> Settings {
    Settings { cross_namespace_sources: true, ..settings(&[]) }
}

/// The source of a claim with this spec, found in the cluster.
pub(super) async fn find(server: &Server, spec: &Value) -> Result<Source, Failure> {
    find_for(server, &gated(), &order(spec, &json!({"provisioner": DRIVER}))).await
}

/// The same for an order.
pub(super) async fn find_for(
    server: &Server,
    settings: &Settings,
    order: &ProvisionRequest,
) -> Result<Source, Failure> {
    let client = client(server);
    let named: Copyable = match identify(&client, settings, order).await {
        Ok(named) => named.unwrap(),
        Err(NotUsed::Failed(failure)) => return Err(failure),
        Err(NotUsed::LeftToPopulator { kind }) => panic!("{kind} left to a populator"),
    };
    let requested = order.claim.spec.resources.requests.storage.as_deref();
    let size = Quantity::parse(requested.unwrap_or("0")).unwrap();
    resolve(&client, settings, order, &size, &named).await
}

/// The names of the kinds whose change is waited for.
pub(super) fn awaited(failure: &Failure) -> Vec<String> {
    let name = |awaited: &Dependency| {
        let place = awaited.namespace.as_deref().map(|namespace| format!("{namespace}/"));
        let name = awaited.name.as_deref().unwrap_or("*");
        format!("{} {}{name}", awaited.kind.plural, place.unwrap_or_default())
    };
    failure.dependencies().iter().map(name).collect()
}

/// `object` with what `change` says instead, deeply; null takes away.
pub(super) fn changed(mut object: Value, change: &Value) -> Value {
    merge(&mut object, change);
    object
}

fn merge(into: &mut Value, change: &Value) {
    let (Some(fields), Some(changes)) = (into.as_object_mut(), change.as_object()) else {
        into.clone_from(change);
        return;
    };
    for (key, value) in changes {
        match value {
            Value::Null => drop(fields.remove(key)),
            value => merge(fields.entry(key).or_insert(Value::Null), value),
        }
    }
}
