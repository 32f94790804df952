//! The program: creates its parts, starts them, and waits for the end.
//!
//! The gate stays shut, so that no write reaches the API server, whatever a bug does, and nothing connects to
//! the driver. There is no Lease, no event, and no review of permissions, which the audit log would show as a
//! write.

use std::sync::Arc;

use csi_provisioner::{
    app::{
        AppError, Env, Servers, has_topology, lane_settings, provisioner_settings, retry, routes,
        serves_attributes_classes,
    },
    csi_provisioner::{DriverFacts, Topology},
    flags::Flags,
    http::Routes,
    kube::{Client, Informer, Lanes, Scope, View},
    nodes::Nodes,
    runtime::{Gate, Tasks},
    status,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Described, Shadow};

/// Runs shadow mode for this driver until `stop` is cancelled.
///
/// # Errors
/// The reason, if it ended for another reason than `stop`.
pub async fn run(
    flags: Flags,
    driver: Described,
    env: Env,
    stop: CancellationToken,
) -> Result<(), AppError> {
    let (tasks, mut ended) = Tasks::new(Arc::clone(&env.spawner));
    let program = program(&flags, driver, &env, &tasks, &stop);
    tokio::select! {
        biased;
        outcome = Box::pin(program) => outcome,
        // The channel stays open, as `tasks` owns a sender.
        Some(ended) = ended.recv() => Err(ended.into()),
    }
}

/// Starts, runs and shuts down the program.
async fn program(
    flags: &Flags,
    driver: Described,
    env: &Env,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let Described { name, capabilities } = driver;
    let (gate, random) = (Gate::shut(Arc::clone(&env.clock)), Arc::clone(&env.random));
    let lanes =
        Lanes::new(env.connections.clone(), lane_settings(flags), gate, random, &env.metrics);
    let client = lanes.objects;
    tracing::info!(driver = name, "Shadow mode: nothing is written, and no volume is made");
    let nodes = has_topology(flags, &capabilities).then(|| Nodes::for_driver(&name));
    let topology =
        nodes.clone().map(|nodes| Topology::new(nodes, client.clone(), &flags.provisioning));
    let volume_attributes_classes = tokio::select! {
        biased;
        served = serves_attributes_classes(flags, &client) => served,
        () = stop.cancelled() => return Ok(()),
    };
    // The identity of a process is not compared.
    let (driver, identity) = (name.clone(), String::new());
    let facts = DriverFacts { name, capabilities, identity, volume_attributes_classes };
    let settings = provisioner_settings(flags, facts);
    let shadow = Shadow::new(env, tasks, client.clone(), topology, settings, retry(flags));

    let readiness = readiness(shadow.clone(), nodes.clone());
    let page = results(shadow.clone(), readiness.clone());
    let metrics =
        flags.http.address().map(|_| routes(&flags.http, &env.metrics, &driver, readiness));
    let status = || Routes::status(status::JSON_PATH, page);
    let servers = Servers::bind(flags, metrics, status).await?;
    if let Some(nodes) = nodes {
        watch_nodes(nodes, &client, env, tasks);
    }
    shadow.start();
    servers.serve_beside(stop.cancelled(), tasks).await;
    Ok(())
}

/// Returns a check that everything that is watched has been listed once.
fn readiness(
    shadow: Shadow,
    nodes: Option<Nodes>,
) -> impl Fn() -> Result<(), String> + Clone + Send + Sync {
    move || {
        shadow.readiness()?;
        nodes.as_ref().map_or(Ok(()), Nodes::readiness)
    }
}

/// Returns what the status is in shadow mode: the results, and what is not listed yet.
fn results(
    shadow: Shadow,
    readiness: impl Fn() -> Result<(), String> + Send + Sync,
) -> impl Fn(&str) -> String + Send + Sync {
    move |_| json!({"shadow": shadow.report(), "notReady": readiness().err()}).to_string()
}

fn watch_nodes(nodes: Nodes, client: &Client, env: &Env, tasks: &Tasks) {
    let handler = nodes.csi_node_handler(|_| {});
    tasks.spawn_critical("watch of CSINodes", informers(client, env)().run(handler));
    let informers = informers(client, env);
    tasks.spawn_critical("watch of Nodes", async move {
        nodes.watch_nodes(informers, |_| {}).await;
    });
}

/// Returns a function that creates informers of all objects of a kind.
fn informers<V: View>(
    client: &Client,
    env: &Env,
) -> impl Fn() -> Informer<V> + Send + Sync + use<V> {
    let (client, metrics, random) = (client.clone(), env.metrics.clone(), Arc::clone(&env.random));
    move || Informer::new(&client, Scope::all(), Arc::clone(&random), &metrics)
}
