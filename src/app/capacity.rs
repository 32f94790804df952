//! Creates the publisher of storage capacity.

use std::sync::Arc;

use super::{AppError, Base, settings::retry};
use crate::{
    capacity::{Destination, Publisher, PublisherDeps},
    controller::classes::Classes,
    nodes::Nodes,
};

/// Creates the publisher of storage capacity, if the flags ask for it and the API server serves
/// CSIStorageCapacity.
pub(super) async fn publisher(
    base: &Base<'_>,
    nodes: &Nodes,
) -> Result<Option<Publisher>, AppError> {
    let Base { flags, env, tasks, driver, lanes, .. } = base;
    let Some(capacity) = flags.capacity() else { return Ok(None) };
    let found = Destination::find(&lanes.objects, capacity).await.map_err(AppError::Capacity)?;
    let Some(destination) = found else { return Ok(None) };
    Ok(Some(Publisher::new(PublisherDeps {
        driver: driver.clone(),
        client: lanes.capacity.clone(),
        destination,
        node: flags.node_deployment().map(|node| node.node_name.clone()),
        nodes: nodes.clone(),
        flags: capacity.clone(),
        retry: retry(flags),
        metrics: env.metrics.clone(),
        random: Arc::clone(&env.random),
        tasks: (*tasks).clone(),
    })))
}

/// Reports changes of classes to the publisher.
pub(super) fn report_class_changes(classes: &Classes, publisher: &Publisher) {
    let publisher = publisher.clone();
    classes.on_change(move |name, class| publisher.class_changed(name, class));
}
