//! Converts flags to the settings of each module.

use std::{sync::Arc, time::Duration};

use super::Env;
use crate::{
    controller,
    controller::{claims::call_record::RecordSettings, peers::Peers},
    csi::{Driver, proto::controller_service_capability::rpc::Type as Rpc},
    csi_provisioner::{DriverFacts, ProvisionerSettings, node_deployment::NodeDeployment},
    flags,
    flags::Flags,
    kube::LaneSettings,
    metrics::Metrics,
    runtime::{Backoff, Clock, Random},
    source_protection,
};

/// The lanes' settings. Logs that there is no rate limit, unlike in external-provisioner.
pub fn lane_settings(flags: &Flags) -> LaneSettings {
    if flags.kubernetes.rate().is_none() {
        tracing::info!(
            "no client-side limit on API requests; --kube-api-qps=5 gives external-provisioner's"
        );
    }
    let defaults = LaneSettings::default();
    let lease_deadline = flags.leader_election().map(lease_deadline);
    LaneSettings {
        qps: flags.kubernetes.rate(),
        capacity_qps: flags.kubernetes.capacity_rate(),
        lease_deadline: lease_deadline.unwrap_or(defaults.lease_deadline),
        ..defaults
    }
}

/// The least deadline of a request for the Lease, unless the renew deadline leaves less.
const SLOW_LEASE: Duration = Duration::from_secs(5);

/// The deadline of a request for the Lease: half of the time from when a renewal is due to the renew deadline, so
/// that one without an answer can be repeated, but no less than [`SLOW_LEASE`].
fn lease_deadline(election: &flags::LeaderElection) -> Duration {
    let left = election.renew_deadline.saturating_sub(election.retry_period);
    (left / 2).max(SLOW_LEASE).min(left)
}

/// The controller's settings.
pub(super) fn controller_settings(flags: &Flags) -> controller::ControllerSettings {
    // The program itself obeys the shutdown timeout.
    let flags::Safety { shutdown_timeout: _, claim_protection, claim_protection_timeout } =
        flags.safety;
    controller::ControllerSettings {
        workers: flags.provisioning.workers,
        retry: retry(flags),
        open_calls: RecordSettings { mode: claim_protection, timeout: claim_protection_timeout },
    }
}

/// The back-off of failed claims, volumes and other objects.
pub fn retry(flags: &Flags) -> Backoff {
    Backoff::new(flags.provisioning.retry_start, flags.provisioning.retry_max)
}

/// The settings of source protection.
pub(super) fn protection_settings(
    flags: &Flags,
    driver: &Driver,
) -> source_protection::ProtectionSettings {
    let provisioning = &flags.provisioning;
    let capabilities = driver.capabilities();
    source_protection::ProtectionSettings {
        restores: capabilities.has(Rpc::CreateDeleteSnapshot),
        clones: capabilities.has(Rpc::CloneVolume),
        workers: provisioning.cloning_protection_workers,
        sweep_interval: provisioning.snapshot_sweep_interval,
        retry: retry(flags),
        peers: flags.node_deployment().is_some(),
        cross_namespace_sources: flags.gates.cross_namespace_volume_data_source,
        timeout: flags.safety.claim_protection_timeout,
    }
}

/// The CSI provisioner's settings. Logs whether the driver replaces an in-tree plugin.
pub fn provisioner_settings(flags: &Flags, facts: DriverFacts) -> ProvisionerSettings {
    let settings = ProvisionerSettings::new(flags, facts);
    if let Some(migration) = settings.migration {
        tracing::info!(
            plugin = migration.in_tree_name(),
            "Supports migration from an in-tree plugin"
        );
    }
    settings
}

/// What the driver says of itself, and a new identity of this process.
pub(super) fn driver_facts(
    flags: &Flags,
    driver: &Driver,
    env: &Env,
    volume_attributes_classes: bool,
) -> DriverFacts {
    DriverFacts {
        name: driver.name().to_owned(),
        capabilities: driver.capabilities().clone(),
        identity: identity(flags, driver.name(), &*env.clock, &*env.random),
        volume_attributes_classes,
    }
}

/// The processes of the other nodes, with node deployment.
pub(super) fn peers(flags: &Flags, random: Arc<dyn Random>) -> Peers {
    match flags.node_deployment() {
        Some(it) => Peers::new(Backoff::new(it.base_delay, it.max_delay), random),
        None => Peers::default(),
    }
}

/// The node deployment, if the flags ask for it. Logs what to consider.
pub(super) fn node_deployment(
    flags: &Flags,
    driver: &Driver,
    peers: Peers,
    metrics: &Metrics,
) -> Option<NodeDeployment> {
    let node = flags.node_deployment()?;
    let topology = driver.node_topology().cloned();
    tracing::info!(node = node.node_name, ?topology, "provisioning for this node only");
    if node.immediate_binding && !driver.capabilities().has(Rpc::GetCapacity) {
        tracing::warn!(
            "the driver does not report its free space (GET_CAPACITY): claims with immediate binding are taken without asking for it"
        );
    }
    if flags.leader_election().is_some() {
        tracing::warn!(
            "--leader-election lets one node work at a time, as all share a Lease: with --node-deployment start without it"
        );
    }
    Some(NodeDeployment::new(node.clone(), topology, peers, metrics.controller.clone()))
}

/// This process's identity, new at each start: it is written into every volume's attributes.
fn identity(flags: &Flags, driver: &str, clock: &dyn Clock, random: &dyn Random) -> String {
    let node = flags.node_deployment().map(|node| format!("-{}", node.node_name));
    let node = node.unwrap_or_default();
    format!("{}-{}-{driver}{node}", clock.wall().as_millisecond(), random.below(10_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_the_lease_is_repeated_before_the_renew_deadline_if_that_leaves_time() {
        for (renew_deadline, retry_period, deadline) in
            [(10, 5, 5), (10, 8, 2), (16, 4, 6), (107, 26, 40)]
        {
            let [renew_deadline, retry_period] =
                [renew_deadline, retry_period].map(Duration::from_secs);
            let election = flags::LeaderElection {
                leader_election: true,
                namespace: None,
                lease_duration: Duration::from_secs(137),
                renew_deadline,
                retry_period,
                labels: Vec::new(),
            };
            assert_eq!(lease_deadline(&election).as_secs(), deadline, "{renew_deadline:?}");
        }
    }
}
