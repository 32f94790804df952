//! Connects to the driver, and finds out what the driver and the API server support.

use std::sync::Arc;

use csi_translation::Migration;

use super::{AppError, Env};
use crate::{
    csi::{
        Capabilities, Driver, DriverSettings, proto::plugin_capability::service::Type as Service,
        socket_path,
    },
    flags::Flags,
    kube::{Client, objects::VolumeAttributesClass},
    nodes::Nodes,
    runtime::{Gate, Tasks},
};

/// Whether topology is used: the feature gate is on and the driver supports it.
pub fn has_topology(flags: &Flags, capabilities: &Capabilities) -> bool {
    let capability = Service::VolumeAccessibilityConstraints;
    flags.gates.topology && capabilities.plugin.contains(&capability)
}

/// Creates the cache of nodes: with node deployment only this node, with the topology that the driver
/// reports; otherwise empty until the watches fill it.
pub(super) fn nodes(flags: &Flags, driver: &Driver) -> Nodes {
    match flags.node_deployment() {
        None => Nodes::for_driver(driver.name()),
        Some(node) => {
            let segments = driver.node_topology().cloned().unwrap_or_default();
            Nodes::fixed(driver.name(), &node.node_name, &segments)
        }
    }
}

/// Connects to the driver.
///
/// # Errors
/// The address is no socket, or the driver cannot be used.
pub(super) async fn connect(
    flags: &Flags,
    env: &Env,
    tasks: &Tasks,
    gate: &Gate,
) -> Result<Driver, AppError> {
    let rbd = flags.gates.csi_migration_rbd;
    let settings = DriverSettings {
        socket: socket_path(&flags.driver.address)?,
        timeout: flags.driver.timeout,
        node_info_required: flags.node_deployment().is_some(),
        tasks: tasks.clone(),
        migrates: Arc::new(move |driver| Migration::of_driver(driver, rbd).is_some()),
    };
    let connector = Arc::clone(&env.connector);
    Ok(Driver::connect(settings, connector, gate.clone(), &env.metrics).await?)
}

/// Whether VolumeAttributesClasses are supported: as the feature gate says if it is set, else if the API
/// server serves them. As in external-provisioner, a failed discovery counts as support, and the result is
/// kept until the next start.
pub async fn serves_attributes_classes(flags: &Flags, client: &Client) -> bool {
    if let Some(set) = flags.gates.volume_attributes_class {
        return set;
    }
    match client.serves::<VolumeAttributesClass>().await {
        Ok(true) => true,
        Ok(false) => {
            tracing::info!(
                "Disabling VolumeAttributesClass feature gate because the VolumeAttributesClass v1 API is not available"
            );
            false
        }
        Err(error) => {
            tracing::warn!(%error, "cannot tell whether the API server serves VolumeAttributesClasses; taken as if it does");
            true
        }
    }
}
