//! Storage capacity: whether it is published, and who is wired to the publisher.

use std::sync::Arc;

use super::{Env, Error};
use crate::{
    capacity::{Destination, DestinationConfig, Publisher, PublisherDeps, PublisherSettings},
    controller::classes::Classes,
    csi::Driver,
    flags::Flags,
    kube::Lanes,
    metrics::Metrics,
    nodes::Nodes,
    runtime::Tasks,
};

/// Who publishes storage capacity, where the flags ask for it and the API server knows it.
pub(super) async fn publisher(
    flags: &Flags,
    world: &Env,
    tasks: &Tasks,
    driver: &Driver,
    lanes: &Lanes,
    nodes: &Nodes,
    metrics: &Metrics,
) -> Result<Option<Publisher>, Error> {
    let Some(capacity) = &flags.capacity else { return Ok(None) };
    let place = DestinationConfig {
        namespace: &capacity.namespace,
        owner: capacity.owner.as_ref().map(|owner| (owner.pod.as_str(), owner.level)),
    };
    let Some(destination) = Destination::find(&lanes.objects, place).await? else {
        return Ok(None);
    };
    let settings = PublisherSettings {
        destination,
        node: flags.node_deployment.as_ref().map(|node| node.node_name.clone()),
        workers: capacity.workers,
        poll_interval: capacity.poll_interval,
        for_immediate_binding: capacity.for_immediate_binding,
        retry_start: flags.provisioning.retry_start,
        retry_max: flags.provisioning.retry_max,
    };
    let parts = PublisherDeps {
        driver: driver.clone(),
        client: lanes.capacity.clone(),
        nodes: nodes.clone(),
        metrics: metrics.clone(),
        counts: metrics.capacity()?,
        random: Arc::clone(&world.random),
        tasks: tasks.clone(),
        settings,
    };
    Ok(Some(Publisher::new(parts)))
}

/// Tells the publisher of classes.
pub(super) fn follow(classes: &Classes, publisher: &Publisher) {
    let publisher = publisher.clone();
    classes.follow(move |name, class| publisher.class_changed(name, class));
}
