//! What the driver, the API server and this version can do: asked, and refused where something
//! would silently be left undone.

use std::sync::Arc;

use super::{Env, Error};
use crate::{
    csi::{Address, Driver, DriverSettings, proto::plugin_capability::service::Type as Service},
    flags::Flags,
    kube::{Client, objects::VolumeAttributesClass},
    metrics::Metrics,
    migration::Migration,
    nodes::Nodes,
    runtime::{Gate, Tasks},
};

/// Whether it matters where the driver's volumes are.
pub(super) fn has_topology(flags: &Flags, driver: &Driver) -> bool {
    let places = Service::VolumeAccessibilityConstraints;
    flags.gates.topology && driver.capabilities().plugin.contains(&places)
}

/// What is known of the nodes: with node deployment this one, as its driver describes it; else
/// whatever watches will show.
pub(super) fn nodes(flags: &Flags, driver: &Driver) -> Nodes {
    match &flags.node_deployment {
        None => Nodes::for_driver(driver.name()),
        Some(node) => {
            let segments = driver.node().topology.clone().unwrap_or_default();
            Nodes::fixed(driver.name(), &node.node_name, &segments)
        }
    }
}

/// Connects to the driver.
pub(super) async fn connect(
    flags: &Flags,
    world: &Env,
    tasks: &Tasks,
    gate: &Gate,
    metrics: &Metrics,
) -> Result<Driver, Error> {
    let rbd = flags.gates.csi_migration_rbd;
    let settings = DriverSettings {
        address: Address::parse(&flags.driver.address)?,
        timeout: flags.driver.timeout,
        node_info_required: flags.node_deployment.is_some(),
        tasks: tasks.clone(),
        migrates: Arc::new(move |driver| Migration::of_driver(driver, rbd).is_some()),
    };
    let connector = Arc::clone(&world.connector);
    Ok(Driver::connect(settings, connector, gate.clone(), metrics).await?)
}

/// Whether classes of volume attributes are looked at: as the feature gate says, or else where the API
/// server serves them. As in the original a server that can't tell for now counts as one that
/// does, and one that learns them later is noticed at the next start.
pub(super) async fn serves_attributes_classes(flags: &Flags, client: &Client) -> bool {
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
