//! Test helpers of this module: a driver with all capabilities, a claim and a class.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

pub(super) use super::samples::{DRIVER, source};
use super::{ProvisionerSettings, Reads, samples};
use crate::{
    controller::provisioner::{NotPrepared, ProvisionRequest},
    csi::proto::controller_service_capability::rpc::Type as Rpc,
    kube::testing::{Server, client},
    runtime::{Tasks, TokioSpawner},
};

/// Reads of this server.
pub(super) fn reads(server: &Server) -> Reads {
    Reads::new(client(server), &Tasks::new(Arc::new(TokioSpawner)).0)
}

/// Settings of a driver with these capabilities besides creating volumes.
pub(super) fn settings(abilities: &[Rpc]) -> ProvisionerSettings {
    let mut settings = samples::settings();
    settings.driver.capabilities.controller.extend(abilities);
    settings
}

/// As [`settings`], and changed.
pub(super) fn settings_with(
    abilities: &[Rpc],
    change: impl FnOnce(&mut ProvisionerSettings),
) -> ProvisionerSettings {
    let mut settings = settings(abilities);
    change(&mut settings);
    settings
}

/// A request for a claim of 1Gi, ReadWriteOnce, whose spec is merged with `spec`, and a class
/// merged with `class`.
pub(super) fn request(spec: &Value, class: &Value) -> ProvisionRequest {
    let mut whole =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    merge(&mut whole, spec);
    let claim = json!({
        "metadata": {"name": "data", "namespace": "shop", "uid": "u", "annotations": {"team": "blue"}},
        "spec": whole,
    });
    let mut whole = json!({"metadata": {"name": "fast"}, "provisioner": DRIVER});
    merge(&mut whole, class);
    ProvisionRequest {
        claim: Arc::new(serde_json::from_value(claim).unwrap()),
        class: Arc::new(serde_json::from_value(whole).unwrap()),
        ..samples::request()
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// The error text of a call that was not made.
pub(super) fn refusal(outcome: impl Into<NotPrepared>) -> String {
    match outcome.into() {
        NotPrepared::Failed(failure) => failure.to_string(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
