//! The program: creates its parts, starts them, and waits for the end.
//!
//! The gate stays shut, so that no write reaches the API server, and no call but for its identity reaches
//! the driver, whatever a bug does. There is no Lease, no event, and no review of permissions, which the
//! audit log would show as a write.

use std::sync::Arc;

use csi_provisioner::{
    app::{
        AppError, Env, RunningServers, connect, has_topology, lane_settings, provisioner_settings,
        retry, routes, serves_attributes_classes,
    },
    csi::{Capabilities, Driver},
    csi_provisioner::{DriverFacts, ProvisionerSettings, Topology},
    flags::{Flags, VERSION},
    http::Routes,
    kube::{Client, Informer, Lanes, Scope, View},
    nodes::Nodes,
    runtime::{Gate, Tasks},
    status::{self, DriverStatus, Status},
};
use tokio_util::sync::CancellationToken;

use super::{Described, Shadow, ShadowDeps};
use crate::fetch::Page;

/// Runs shadow mode until `stop` is cancelled, or the driver turns out to be another one. The driver is
/// asked what it is if it is not described.
///
/// # Errors
/// The reason, if it ended for another reason than `stop`.
pub async fn run(
    flags: Flags,
    driver: Option<Described>,
    env: Env,
    stop: CancellationToken,
) -> Result<(), AppError> {
    let (tasks, mut ended) = Tasks::new(Arc::clone(&env.spawner));
    let program = ShadowProgram::run(&flags, driver, &env, &tasks, &stop);
    tokio::select! {
        biased;
        outcome = Box::pin(program) => outcome,
        // The channel stays open, as `tasks` owns a sender.
        Some(ended) = ended.recv() => Err(ended.into()),
    }
}

/// All parts.
struct ShadowProgram<'a> {
    flags: &'a Flags,
    env: &'a Env,
    tasks: &'a Tasks,
    client: Client,
    driver: ShadowedDriver,
    /// The watched nodes, if topology matters.
    nodes: Option<Nodes>,
    shadow: Shadow,
}

/// The driver whose provisioner is compared.
#[derive(Clone)]
enum ShadowedDriver {
    /// Its name and capabilities were read from it.
    Connected(Driver),
    /// Flags say what it is.
    Described(Described),
}

impl ShadowedDriver {
    async fn new(
        described: Option<Described>,
        flags: &Flags,
        env: &Env,
        tasks: &Tasks,
        gate: &Gate,
    ) -> Result<Self, AppError> {
        match described {
            Some(described) => Ok(Self::Described(described)),
            None => connect(flags, env, tasks, gate).await.map(Self::Connected),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Connected(driver) => driver.name(),
            Self::Described(described) => &described.name,
        }
    }

    fn capabilities(&self) -> &Capabilities {
        match self {
            Self::Connected(driver) => driver.capabilities(),
            Self::Described(described) => &described.capabilities,
        }
    }

    /// A driver that flags describe counts as connected, as nothing is lost.
    fn status(&self) -> DriverStatus {
        let is_connected = match self {
            Self::Connected(driver) => driver.connection().is_up(),
            Self::Described(_) => true,
        };
        DriverStatus::new(self.name(), self.capabilities(), is_connected)
    }
}

