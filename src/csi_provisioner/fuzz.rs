//! The fuzz target for drivers' CreateVolume responses.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::PersistentVolume;
use prost::Message as _;
use serde_json::{Value, json};

use super::{
    CephRbd, ProvisionerSettings, VolumeNaming,
    defects::{self, MAX_CONTEXT, MAX_ID, MAX_TOPOLOGY},
    persistent_volume,
    request::{Prepared, draft},
    topology,
};
use crate::{
    controller::{
        model::{
            source::{Source, SourceKind},
            unusable_volume::Credentials,
        },
        provisioner::ProvisionRequest,
    },
    csi::{
        Capabilities, created_volume,
        proto::{
            CreateVolumeResponse, Volume, controller_service_capability::rpc::Type as Rpc,
            plugin_capability::service::Type as Service,
        },
    },
    kube::quantity::Quantity,
};

pub(super) const DRIVER: &str = "disk.example.com";

/// Checks that every response ends as an open call, an unusable volume, or a PersistentVolume of
/// bounded size that matches the request.
///
/// # Panics
/// If that does not hold.
pub fn csi_answer(data: &[u8]) {
    let Ok(answer) = CreateVolumeResponse::decode(data) else { return };
    let volume = match created_volume(answer) {
        Ok(volume) => volume,
        Err(error) => return assert!(!error.is_final() && !error.is_unsent(), "{error}"),
    };
    assert!(!volume.volume_id.is_empty());
    let settings = settings();
    let request = request();
    let Ok(prepared) = draft(&settings, &request, None) else { return };
    let copied = Prepared { source: Some(source()), ..prepared.clone() };
    for prepared in [prepared, copied] {
        if let Some(defect) = defects::find(&prepared, &volume) {
            let unusable = defect.unusable_volume("pvc-u", &volume, Credentials::default());
            assert_eq!(unusable.handle, volume.volume_id);
            assert!(unusable.orphaned.to_string().len() < 512, "{}", unusable.orphaned);
        } else {
            let affinity = topology::affinity(&volume);
            let made = persistent_volume::build(&settings, &request, &prepared, &volume, affinity);
            check(&prepared, &volume, &made);
        }
    }
}

fn check(prepared: &Prepared, volume: &Volume, made: &PersistentVolume) {
    assert!(prepared.source.is_none() || volume.content_source.is_some(), "an empty copy");
    let json = json!(made);
    let at = |pointer| json.pointer(pointer).unwrap_or(&Value::Null);
    assert_eq!(at("/metadata/name"), "pvc-u");
    assert!(at("/metadata/finalizers").is_null(), "{json}");
    let spec = at("/spec");
    let members: BTreeSet<_> =
        spec.as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
    let known = [
        "accessModes",
        "capacity",
        "csi",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "volumeMode",
    ];
    assert!(members.iter().all(|name| known.contains(name)), "{members:?}");
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Retain");
    let csi = &spec["csi"];
    assert_eq!(csi["driver"], DRIVER);
    assert_eq!(csi["volumeHandle"], *volume.volume_id);
    assert!(
        csi.as_object().is_some_and(|csi| !csi.keys().any(|key| key.contains("ecret"))),
        "{csi}"
    );
    let size = at("/spec/capacity/storage").as_str().and_then(|size| Quantity::parse(size).ok());
    assert!(size.is_some_and(|size| size >= prepared.size), "{spec}");
    let most = MAX_ID + MAX_CONTEXT + MAX_TOPOLOGY + 4096;
    assert!(texts(&json) <= most, "{} bytes", texts(&json));
}

/// The bytes of all texts in an object.
fn texts(json: &Value) -> usize {
    match json {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(texts).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| key.len() + texts(value)).sum(),
        _ => 0,
    }
}

/// Settings of a driver that can only create and delete volumes. Unit tests use them, too.
pub(super) fn settings() -> ProvisionerSettings {
    ProvisionerSettings {
        driver_name: DRIVER.into(),
        capabilities: Capabilities {
            plugin: [Service::ControllerService].into(),
            controller: [Rpc::CreateDeleteVolume].into(),
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

/// A request for a claim of 1Mi.
fn request() -> ProvisionRequest {
    let claim = json!({
        "metadata": {"name": "data", "namespace": "shop", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    let class =
        json!({"metadata": {"name": "fast"}, "provisioner": DRIVER, "reclaimPolicy": "Retain"});
    ProvisionRequest {
        claim: Arc::new(serde_json::from_value(claim).unwrap_or_default()),
        class: Arc::new(serde_json::from_value(class).unwrap_or_default()),
        volume_name: Ok("pvc-u".into()),
        selected_node: None,
        withdrawn: false,
        source: None,
        topology: None,
    }
}

/// A snapshot as a source. Unit tests use it, too.
pub(super) fn source() -> Source {
    Source {
        kind: SourceKind::Snapshot,
        namespace: "shop".into(),
        name: "snap".into(),
        uid: "snap-uid".into(),
        handle: "snap-handle".into(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answer_is_an_open_call_a_defect_or_the_volume_that_was_asked_for() {
        crate::fuzzing::run("csi_answer", 1500, super::csi_answer);
    }
}
