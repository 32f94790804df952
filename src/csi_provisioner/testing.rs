//! Test helpers of this module: a driver with all capabilities, a claim and a class.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{CephRbd, ProvisionerSettings, Reads, VolumeNaming};
use crate::{
    controller::{
        model::source::{Source, SourceKind},
        provisioner::{NotSent, ProvisionRequest},
    },
    csi::{
        Capabilities,
        proto::{
            controller_service_capability::rpc::Type as Rpc,
            plugin_capability::service::Type as Service,
        },
    },
    kube::testing::{Server, client},
    runtime::{Tasks, TokioSpawner},
};

/// Reads of this server.
pub(super) fn reads(server: &Server) -> Reads {
    Reads::new(client(server), &Tasks::new(Arc::new(TokioSpawner)).0)
}

pub(super) const DRIVER: &str = "disk.example.com";

/// Settings of a driver with these capabilities besides creating volumes.
pub(super) fn settings(abilities: &[Rpc]) -> ProvisionerSettings {
    let controller = abilities.iter().copied().chain([Rpc::CreateDeleteVolume]).collect();
    ProvisionerSettings {
        driver_name: DRIVER.into(),
        capabilities: Capabilities {
            plugin: [Service::ControllerService].into_iter().collect(),
            controller,
        },
        identity: "me".into(),
        naming: VolumeNaming { prefix: "pvc".into(), uuid_length: None },
        default_fs_type: String::new(),
        extra_create_metadata: false,
        controller_publish_readonly: false,
        volume_attributes_classes: true,
        ceph_rbd: CephRbd::default(),
        migration: None,
        cross_namespace_sources: false,
        prevent_volume_mode_conversion: true,
    }
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
        volume_name: Ok("pvc-u".into()),
        selected_node: None,
        withdrawn: false,
        source: None,
        topology: None,
    }
}

/// A snapshot as a source.
pub(super) fn source() -> Source {
    Source {
        kind: SourceKind::Snapshot,
        namespace: "shop".into(),
        name: "snap".into(),
        uid: "snap-uid".into(),
        handle: "snap-handle".into(),
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// The error text of a call that was not made.
pub(super) fn refusal(outcome: NotSent) -> String {
    match outcome {
        NotSent::Failed(failure) => failure.to_string(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
