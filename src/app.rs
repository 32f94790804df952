//! The program: creates all parts, starts them, and shuts them down.
//!
//! Starts in the order driver, HTTP server, leader election, watches, work. Shuts down in the order new
//! work, running calls, Lease, events, HTTP server. The connections to the API server, the connector to the
//! driver, clock, random numbers and task spawner are passed in ([`Env`]), so that a simulation runs the
//! same program. It works only while it holds the Lease. A part that ends unexpectedly ends the process with
//! an error that names it. [`process`] is what is around it: logging, signals, the exit code. What another
//! program of this library needs to do the same is public.

mod capacity;
mod election;
mod error;
mod host;
mod permissions;
pub mod process;
mod serving;
mod settings;
mod support;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

pub use self::{
    error::AppError,
    host::Host,
    serving::{Servers, routes},
    settings::{lane_settings, provisioner_settings, retry},
    support::{has_topology, serves_attributes_classes},
};
use self::{
    settings::{controller_settings, driver_facts, node_deployment, peers, protection_settings},
    support::{connect, nodes},
};
use crate::{
    capacity::Publisher,
    controller,
    controller::{
        Controller, classes::Classes, dependencies::Dependency, events::Events,
        ownership::ProvisionerIdentity,
    },
    csi::{Connector, Driver, proto::controller_service_capability::rpc::Type as Rpc},
    csi_provisioner,
    csi_provisioner::{Attachments, CsiProvisioner, EVENT_COMPONENT, Reads, Topology},
    flags::Flags,
    kube::{
        Connections, Informer, Lanes, Scope, View,
        events::Recorder,
        objects::{CsiNode, Node},
    },
    metrics::Metrics,
    nodes::{NodeChange, Nodes},
    runtime::{Clock, Gate, Random, Spawner, Tasks},
    source_protection,
    source_protection::Protection,
};

/// The time for sending the remaining events when the program ends by itself.
const EVENT_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a process that takes part in an election waits for a driver that is gone: as long as at its start.
/// Then another replica, with a driver of its own, may lead. A process that is alone waits for ever.
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);

/// The program's environment.
pub struct Env {
    /// The connections to the API server.
    pub connections: Connections,
    /// Connects to the driver.
    pub connector: Connector,
    /// The wall clock, and the time since boot.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
    /// Spawns tasks.
    pub spawner: Arc<dyn Spawner>,
    /// The metrics that the program counts in and serves.
    pub metrics: Metrics,
    /// The host and pod of this process.
    pub host: Host,
}

/// Runs the program until `stop` is cancelled or it fails.
///
/// # Errors
/// The reason, if it ended for another reason than `stop`.
pub async fn run(flags: Flags, env: Env, stop: CancellationToken) -> Result<(), AppError> {
    let (tasks, mut ended) = Tasks::new(Arc::clone(&env.spawner));
    let program = Program::run(&flags, &env, &tasks, &stop);
    tokio::select! {
        biased;
        outcome = Box::pin(program) => outcome,
        // The channel stays open, as `tasks` owns a sender.
        Some(ended) = ended.recv() => Err(ended.into()),
    }
}

/// All parts of the program.
struct Program<'a> {
    base: Base<'a>,
    recorder: Recorder,
    controller: Controller<CsiProvisioner>,
    /// Protects the sources of volumes.
    protection: Protection,
    classes: Classes,
    /// The attached volumes, if the driver attaches volumes.
    attachments: Option<Attachments>,
    /// The watched nodes, if topology matters and there is no node deployment.
    nodes: Option<Nodes>,
    /// Publishes storage capacity, with `--enable-capacity`.
    publisher: Option<Publisher>,
    /// Whether this process is the leader; always true without leader election.
    is_leader: watch::Sender<bool>,
    /// The permissions that are missing, as last checked.
    missing_permissions: Arc<Mutex<Vec<String>>>,
}

impl<'a> Program<'a> {
    /// Starts, runs and shuts down the program.
    async fn run(
        flags: &'a Flags,
        env: &'a Env,
        tasks: &'a Tasks,
        stop: &CancellationToken,
    ) -> Result<(), AppError> {
        let program = tokio::select! {
            biased;
            program = Self::start(flags, env, tasks) => program?,
            // Nothing is in progress yet.
            () = stop.cancelled() => return Ok(()),
        };
        let work = Box::pin(async {
            let outcome = program.work_with_driver(stop).await;
            // Starts nothing new, whatever the outcome.
            program.base.gate.retire();
            program.drain_events(outcome).await
        });
        program.servers().await?.serve_beside(work, tasks).await
    }

