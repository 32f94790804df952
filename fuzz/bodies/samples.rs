//! A driver's settings, a claim with its class, and a source: for the fuzz target and unit tests.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{DriverFacts, ProvisionerSettings, VolumeNaming};
use crate::{
    controller::{
        model::source::{NamedSource, Source, SourceKind},
        provisioner::ProvisionRequest,
    },
    csi::{
        Capabilities,
        proto::{
            controller_service_capability::rpc::Type as Rpc,
            plugin_capability::service::Type as Service,
        },
    },
    flags::{Gates, Provisioning},
};

pub(super) const DRIVER: &str = "disk.example.com";

/// Settings of a driver that can only create and delete volumes.
pub(super) fn settings() -> ProvisionerSettings {
    ProvisionerSettings {
        driver: DriverFacts {
            name: DRIVER.into(),
            capabilities: Capabilities {
                plugin: [Service::ControllerService].into(),
                controller: [Rpc::CreateDeleteVolume].into(),
            },
            identity: "me".into(),
            volume_attributes_classes: true,
        },
        flags: flags(),
        gates: Gates {
            topology: true,
            volume_attributes_class: None,
            ceph_rbd_extensions: false,
            cross_namespace_volume_data_source: false,
            csi_migration_rbd: false,
        },
        naming: VolumeNaming::default(),
        migration: None,
    }
}

/// The defaults.
fn flags() -> Provisioning {
    Provisioning {
        retry_start: Duration::from_secs(1),
        retry_max: Duration::from_secs(300),
        workers: 100,
        cloning_protection_workers: 1,
        snapshot_sweep_interval: Some(Duration::from_secs(300)),
        strict_topology: false,
        immediate_topology: true,
        extra_create_metadata: false,
        default_fstype: String::new(),
        controller_publish_readonly: false,
        prevent_volume_mode_conversion: true,
    }
}

/// A request for a claim of 1Mi.
pub(super) fn request() -> ProvisionRequest {
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

/// A snapshot as a source.
pub(super) fn source() -> Source {
    let named =
        NamedSource { kind: SourceKind::Snapshot, namespace: "shop".into(), name: "snap".into() };
    Source { named, uid: "snap-uid".into(), handle: "snap-handle".into() }
}
