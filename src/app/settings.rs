//! Converts flags to the settings of each module.

use std::{sync::Arc, time::Duration};

use super::Env;
use crate::{
    controller,
    controller::claims::call_record,
    csi::{Driver, proto::controller_service_capability::rpc::Type as Rpc},
    csi_provisioner::{
        CephRbd, ProvisionerSettings, TopologySettings, VolumeNaming, node_deployment,
        node_deployment::NodeDeployment,
    },
    flags,
    flags::{ClaimProtection, Flags},
    kube::{LaneSettings, RateLimit},
    metrics::Metrics,
    migration::Migration,
    runtime::{Clock, Random},
    source_protection,
};

/// The lanes' settings. Logs that there is no rate limit, unlike in external-provisioner.
pub(super) fn lane_settings(flags: &Flags) -> LaneSettings {
    if flags.kubernetes.rate.is_none() {
        tracing::info!(
            "no client-side limit on API requests; --kube-api-qps=5 gives the original's"
        );
    }
    let limit = |flags::Rate { qps, burst }| RateLimit { qps, burst };
    let defaults = LaneSettings::default();
    let lease_patience = flags.leader_election.as_ref().map(lease_patience);
    LaneSettings {
        qps: flags.kubernetes.rate.map(limit),
        capacity_qps: flags.kubernetes.capacity_rate.map(limit),
        lease_patience: lease_patience.unwrap_or(defaults.lease_patience),
        ..defaults
    }
}

/// The timeout of a request for the Lease: a quarter of the time between a due renewal and the renew
/// deadline. A renewal may take three requests (write, read, write), and each may meet a dead connection.
fn lease_patience(election: &flags::LeaderElection) -> Duration {
    election.renew_deadline.saturating_sub(election.retry_period) / 4
}

/// The controller's settings.
pub(super) fn controller_settings(flags: &Flags) -> controller::ControllerSettings {
    let provisioning = &flags.provisioning;
    controller::ControllerSettings {
        workers: provisioning.workers,
        retry_start: provisioning.retry_start,
        retry_max: provisioning.retry_max,
        open_calls: open_calls_settings(&flags.safety),
    }
}

fn open_calls_settings(safety: &flags::Safety) -> call_record::Settings {
    let mode = match safety.claim_protection {
        ClaimProtection::Auto => call_record::Mode::Auto,
        ClaimProtection::Always => call_record::Mode::Always,
        ClaimProtection::Off => call_record::Mode::Off,
    };
    call_record::Settings { mode, timeout: safety.claim_protection_timeout }
}

/// The settings of source protection.
pub(super) fn protection_settings(
    flags: &Flags,
    driver: &Driver,
) -> source_protection::ProtectionSettings {
    let provisioning = &flags.provisioning;
    let capabilities = &driver.capabilities().controller;
    source_protection::ProtectionSettings {
        restores: capabilities.contains(&Rpc::CreateDeleteSnapshot),
        clones: capabilities.contains(&Rpc::CloneVolume),
        workers: provisioning.cloning_protection_workers,
        sweep_interval: provisioning.snapshot_sweep_interval,
        retry_start: provisioning.retry_start,
        retry_max: provisioning.retry_max,
        peers: flags.node_deployment.is_some(),
        cross_namespace_sources: flags.gates.cross_namespace_volume_data_source,
        timeout: flags.safety.claim_protection_timeout,
    }
}

/// The CSI provisioner's settings.
pub(super) fn provisioner_settings(
    flags: &Flags,
    driver: &Driver,
    env: &Env,
    volume_attributes_classes: bool,
) -> ProvisionerSettings {
    let provisioning = &flags.provisioning;
    ProvisionerSettings {
        driver_name: driver.name().to_owned(),
        capabilities: driver.capabilities().clone(),
        identity: identity(flags, driver.name(), &*env.clock, &*env.random),
        naming: VolumeNaming {
            prefix: provisioning.name_prefix.clone(),
            uuid_length: provisioning.name_uuid_length,
        },
        default_fs_type: provisioning.default_fstype.clone(),
        extra_create_metadata: provisioning.extra_create_metadata,
        controller_publish_readonly: provisioning.controller_publish_readonly,
        volume_attributes_classes,
        ceph_rbd: CephRbd { enabled: flags.gates.ceph_rbd_extensions },
        migration: migration(flags, driver),
        cross_namespace_sources: flags.gates.cross_namespace_volume_data_source,
        prevent_volume_mode_conversion: provisioning.prevent_volume_mode_conversion,
    }
}

/// The translation of in-tree classes and volumes, if the driver replaces an in-tree plugin.
fn migration(flags: &Flags, driver: &Driver) -> Option<Migration> {
    let migration = Migration::of_driver(driver.name(), flags.gates.csi_migration_rbd)?;
    tracing::info!(plugin = migration.in_tree_name(), "Supports migration from an in-tree plugin");
    Some(migration)
}

/// The settings of topology.
pub(super) fn topology_settings(flags: &Flags) -> TopologySettings {
    let provisioning = &flags.provisioning;
    TopologySettings {
        strict: provisioning.strict_topology,
        immediate: provisioning.immediate_topology,
    }
}

/// The node deployment, if the flags ask for it. Logs what to consider.
pub(super) fn node_deployment(
    flags: &Flags,
    driver: &Driver,
    random: Arc<dyn Random>,
    metrics: &Metrics,
) -> Option<NodeDeployment> {
    let node = flags.node_deployment.as_ref()?;
    let settings = node_deployment::NodeDeploymentSettings {
        node: node.node_name.clone(),
        topology: driver.node().topology.clone(),
        immediate_binding: node.immediate_binding,
        base_delay: node.base_delay,
        max_delay: node.max_delay,
    };
    tracing::info!(node = settings.node, topology = ?settings.topology, "provisioning for this node only");
    if node.immediate_binding && !driver.capabilities().controller.contains(&Rpc::GetCapacity) {
        tracing::warn!(
            "the driver does not tell its free space (GET_CAPACITY): claims with immediate binding are taken without asking for it"
        );
    }
    if flags.leader_election.is_some() {
        tracing::warn!(
            "--leader-election lets one node work at a time, as all share a Lease: with --node-deployment start without it"
        );
    }
    Some(NodeDeployment::new(settings, random, metrics.node.clone()))
}

/// This process's identity, new at each start: it is written into every volume's attributes.
fn identity(flags: &Flags, driver: &str, clock: &dyn Clock, random: &dyn Random) -> String {
    let node = flags.node_deployment.as_ref().map(|node| format!("-{}", node.node_name));
    let node = node.unwrap_or_default();
    format!("{}-{}-{driver}{node}", clock.wall().as_millisecond(), random.below(10_000))
}