    /// Works until `stop` is cancelled, or until the driver is another one or away for too long.
    async fn work_with_driver(&self, stop: &CancellationToken) -> Result<Instant, AppError> {
        let has_election = self.base.flags.leader_election().is_some();
        let patience = if has_election { DRIVER_PATIENCE } else { Duration::MAX };
        let stop = stop.child_token();
        let work = self.work(&stop);
        tokio::pin!(work);
        tokio::select! {
            biased;
            outcome = &mut work => outcome,
            ended = self.base.driver.clone().watch(patience) => {
                stop.cancel();
                work.await.and_then(|_| Err(ended.into()))
            }
        }
    }

    /// Sends the remaining events: after a requested shutdown until the time in `outcome`, after an error
    /// for [`EVENT_DRAIN_TIMEOUT`].
    async fn drain_events(&self, outcome: Result<Instant, AppError>) -> Result<(), AppError> {
        let timeout = if let Ok(end) = &outcome {
            end.saturating_duration_since(Instant::now())
        } else {
            self.controller.log_unfinished();
            EVENT_DRAIN_TIMEOUT
        };
        self.recorder.drain(timeout).await;
        outcome.map(drop)
    }

    /// Connects to the driver and creates all parts. Nothing is watched or written yet.
    async fn start(flags: &'a Flags, env: &'a Env, tasks: &'a Tasks) -> Result<Self, AppError> {
        let base = Base::new(flags, env, tasks).await?;
        let nodes = nodes(flags, &base.driver);
        let publisher = capacity::publisher(&base, &nodes).await?;
        let recorder = base.recorder();
        let classes = Classes::default();
        if let Some(publisher) = &publisher {
            capacity::report_class_changes(&classes, publisher);
        }
        let facts = driver_facts(flags, &base.driver, env, base.attributes_classes);
        let settings = provisioner_settings(flags, facts);
        let attachments = base.attachments();
        let protection = base.protection(&recorder);
        let topology = base.topology(&nodes);
        let topology_nodes = topology.is_some().then(|| nodes.clone());
        let peers = peers(flags, base.random());
        let identity = ProvisionerIdentity {
            node: flags.node_deployment().map(|node| node.node_name.clone()),
            ..settings.provisioner_identity()
        };
        let uses_nodes = topology.is_some() || publisher.is_some();
        let nodes = (uses_nodes && flags.node_deployment().is_none()).then_some(nodes);
        let provisioner = CsiProvisioner::new(csi_provisioner::CsiProvisionerDeps {
            driver: base.driver.clone(),
            client: base.lanes.objects.clone(),
            reads: Reads::new(base.lanes.objects.clone(), tasks),
            classes: classes.clone(),
            attachments: attachments.clone(),
            topology,
            capacity: publisher.clone(),
            node: node_deployment(flags, &base.driver, peers.clone(), &env.metrics),
            protection: protection.clone(),
            events: Events::new(recorder.for_component(EVENT_COMPONENT)),
            settings,
        });
        let driver = base.driver.name();
        let component = format!("{driver}_{}_{}", env.host.name, env.random.uuid());
        let controller = Controller::new(controller::Deps {
            provisioner: Arc::new(provisioner),
            identity,
            peers,
            protection: protection.clone(),
            attachments: attachments.as_ref().map(Attachments::list),
            nodes: topology_nodes,
            client: base.lanes.objects.clone(),
            classes: classes.clone(),
            events: Events::new(recorder.for_component(&component)),
            metrics: env.metrics.clone(),
            clock: Arc::clone(&env.clock),
            random: base.random(),
            tasks: tasks.clone(),
            settings: controller_settings(flags),
        });
        Ok(Self {
            base,
            recorder,
            controller,
            protection,
            classes,
            attachments,
            nodes,
            publisher,
            is_leader: watch::Sender::new(flags.leader_election().is_none()),
            missing_permissions: Arc::default(),
        })
    }

    /// Starts the watches: nothing is listed or watched before this process leads (safety rule 6).
    fn watch(&self) {
        self.controller.watch();
        if let Some(attachments) = &self.attachments {
            let handler = attachments.event_handler(self.controller.volume_waker());
            let (volumes, informer) = (self.controller.volume_list(), self.base.informer());
            self.base.tasks.spawn_critical("watch of VolumeAttachments", async move {
                volumes.whole().await;
                informer.run(handler).await;
            });
        }
        if let Some(publisher) = &self.publisher {
            publisher.watch();
        }
        if let Some(nodes) = &self.nodes {
            self.watch_nodes(nodes.clone());
        }
    }

