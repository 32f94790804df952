//! The program: what is started in which order, who is wired to whom, and how it all ends.
//!
//! Owns the order of start (driver, HTTP, watches, election, work) and of the end (no new work,
//! running calls, Lease, events). Takes the API server's transport, the driver's connector,
//! clock, random source and spawner from outside ([`World`]), so that a simulation starts this
//! very program. Promises that work is done only while the Lease is held, and that whatever ends
//! unexpectedly ends the process with a message that says what. Leaves parsing flags, signals and
//! the exit code to `main`.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::{self, Controller, classes::Classes},
    csi::{
        self, Address, Connector, Driver, DriverSettings,
        proto::{
            controller_service_capability::rpc::Type as Rpc,
            plugin_capability::service::Type as Service,
        },
    },
    csi_provisioner::{Attachments, CsiProvisioner, Settings, VolumeNaming, names_credentials},
    flags::{self, Flags},
    http::{self, Routes},
    kube_api::{
        Client, LaneSettings, Lanes, RateLimit, Reflector, Scope, Transport,
        events::{Recorder, Severity, Subject},
        reflector,
        views::VolumeAttributesClass,
    },
    leader::{self, ElectionSettings, Ended, Identity},
    metrics::Metrics,
    mutations::{self, Mutation},
    preflight::{self, Feature},
    runtime::{Clock, Gate, Random, Spawner, TaskEnded, Tasks},
};

/// How long the last events may take to get out at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How long calls that were cut at the end may take to notice.
const CUT: Duration = Duration::from_secs(1);

/// So many seconds the question for missing rights waits for the first lists.
const PREFLIGHT_PATIENCE: u32 = 10;

