//! Creates the publisher of storage capacity.

use std::sync::Arc;

use super::{AppError, Base, settings::retry};
use crate::{
    capacity::{Publisher, PublisherDeps, Store},
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
    let found = Store::find(&lanes.objects, &lanes.capacity, capacity).await;
    let Some(store) = found.map_err(AppError::Capacity)? else { return Ok(None) };
    Ok(Some(Publisher::new(PublisherDeps {
        driver: driver.clone(),
        store,
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