    fn watch_nodes(&self, nodes: Nodes) {
        let waker = Arc::new(self.controller.claim_waker());
        let wake = move |change: NodeChange<'_>| {
            waker(&match change {
                NodeChange::CsiNode(name) => Dependency::object::<CsiNode>(None, name),
                NodeChange::Node(name) => Dependency::object::<Node>(None, name),
            });
        };
        let handler = nodes.csi_node_handler(wake.clone());
        self.base.tasks.spawn_critical("watch of CSINodes", self.base.informer().run(handler));
        let informers = self.base.informers();
        self.base.tasks.spawn_critical("watch of Nodes", async move {
            nodes.watch_nodes(informers, wake).await;
        });
    }

    /// Returns a check that everything that is watched has been listed once. Its error names what has
    /// not. A process that does not lead watches nothing, and is ready.
    fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let controller = self.controller.readiness();
        let nodes = self.nodes.clone();
        let is_leader = self.is_leader.subscribe();
        move || {
            if !*is_leader.borrow() {
                return Ok(());
            }
            controller()?;
            nodes.as_ref().map_or(Ok(()), Nodes::readiness)
        }
    }
}

/// What the parts of the program are created from.
struct Base<'a> {
    flags: &'a Flags,
    env: &'a Env,
    tasks: &'a Tasks,
    gate: Gate,
    lanes: Lanes,
    /// Whether VolumeAttributesClasses are supported.
    attributes_classes: bool,
    driver: Driver,
}

impl<'a> Base<'a> {
    /// Creates the clients of the API server, and connects to the driver.
    async fn new(flags: &'a Flags, env: &'a Env, tasks: &'a Tasks) -> Result<Self, AppError> {
        let clock = || Arc::clone(&env.clock);
        let has_election = flags.leader_election().is_some();
        let gate = if has_election { Gate::shut(clock()) } else { Gate::open(clock()) };
        let connections = env.connections.clone();
        let random = Arc::clone(&env.random);
        let lanes =
            Lanes::new(connections, lane_settings(flags), gate.clone(), random, &env.metrics);
        let attributes_classes = serves_attributes_classes(flags, &lanes.objects).await;
        let driver = connect(flags, env, tasks, &gate).await?;
        Ok(Self { flags, env, tasks, gate, lanes, attributes_classes, driver })
    }

    /// Creates an informer of all objects of a kind.
    fn informer<V: View>(&self) -> Informer<V> {
        self.informers()()
    }

    /// Returns a function that creates informers of all objects of a kind.
    fn informers<V: View>(&self) -> impl Fn() -> Informer<V> + Send + Sync + use<V> {
        let client = self.lanes.objects.clone();
        let metrics = self.env.metrics.clone();
        let random = self.random();
        move || Informer::new(&client, Scope::all(), Arc::clone(&random), &metrics)
    }

    fn recorder(&self) -> Recorder {
        let clock = Arc::clone(&self.env.clock);
        let events = self.lanes.events.clone();
        Recorder::start(events, self.tasks, clock, self.random(), &self.env.metrics)
    }

    fn random(&self) -> Arc<dyn Random> {
        Arc::clone(&self.env.random)
    }

    fn topology(&self, nodes: &Nodes) -> Option<Topology> {
        let flags = &self.flags.provisioning;
        has_topology(self.flags, self.driver.capabilities())
            .then(|| Topology::new(nodes.clone(), self.lanes.objects.clone(), flags))
    }

    fn attachments(&self) -> Option<Attachments> {
        let capabilities = self.driver.capabilities();
        capabilities.has(Rpc::PublishUnpublishVolume).then(Attachments::default)
    }

    fn protection(&self, recorder: &Recorder) -> Protection {
        Protection::new(source_protection::ProtectionDeps {
            client: self.lanes.objects.clone(),
            metrics: self.env.metrics.clone(),
            random: self.random(),
            clock: Arc::clone(&self.env.clock),
            events: recorder.for_component(EVENT_COMPONENT),
            driver: self.driver.name().to_owned(),
            tasks: self.tasks.clone(),
            settings: protection_settings(self.flags, &self.driver),
        })
    }
}
