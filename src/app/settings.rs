//! Flags, as the settings of the rooms that go by them.

use super::World;
use crate::{
    controller::{self, open_calls},
    csi::{Driver, proto::controller_service_capability::rpc::Type as Rpc},
    csi_provisioner::{Settings, TopologySettings, VolumeNaming},
    flags::{self, ClaimProtection, Flags},
    kube_api::{LaneSettings, RateLimit},
    protection,
    runtime::{Clock, Random},
};

/// The lanes' settings. What differs from the original's default of 5 requests a second is told.
pub(super) fn lane_settings(flags: &Flags) -> LaneSettings {
    if flags.kubernetes.rate.is_none() {
        tracing::info!(
            "no client-side limit on API requests; --kube-api-qps=5 gives the original's"
        );
    }
    let qps = flags.kubernetes.rate.map(|flags::Rate { qps, burst }| RateLimit { qps, burst });
    LaneSettings { qps, ..LaneSettings::default() }
}

/// How many work on claims and volumes side by side, and how they retry.
pub(super) fn controller_settings(flags: &Flags) -> controller::Settings {
    let provisioning = &flags.provisioning;
    controller::Settings {
        workers: provisioning.workers,
        retry_start: provisioning.retry_start,
        retry_max: provisioning.retry_max,
        open_calls: open_calls_settings(&flags.safety),
    }
}

fn open_calls_settings(safety: &flags::Safety) -> open_calls::Settings {
    let mode = match safety.claim_protection {
        ClaimProtection::Auto => open_calls::Mode::Auto,
        ClaimProtection::Always => open_calls::Mode::Always,
        ClaimProtection::Off => open_calls::Mode::Off,
    };
    open_calls::Settings { mode, timeout: safety.claim_protection_timeout }
}

/// How what volumes are made from is guarded.
pub(super) fn protection_settings(flags: &Flags, driver: &Driver) -> protection::Settings {
    let (provisioning, can) = (&flags.provisioning, &driver.capabilities().controller);
    protection::Settings {
        restores: can.contains(&Rpc::CreateDeleteSnapshot),
        clones: can.contains(&Rpc::CloneVolume),
        workers: provisioning.cloning_protection_workers,
        sweep_interval: provisioning.snapshot_sweep_interval,
        retry_start: provisioning.retry_start,
        retry_max: provisioning.retry_max,
        peers: flags.node_deployment.is_some(),
    }
}

/// What shapes requests and PersistentVolumes.
pub(super) fn provisioner_settings(
    flags: &Flags,
    driver: &Driver,
    world: &World,
    volume_attributes_classes: bool,
) -> Settings {
    let provisioning = &flags.provisioning;
    Settings {
        driver_name: driver.name().to_owned(),
        capabilities: driver.capabilities().clone(),
        identity: identity(driver.name(), &*world.clock, &*world.random),
        naming: VolumeNaming {
            prefix: provisioning.name_prefix.clone(),
            uuid_length: provisioning.name_uuid_length,
        },
        default_fs_type: provisioning.default_fstype.clone(),
        extra_create_metadata: provisioning.extra_create_metadata,
        controller_publish_readonly: provisioning.controller_publish_readonly,
        volume_attributes_classes,
        cross_namespace_sources: flags.gates.cross_namespace_volume_data_source,
        prevent_volume_mode_conversion: provisioning.prevent_volume_mode_conversion,
    }
}

/// What is told to drivers that know of places.
pub(super) fn topology_settings(flags: &Flags) -> TopologySettings {
    let provisioning = &flags.provisioning;
    TopologySettings {
        strict: provisioning.strict_topology,
        immediate: provisioning.immediate_topology,
    }
}

/// This process's identity, new at each start: it is written into every volume (reference 2.5).
fn identity(driver: &str, clock: &dyn Clock, random: &dyn Random) -> String {
    format!("{}-{}-{driver}", clock.wall().as_millisecond(), random.below(10_000))
}
