//! Creates the publisher of storage capacity.

use std::sync::Arc;

use super::{AppError, Base, settings::retry};
use crate::{
    capacity::{Destination, Publisher, PublisherDeps, PublisherSettings},
    controller::classes::Classes,
    nodes::Nodes,
};

/// Creates the publisher of storage capacity, if the flags ask for it and the API server serves
/// CSIStorageCapacity.
pub(super) async fn publisher(
    base: &Base<'_>,
    nodes: &Nodes,
) -> Result<Option<Publisher>, AppError> {
    let Base { flags, env, tasks, driver, lanes, metrics, .. } = base;
    let Some(capacity) = flags.capacity() else { return Ok(None) };
    let Some(destination) = Destination::find(&lanes.objects, capacity).await? else {
        return Ok(None);
    };
    let settings = PublisherSettings {
        destination,
        node: flags.node_deployment().map(|node| node.node_name.clone()),
        flags: capacity.clone(),
        retry: retry(flags),
    };
    let deps = PublisherDeps {
        driver: driver.clone(),
        client: lanes.capacity.clone(),
        nodes: nodes.clone(),
        metrics: metrics.clone(),
        counts: metrics.capacity(),
        random: Arc::clone(&env.random),
        tasks: (*tasks).clone(),
        settings,
    };
    Ok(Some(Publisher::new(deps)))
}

/// Reports changes of classes to the publisher.
pub(super) fn report_class_changes(classes: &Classes, publisher: &Publisher) {
    let publisher = publisher.clone();
    classes.on_change(move |name, class| publisher.class_changed(name, class));
}