/// What the program takes from outside.
pub struct World {
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

/// Why the program ended before anybody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag asks for something that this version can't do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// `--csi-address` can't be used.
    #[error(transparent)]
    Address(#[from] csi::AddressError),
    /// The driver could not be used at start.
    #[error(transparent)]
    Driver(#[from] csi::ConnectError),
    /// The driver came back as another one; begins with the original's words, which stand in
    /// the termination log.
    #[error("Lost connection to CSI driver, exiting: {0}")]
    DriverChanged(#[from] csi::ConnectionEnded),
    /// The election's times do not fit together.
    #[error(transparent)]
    Election(#[from] leader::SettingsError),
    /// The Lease is somebody else's now.
    #[error("Stopped leading: {0}")]
    LostLease(leader::Loss),
    /// The HTTP server did not start.
    #[error(transparent)]
    Http(#[from] http::ListenError),
    /// A background task ended, which none may.
    #[error(transparent)]
    Task(#[from] TaskEnded),
    /// A metric could not be registered, which is a bug.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl Error {
    /// The process's exit code: the original's where it knows the case (reference 1.3).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Driver(error) => error.exit_code(),
            Self::Http(_) | Self::Metrics(_) => 255,
            Self::Election(_) => 2,
            Self::Unsupported(_)
            | Self::Address(_)
            | Self::DriverChanged(_)
            | Self::LostLease(_)
            | Self::Task(_) => 1,
        }
    }
}

/// Runs the program until `stop`, or until something ends it.
///
/// # Errors
/// What ended it, when that was not `stop`.
pub async fn run(flags: Flags, world: World, stop: CancellationToken) -> Result<(), Error> {
    refuse_unsupported(&flags)?;
    let (tasks, mut ended) = Tasks::new(Arc::clone(&world.spawner));
    tokio::select! {
        biased;
        outcome = Program::run(&flags, &world, &tasks, &stop) => outcome,
        // The sender lives in `tasks`: a task's end is all that can be received.
        Some(ended) = ended.recv() => Err(ended.into()),
    }
}

/// Refuses what would be silently left undone.
fn refuse_unsupported(flags: &Flags) -> Result<(), Error> {
    let asked = [
        (
            flags.capacity.is_some(),
            "this version does not publish CSIStorageCapacity objects yet: start without --enable-capacity",
        ),
        (
            flags.node_deployment.is_some(),
            "this version does not provision per node yet: start without --node-deployment",
        ),
    ];
    asked
        .into_iter()
        .find(|(asked, _)| *asked)
        .map_or(Ok(()), |(_, why)| Err(Error::Unsupported(why)))
}

/// Everything that runs, wired up.
struct Program<'a> {
    flags: &'a Flags,
    world: &'a World,
    metrics: Metrics,
    gate: Gate,
    lanes: Lanes,
    driver: Driver,
    recorder: Recorder,
    controller: Controller<CsiProvisioner>,
    classes: Classes,
    /// For a driver that attaches volumes: which ones are.
    attachments: Option<Attachments>,
    /// Whether VolumeAttributesClasses are looked at.
    attributes_classes: bool,
    /// Whether this process leads; always without election.
    leads: watch::Sender<bool>,
    health: leader::Health,
}

impl<'a> Program<'a> {
    /// From the driver's socket to the end.
    async fn run(
        flags: &'a Flags,
        world: &'a World,
        tasks: &Tasks,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let program = tokio::select! {
            biased;
            program = Self::start(flags, world, tasks) => program?,
            // Nothing is in hand yet.
            () = stop.cancelled() => return Ok(()),
        };
        program.serve(tasks, stop).await?;
        program.watch(tasks);
        program.preflight(tasks);
        let outcome = tokio::select! {
            biased;
            outcome = program.work(stop) => outcome,
            ended = program.driver.clone().watch() => Err(ended.into()),
        };
        // Whatever ended it: nothing more is begun, and what was told gets out.
        program.gate.retire();
        program.recorder.drain(LAST_EVENTS).await;
        outcome
    }

    /// Connects to the driver and wires everything up. Nothing is watched or written yet.
    async fn start(flags: &'a Flags, world: &'a World, tasks: &Tasks) -> Result<Self, Error> {
        let metrics = Metrics::new()?;
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
        let recorder = Recorder::start(lanes.events.clone(), tasks, clock(), random(), &metrics);
        let classes = Classes::default();
        let settings = provisioner_settings(flags, &driver, world, attributes_classes);
        let attaches = driver.capabilities().controller.contains(&Rpc::PublishUnpublishVolume);
        let attachments = attaches.then(Attachments::default);
        let provisioner = CsiProvisioner::new(
            driver.clone(),
            lanes.objects.clone(),
            classes.clone(),
            attachments.clone(),
            settings,
        );
        let component = format!("{}_{}_{}", driver.name(), world.host.name, world.random.uuid());
        let controller = Controller::new(controller::Parts {
            provisioner: Arc::new(provisioner),
            client: lanes.objects.clone(),
            classes: classes.clone(),
            events: recorder.from(&component),
            metrics: metrics.clone(),
            random: random(),
            tasks: tasks.clone(),
            settings: controller_settings(flags),
        });
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
            classes,
            attachments,
            attributes_classes,
            leads,
            health,
        })
    }

    /// Starts watching: a standby does this too.
    fn watch(&self, tasks: &Tasks) {
        self.controller.watch();
        if let Some(attachments) = &self.attachments {
            let reflector = Reflector::new(
                &self.lanes.objects,
                Scope::all(),
                reflector::Settings::default(),
                Arc::clone(&self.world.random),
                &self.metrics,
            );
            tasks.vital("watch of VolumeAttachments", reflector.run(attachments.observer()));
        }
    }

    /// Asks which rights there are, once all that is watched has been listed. Where that cannot
    /// be, the answer says why.
    fn preflight(&self, tasks: &Tasks) {
        let readiness = self.controller.readiness();
        let (client, metrics) = (self.lanes.reviews.clone(), self.metrics.api.clone());
        let (features, classes) = (self.features(), self.classes.clone());
        let (driver, namespace) = (self.driver.name().to_owned(), self.lease_namespace());
        tasks.passing("preflight", async move {
            for _ in 0..PREFLIGHT_PATIENCE {
                if readiness().is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let reads_secrets = classes
                .any(|class| class.provisioner == driver && names_credentials(&class.parameters));
            let secrets = reads_secrets.then_some(Feature::Secrets);
            let features: Vec<Feature> = features.into_iter().chain(secrets).collect();
            preflight::run(client, &features, &namespace, &metrics).await;
        });
    }

    /// The features in use, as far as flags and driver tell.
    fn features(&self) -> Vec<Feature> {
        let capabilities = self.driver.capabilities();
        let modifies =
            self.attributes_classes && capabilities.controller.contains(&Rpc::ModifyVolume);
        [
            (true, Feature::Provisioning),
            (self.attachments.is_some(), Feature::Attachments),
            (self.flags.leader_election.is_some(), Feature::LeaderElection),
            (modifies, Feature::VolumeAttributesClass),
        ]
        .into_iter()
        .filter_map(|(used, feature)| used.then_some(feature))
        .collect()
    }

    fn lease_namespace(&self) -> String {
        let flag = self.flags.leader_election.as_ref().and_then(|flags| flags.namespace.as_deref());
        let host = &self.world.host;
        leader::namespace(
            flag,
            host.pod_namespace.as_deref(),
            host.service_account_namespace.as_deref(),
        )
    }

    /// Starts the HTTP server, where there is to be one.
    async fn serve(&self, tasks: &Tasks, stop: &CancellationToken) -> Result<(), Error> {
        let Some(http) = &self.flags.http else { return Ok(()) };
        let (metrics, health) = (self.metrics.clone(), self.health.clone());
        let scrapes = metrics.serve()?;
        let mut routes = Routes::new(&http.metrics_path, move || scrapes.count(|| metrics.text()))
            .check("/healthz", || Ok(()))
            .check("/readyz", self.controller.readiness());
        if http.leader_election_check && self.flags.leader_election.is_some() {
            let check = move || health.check().map_err(|error| error.to_string());
            routes = routes.check(http::LEADER_ELECTION_CHECK, check);
        }
        if http.pprof {
            routes = routes.profiles(tasks.clone());
        }
        let server = http::Server::bind(&http.address, routes).await?;
        let (server, stop) = (server.run(tasks.clone(), stop.clone()), stop.clone());
        tasks.vital("HTTP server", async move {
            server.await;
            // An end that was asked for is none of the kind that ends the process.
            if stop.is_cancelled() {
                std::future::pending::<()>().await;
            }
        });
        Ok(())
    }

    /// Works while this process leads, until `stop`.
    async fn work(&self, stop: &CancellationToken) -> Result<(), Error> {
        match self.election()? {
            None => {
                self.lead_and_stop(stop).await;
                Ok(())
            }
            Some(settings) => self.elect(settings, stop).await,
        }
    }

    /// Takes part in the election, works once it is won, and gives the Lease back at the end.
    async fn elect(
        &self,
        settings: ElectionSettings,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let release = CancellationToken::new();
        let election = self.election_loop(settings, release.clone());
        tokio::pin!(election);
        let in_flight = tokio::select! {
            biased;
            ended = &mut election => return lost(&ended),
            in_flight = self.lead_and_stop(stop) => in_flight,
        };
        // A Lease whose holder has calls in flight runs out instead (safety rule 1).
        if in_flight == 0 || mutations::is_on(Mutation::ReleaseInFlight) {
            release.cancel();
            let ended = election.await;
            tracing::info!(?ended, "leader election ended");
        }
        Ok(())
    }

    /// Works once this process leads; after `stop` ends what is in hand. Then the gate is shut for
    /// good. Gives how many calls and writes were still in flight.
    async fn lead_and_stop(&self, stop: &CancellationToken) -> usize {
        let patience = self.flags.safety.shutdown_timeout;
        let overdue = async {
            stop.cancelled().await;
            sleep(patience).await;
        };
        let work = self.lead(stop);
        tokio::pin!(work);
        tokio::select! {
            biased;
            () = &mut work => return self.gate.retire(),
            () = overdue => {}
        }
        let in_flight = self.gate.retire();
        self.tell_unfinished(in_flight);
        if in_flight > 0 {
            // What is cut becomes an open call of its claim, as after any unclear end.
            let _ = timeout(CUT, work).await;
        }
        in_flight
    }

    /// Works from the moment this process leads until `stop`, and on until nothing is in hand.
    async fn lead(&self, stop: &CancellationToken) {
        let mut leads = self.leads.subscribe();
        tokio::select! {
            biased;
            led = leads.wait_for(|leads| *leads) => if led.is_err() { return },
            () = stop.cancelled() => return,
        }
        self.controller.work(stop.clone()).await;
    }

    /// Says what the end of `--shutdown-timeout` leaves undone.
    fn tell_unfinished(&self, in_flight: usize) {
        let patience = self.flags.safety.shutdown_timeout;
        if in_flight > 0 {
            tracing::warn!(
                in_flight,
                ?patience,
                "Calls still run at the end of --shutdown-timeout and are cut; the Lease is left to run out"
            );
        }
        let unsaved = self.controller.unsaved();
        if !unsaved.is_empty() {
            tracing::warn!(
                claims = ?unsaved,
                ?patience,
                "PersistentVolumes could not be saved within --shutdown-timeout; the next leader asks the driver for them again"
            );
        }
    }

    async fn election_loop(&self, settings: ElectionSettings, release: CancellationToken) -> Ended {
        let source =
            self.recorder.from(&leader::event_component(self.driver.name(), &self.world.host.name));
        let leads = self.leads.clone();
        let on_change = move |change: leader::Change| {
            leads.send_replace(change.leads);
            if let Some(lease) = &change.lease {
                let subject = subject(lease);
                source.event(&subject, Severity::Normal, "LeaderElection", &change.message());
            }
        };
        let surroundings = leader::Surroundings {
            gate: self.gate.clone(),
            clock: Arc::clone(&self.world.clock),
            random: Arc::clone(&self.world.random),
            metrics: self.metrics.leader.clone(),
            health: self.health.clone(),
        };
        leader::lead(self.lanes.leases.clone(), settings, surroundings, on_change, release).await
    }

    fn election(&self) -> Result<Option<ElectionSettings>, Error> {
        let Some(flags) = &self.flags.leader_election else { return Ok(None) };
        let host = &self.world.host;
        let settings = ElectionSettings {
            lease_name: leader::lease_name(self.driver.name()),
            namespace: self.lease_namespace(),
            identity: Identity::new(&host.name, host.pod_uid.as_deref()),
            lease_duration: flags.lease_duration,
            renew_deadline: flags.renew_deadline,
            retry_period: flags.retry_period,
            labels: flags.labels.clone(),
        };
        settings.check()?;
        Ok(Some(settings))
    }
}

/// The Lease as events name it.
fn subject(lease: &leader::Lease) -> Subject {
    Subject {
        kind: "Lease".to_owned(),
        api_version: "coordination.k8s.io/v1".to_owned(),
        namespace: lease.namespace().to_owned(),
        name: lease.name().to_owned(),
        uid: lease.uid().to_owned(),
        resource_version: lease.resource_version().to_owned(),
    }
}

/// The election ended by itself, which only the loss of the Lease makes it do.
fn lost(ended: &Ended) -> Result<(), Error> {
    match ended {
        Ended::Lost(loss) => Err(Error::LostLease(loss.clone())),
        Ended::Released | Ended::Unreleased | Ended::NeverLed => Ok(()),
    }
}

async fn connect(
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
    let driver =
        Driver::connect(settings, Arc::clone(&world.connector), gate.clone(), metrics).await?;
    if flags.gates.topology
        && driver.capabilities().plugin.contains(&Service::VolumeAccessibilityConstraints)
    {
        return Err(Error::Unsupported(
            "the driver has topology (VOLUME_ACCESSIBILITY_CONSTRAINTS), which this version does not handle yet: start with --feature-gates=Topology=false if its volumes can be anywhere",
        ));
    }
    Ok(driver)
}

/// Whether classes of volume attributes are looked at: as the feature gate says, or else where the API
/// server serves them. As in the original a server that can't tell for now counts as one that
/// does, and one that learns them later is noticed at the next start.
async fn serves_attributes_classes(flags: &Flags, client: &Client) -> bool {
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

/// The lanes' settings. What differs from the original's default of 5 requests a second is told.
fn lane_settings(flags: &Flags) -> LaneSettings {
    if flags.kubernetes.rate.is_none() {
        tracing::info!(
            "no client-side limit on API requests; --kube-api-qps=5 gives the original's"
        );
    }
    let qps = flags.kubernetes.rate.map(|flags::Rate { qps, burst }| RateLimit { qps, burst });
    LaneSettings { qps, ..LaneSettings::default() }
}

fn controller_settings(flags: &Flags) -> controller::Settings {
    let provisioning = &flags.provisioning;
    controller::Settings {
        workers: provisioning.workers,
        retry_start: provisioning.retry_start,
        retry_max: provisioning.retry_max,
    }
}

fn provisioner_settings(
    flags: &Flags,
    driver: &Driver,
    world: &World,
    volume_attributes_classes: bool,
) -> Settings {
    let provisioning = &flags.provisioning;
    Settings {
        driver_name: driver.name().to_owned(),
        capabilities: driver.capabilities().clone(),
        identity: identity(driver.name(), &*world.clock, &*world.random),
        naming: VolumeNaming {
            prefix: provisioning.name_prefix.clone(),
            uuid_length: provisioning.name_uuid_length,
        },
        default_fs_type: provisioning.default_fstype.clone(),
        extra_create_metadata: provisioning.extra_create_metadata,
        controller_publish_readonly: provisioning.controller_publish_readonly,
        volume_attributes_classes,
    }
}

/// This process's identity, new at each start: it is written into every volume (reference 2.5).
fn identity(driver: &str, clock: &dyn Clock, random: &dyn Random) -> String {
    format!("{}-{}-{driver}", clock.wall().as_millisecond(), random.below(10_000))
}
