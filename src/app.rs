//! The program: what is started in which order, who is wired to whom, and how it all ends.
//!
//! Owns the order of start (driver, HTTP, watches, election, work) and of the end (no new work,
//! running calls, Lease, events, HTTP). Takes the API server's transport, the driver's connector,
//! clock, random source and spawner from outside ([`Env`]), so that a simulation starts this
//! very program. Promises that work is done only while the Lease is held, and that whatever ends
//! unexpectedly ends the process with a message that says what. Leaves parsing flags, signals and
//! the exit code to `main`.

mod capacity;
mod election;
mod error;
mod rights;
mod settings;
mod support;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::error::Error;
use self::{
    settings::{
        controller_settings, lane_settings, node_deployment, protection_settings,
        provisioner_settings, topology_settings,
    },
    support::{connect, has_topology, nodes, serves_attributes_classes},
};
use crate::{
    capacity::Publisher,
    controller,
    controller::{
        Controller, classes::Classes, dependencies::index::Dependency, events::ClaimEvents,
    },
    csi::{Connector, Driver, proto::controller_service_capability::rpc::Type as Rpc},
    csi_provisioner,
    csi_provisioner::{Attachments, CsiProvisioner, EVENT_COMPONENT, Reads, Topology},
    flags::Flags,
    http,
    http::Routes,
    kube::{
        Informer, Lanes, Scope, Transport, View,
        events::Recorder,
        objects::{CsiNode, Node},
    },
    leader,
    metrics::Metrics,
    nodes::{News, Nodes},
    runtime::{Clock, Gate, Random, Spawner, Tasks},
    source_protection,
    source_protection::Protection,
};

/// How long the last events may take to get out where nobody asked for the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How long open requests to the HTTP server may take at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What the program takes from outside.
pub struct Env {
    /// The way to the API server.
    pub transport: Transport,
    /// The way to the driver.
    pub connector: Connector,
    /// Time that is written down, and time that counts a suspended machine.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Runs tasks.
    pub spawner: Arc<dyn Spawner>,
    /// Where this process runs.
    pub host: Host,
}

/// Where this process runs.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The machine's or pod's host name.
    pub name: String,
    /// The pod's UID, where it could be found out.
    pub pod_uid: Option<String>,
    /// The namespace in the environment (`POD_NAMESPACE`).
    pub pod_namespace: Option<String>,
    /// The namespace that the service account's files name.
    pub service_account_namespace: Option<String>,
}

/// Runs the program until `stop`, or until something ends it.
///
/// # Errors
/// What ended it, when that was not `stop`.
pub async fn run(flags: Flags, world: Env, stop: CancellationToken) -> Result<(), Error> {
    run_counted(flags, world, Metrics::new()?, stop).await
}

/// The same, with metrics that can be read from outside without a request.
///
/// # Errors
/// As of [`run`].
pub async fn run_counted(
    flags: Flags,
    world: Env,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), Error> {
    let (tasks, mut ended) = Tasks::new(Arc::clone(&world.spawner));
    tokio::select! {
        biased;
        outcome = Box::pin(Program::run(&flags, &world, metrics, &tasks, &stop)) => outcome,
        // The sender lives in `tasks`: a task's end is all that can be received.
        Some(ended) = ended.recv() => Err(ended.into()),
    }
}

/// Everything that runs, wired up.
struct Program<'a> {
    flags: &'a Flags,
    world: &'a Env,
    metrics: Metrics,
    gate: Gate,
    lanes: Lanes,
    driver: Driver,
    recorder: Recorder,
    controller: Controller<CsiProvisioner>,
    /// Guards what volumes are made from.
    protection: Protection,
    classes: Classes,
    /// For a driver that attaches volumes: which ones are.
    attachments: Option<Attachments>,
    /// Where it matters where nodes are: what is known of them by watching.
    nodes: Option<Nodes>,
    /// With `--enable-capacity`: publishes how much room there is.
    publisher: Option<Publisher>,
    /// Whether classes of volume attributes are looked at.
    attributes_classes: bool,
    /// Whether this process leads; always without election.
    leads: watch::Sender<bool>,
    /// Cancelled once another process was found to lead.
    stands_by: CancellationToken,
    health: leader::Health,
}

