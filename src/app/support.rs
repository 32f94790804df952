//! What the driver, the API server and this version can do: asked, and refused where something
//! would silently be left undone.

use std::sync::Arc;

use super::{Error, World};
use crate::{
    capacity::{self, Publishing},
    csi::{Address, Driver, DriverSettings, proto::plugin_capability::service::Type as Service},
    flags::Flags,
    kube_api::{Client, views::VolumeAttributesClass},
    metrics::Metrics,
    runtime::{Gate, Tasks},
};

/// Refuses what would be silently left undone, whatever the driver.
pub(super) fn refuse_unsupported(flags: &Flags) -> Result<(), Error> {
    if flags.node_deployment.is_some() {
        return Err(Error::Unsupported(
            "this version does not provision per node yet: start without --node-deployment",
        ));
    }
    Ok(())
}

/// Refuses what would be silently left undone with this driver.
pub(super) fn refuse_unsupported_driver(
    flags: &Flags,
    driver: &Driver,
    publishing: &Publishing,
) -> Result<(), Error> {
    if flags.gates.topology
        && driver.capabilities().plugin.contains(&Service::VolumeAccessibilityConstraints)
    {
        return Err(Error::Unsupported(
            "the driver has topology (VOLUME_ACCESSIBILITY_CONSTRAINTS), which this version does not handle yet: start with --feature-gates=Topology=false if its volumes can be anywhere",
        ));
    }
    match publishing {
        Publishing::Nothing => Ok(()),
        Publishing::To(_) => Err(Error::Unsupported(
            "this version does not publish CSIStorageCapacity objects yet: start without --enable-capacity",
        )),
    }
}

/// Connects to the driver.
pub(super) async fn connect(
    flags: &Flags,
    world: &World,
    tasks: &Tasks,
    gate: &Gate,
    metrics: &Metrics,
) -> Result<Driver, Error> {
    let settings = DriverSettings {
        address: Address::parse(&flags.driver.address)?,
        timeout: flags.driver.timeout,
        tasks: tasks.clone(),
    };
    let connector = Arc::clone(&world.connector);
    Ok(Driver::connect(settings, connector, gate.clone(), metrics).await?)
}

/// What storage capacity is to be published.
pub(super) async fn publishing(
    flags: &Flags,
    driver: &Driver,
    client: &Client,
) -> Result<Publishing, Error> {
    let Some(flags) = &flags.capacity else { return Ok(Publishing::Nothing) };
    let settings = capacity::Settings {
        namespace: &flags.namespace,
        owner: flags.owner.as_ref().map(|owner| (owner.pod.as_str(), owner.level)),
    };
    Ok(Publishing::prepare(client, settings, driver.capabilities()).await?)
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
