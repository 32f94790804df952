//! Flags, as the settings of the rooms that go by them.

use super::World;
use crate::{
    controller::{self, open_calls},
    csi::Driver,
    csi_provisioner::{Settings, VolumeNaming},
    flags::{self, ClaimProtection, Flags},
    kube_api::{LaneSettings, RateLimit},
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
    }
}

/// This process's identity, new at each start: it is written into every volume (reference 2.5).
fn identity(driver: &str, clock: &dyn Clock, random: &dyn Random) -> String {
    format!("{}-{}-{driver}", clock.wall().as_millisecond(), random.below(10_000))
}