impl<'a> Program<'a> {
    /// From the driver's socket to the end.
    async fn run(
        flags: &'a Flags,
        world: &'a Env,
        metrics: Metrics,
        tasks: &Tasks,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let program = tokio::select! {
            biased;
            program = Self::start(flags, world, metrics, tasks) => program?,
            // Nothing is in hand yet.
            () = stop.cancelled() => return Ok(()),
        };
        let server = program.serve(tasks).await?;
        program.watch(tasks);
        program.preflight(tasks);
        let outcome = tokio::select! {
            biased;
            outcome = program.work(stop) => outcome,
            ended = program.driver.clone().watch() => Err(ended.into()),
        };
        // Whatever ended it: nothing more is begun, and what was told gets out.
        program.gate.retire();
        let ended = program.last_words(outcome).await;
        if let Some(server) = server {
            server.end().await;
        }
        ended
    }

    /// DependencyIndex until the last events are out; in an end that was asked for, until the time it names.
    async fn last_words(&self, outcome: Result<Instant, Error>) -> Result<(), Error> {
        let patience = if let Ok(end) = &outcome {
            end.saturating_duration_since(Instant::now())
        } else {
            self.controller.tell_unsaved();
            LAST_EVENTS
        };
        self.recorder.drain(patience).await;
        outcome.map(drop)
    }

    /// Connects to the driver and wires everything up. Nothing is watched or written yet.
    async fn start(
        flags: &'a Flags,
        world: &'a Env,
        metrics: Metrics,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let clock = || Arc::clone(&world.clock);
        let elects = flags.leader_election.is_some();
        let gate = if elects { Gate::shut(clock()) } else { Gate::open(clock()) };
        let random = || Arc::clone(&world.random);
        let lanes = Lanes::new(
            world.transport.clone(),
            lane_settings(flags),
            gate.clone(),
            random(),
            &metrics,
        );
        let attributes_classes = serves_attributes_classes(flags, &lanes.objects).await;
        let driver = connect(flags, world, tasks, &gate, &metrics).await?;
        let nodes = nodes(flags, &driver);
        let publisher =
            capacity::publisher(flags, world, tasks, &driver, &lanes, &nodes, &metrics).await?;
        let recorder = Recorder::start(lanes.events.clone(), tasks, clock(), random(), &metrics);
        let classes = Classes::default();
        let refresher = publisher.as_ref().map(|publisher| {
            capacity::follow(&classes, publisher);
            publisher.refresher()
        });
        let settings = provisioner_settings(flags, &driver, world, attributes_classes);
        let attaches = driver.capabilities().controller.contains(&Rpc::PublishUnpublishVolume);
        let attachments = attaches.then(Attachments::default);
        let protection = Protection::new(source_protection::Deps {
            client: lanes.objects.clone(),
            metrics: metrics.clone(),
            random: random(),
            clock: clock(),
            events: recorder.from(EVENT_COMPONENT),
            driver: driver.name().to_owned(),
            tasks: tasks.clone(),
            settings: protection_settings(flags, &driver),
        });
        let topology = has_topology(flags, &driver)
            .then(|| Topology::new(nodes.clone(), lanes.objects.clone(), topology_settings(flags)));
        let nodes = (topology.is_some() || publisher.is_some()).then_some(nodes);
        let provisioner = CsiProvisioner::new(csi_provisioner::Deps {
            driver: driver.clone(),
            client: lanes.objects.clone(),
            reads: Reads::new(lanes.objects.clone(), tasks),
            classes: classes.clone(),
            attachments: attachments.clone(),
            topology,
            refresher: refresher.unwrap_or_default(),
            node: node_deployment(flags, &driver, random(), &metrics),
            protection: protection.clone(),
            events: ClaimEvents::new(recorder.from(EVENT_COMPONENT)),
            settings,
        });
        let component = format!("{}_{}_{}", driver.name(), world.host.name, world.random.uuid());
        let mut controller = Controller::new(controller::Deps {
            provisioner: Arc::new(provisioner),
            client: lanes.objects.clone(),
            classes: classes.clone(),
            events: recorder.from(&component),
            metrics: metrics.clone(),
            clock: clock(),
            random: random(),
            tasks: tasks.clone(),
            settings: controller_settings(flags),
        });
        if nodes.is_some() && flags.node_deployment.is_none() {
            controller.shows::<CsiNode>();
            controller.shows::<Node>();
        }
        let health = leader::Health::new(clock());
        let leads = watch::Sender::new(!elects);
        Ok(Self {
            flags,
            world,
            metrics,
            gate,
            lanes,
            driver,
            recorder,
            controller,
            protection,
            classes,
            attachments,
            nodes: nodes.filter(|_| flags.node_deployment.is_none()),
            publisher,
            attributes_classes,
            leads,
            stands_by: CancellationToken::new(),
            health,
        })
    }