impl<'a> ShadowProgram<'a> {
    /// Starts, runs and shuts down the program.
    async fn run(
        flags: &'a Flags,
        driver: Option<Described>,
        env: &'a Env,
        tasks: &'a Tasks,
        stop: &CancellationToken,
    ) -> Result<(), AppError> {
        let program = tokio::select! {
            biased;
            program = Self::start(flags, driver, env, tasks) => program?,
            () = stop.cancelled() => return Ok(()),
        };
        let servers = program.serve().await?;
        program.watch_nodes();
        program.shadow.start();
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            ended = program.driver_changed() => Err(ended),
        };
        servers.shut_down().await;
        outcome
    }

    /// Creates all parts. Nothing is watched yet.
    async fn start(
        flags: &'a Flags,
        driver: Option<Described>,
        env: &'a Env,
        tasks: &'a Tasks,
    ) -> Result<Self, AppError> {
        let gate = Gate::shut(Arc::clone(&env.clock));
        let (connections, random) = (env.connections.clone(), Arc::clone(&env.random));
        let lanes =
            Lanes::new(connections, lane_settings(flags), gate.clone(), random, &env.metrics);
        let client = lanes.objects;
        let driver = ShadowedDriver::new(driver, flags, env, tasks, &gate).await?;
        let name = driver.name();
        tracing::info!(driver = name, "Shadow mode: nothing is written, and no volume is made");
        let uses_topology = has_topology(flags, driver.capabilities());
        let nodes = uses_topology.then(|| Nodes::for_driver(name));
        let settings = settings(flags, &driver, &client).await;
        let shadow = Shadow::new(ShadowDeps {
            topology: nodes
                .clone()
                .map(|nodes| Topology::new(nodes, client.clone(), &flags.provisioning)),
            client: client.clone(),
            metrics: env.metrics.clone(),
            clock: Arc::clone(&env.clock),
            random: Arc::clone(&env.random),
            tasks: tasks.clone(),
            settings,
            retry: retry(flags),
        });
        Ok(Self { flags, env, tasks, client, driver, nodes, shadow })
    }

    fn watch_nodes(&self) {
        let Some(nodes) = self.nodes.clone() else { return };
        let handler = nodes.csi_node_handler(|_| {});
        self.tasks.spawn_critical("watch of CSINodes", self.informers()().run(handler));
        let informers = self.informers();
        self.tasks.spawn_critical("watch of Nodes", async move {
            nodes.watch_nodes(informers, |_| {}).await;
        });
    }

    /// Returns a function that creates informers of all objects of a kind.
    fn informers<V: View>(&self) -> impl Fn() -> Informer<V> + Send + Sync + use<V> {
        let (client, metrics) = (self.client.clone(), self.env.metrics.clone());
        let random = Arc::clone(&self.env.random);
        move || Informer::new(&client, Scope::all(), Arc::clone(&random), &metrics)
    }

    /// Returns once another driver answers.
    async fn driver_changed(&self) -> AppError {
        match &self.driver {
            ShadowedDriver::Connected(driver) => driver.clone().watch().await.into(),
            ShadowedDriver::Described(_) => std::future::pending().await,
        }
    }

    /// Starts the HTTP servers.
    async fn serve(&self) -> Result<RunningServers, AppError> {
        let readiness = self.readiness();
        let name = self.driver.name();
        let http = &self.flags.http;
        let metrics = http.address().map(|_| routes(http, &self.env.metrics, name, readiness));
        RunningServers::bind(self.flags, metrics, || self.status_routes(), self.tasks).await
    }

    fn status_routes(&self) -> Routes {
        let (driver, shadow) = (self.driver.clone(), self.shadow.clone());
        let (clock, readiness) = (Arc::clone(&self.env.clock), self.readiness());
        let page = move |_: &str| {
            let status = Status {
                version: VERSION.to_owned(),
                time: format!("{:.0}", clock.wall()),
                driver: driver.status(),
                not_ready: readiness().err(),
                ..Status::default()
            };
            Page { status, shadow: Some(shadow.report()) }.to_json()
        };
        Routes::status(status::JSON_PATH, page)
    }

    /// Returns a check that everything that is watched has been listed once.
    fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let (shadow, nodes) = (self.shadow.clone(), self.nodes.clone());
        move || {
            shadow.readiness()?;
            nodes.as_ref().map_or(Ok(()), Nodes::readiness)
        }
    }
}

/// The settings of provisioning, as of a process that works. The identity of a process is not compared.
async fn settings(flags: &Flags, driver: &ShadowedDriver, client: &Client) -> ProvisionerSettings {
    let volume_attributes_classes = serves_attributes_classes(flags, client).await;
    provisioner_settings(
        flags,
        DriverFacts {
            name: driver.name().to_owned(),
            capabilities: driver.capabilities().clone(),
            identity: String::new(),
            volume_attributes_classes,
        },
    )
}