    /// Starts watching.
    fn watch(&self, tasks: &Tasks) {
        let protection = self.protection.clone();
        self.controller.watch(move |event| protection.observe(event));
        if let Some(attachments) = &self.attachments {
            let observer = attachments.observer(self.controller.volume_waker());
            let reflector = self.reflector().relist_when(attachments.wants_list());
            tasks.spawn_critical("watch of VolumeAttachments", reflector.run(observer));
        }
        if let Some(publisher) = &self.publisher {
            publisher.watch();
        }
        if let Some(nodes) = &self.nodes {
            self.watch_nodes(nodes.clone(), tasks);
        }
    }

    fn watch_nodes(&self, nodes: Nodes, tasks: &Tasks) {
        let waker = Arc::new(self.controller.claim_waker());
        let wake = move |news: News<'_>| {
            waker(&match news {
                News::CsiNode(name) => Dependency::object::<CsiNode>(None, name),
                News::Node(name) => Dependency::object::<Node>(None, name),
            });
        };
        let observer = nodes.csi_node_observer(wake.clone());
        tasks.spawn_critical("watch of CSINodes", self.reflector().run(observer));
        let reflectors = self.reflectors();
        tasks.spawn_critical("watch of Nodes", async move { nodes.follow(reflectors, wake).await });
    }

    /// A reflector of a whole kind.
    fn reflector<V: View>(&self) -> Informer<V> {
        self.reflectors()()
    }

    /// Makes reflectors of a whole kind.
    fn reflectors<V: View>(&self) -> impl Fn() -> Informer<V> + Send + Sync + use<V> {
        let (client, metrics) = (self.lanes.objects.clone(), self.metrics.clone());
        let random = Arc::clone(&self.world.random);
        move || Informer::new(&client, Scope::all(), Arc::clone(&random), &metrics)
    }

    /// A check of whether everything that is watched has been listed once; an error names what
    /// has not.
    fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let (controller, nodes) = (self.controller.readiness(), self.nodes.clone());
        move || {
            controller()?;
            nodes.as_ref().map_or(Ok(()), Nodes::readiness)
        }
    }

    /// Starts the HTTP server, where there is to be one. It serves to the very end, so that the end
    /// can be watched.
    async fn serve(&self, tasks: &Tasks) -> Result<Option<Serving>, Error> {
        let Some(http) = &self.flags.http else { return Ok(None) };
        let (metrics, health) = (self.metrics.clone(), self.health.clone());
        let scrapes = metrics.serve()?;
        let mut routes = Routes::new(&http.metrics_path, move || scrapes.count(|| metrics.text()))
            .check("/healthz", || Ok(()))
            .check("/readyz", self.readiness());
        if http.leader_election_check && self.flags.leader_election.is_some() {
            let check = move || health.check().map_err(|error| error.to_string());
            routes = routes.check(http::LEADER_ELECTION_CHECK, check);
        }
        if http.pprof {
            routes = routes.profiles(tasks.clone());
        }
        let server = http::Server::bind(&http.address, routes).await?;
        Ok(Some(Serving::start(server, tasks)))
    }
}

/// The HTTP server while it runs.
struct Serving {
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
}

impl Serving {
    fn start(server: http::Server, tasks: &Tasks) -> Self {
        let (stop, (end, ended)) = (CancellationToken::new(), oneshot::channel());
        let (running, asked) = (server.run(tasks.clone(), stop.clone()), stop.clone());
        tasks.spawn_critical("HTTP server", async move {
            running.await;
            // An end that was asked for is none of the kind that ends the process.
            if asked.is_cancelled() {
                drop(end);
                std::future::pending::<()>().await;
            }
        });
        Self { stop, ended }
    }

    /// Ends it, once open requests are answered or have had their time.
    async fn end(self) {
        self.stop.cancel();
        let _ = timeout(LAST_ANSWERS, self.ended).await;
    }
}
