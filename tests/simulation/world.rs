//! One simulated cluster: API server, driver, and processes that can be killed.

#[path = "dial.rs"]
mod dial;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use csi_provisioner::{
    app,
    app::{Env, Host},
    csi::Connector,
    flags::Flags,
    kube::connection::transport::boxed,
    metrics::Metrics,
    runtime::{Clock, Generator, Spawner},
};
pub(crate) use dial::dial;
use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{
    apiserver::{
        ApiServer, Documents, Options, User,
        faults::{Effect, Faults, Rule},
        hooks::Hooks,
        resources::ServerVersion,
        status::Status,
    },
    driver::{self, Script, Scripted},
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

/// The driver's name.
pub(crate) const DRIVER: &str = "disk.example.com";

/// The longest a simulated wait may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster in memory.
pub(crate) struct Simulation {
    pub api: ApiServer,
    pub driver: Arc<driver::Host<Scripted>>,
    seed: u64,
    /// How often the driver's socket was opened, or was to be.
    dials: Arc<AtomicUsize>,
    /// Whom the program acts as.
    user: User,
    processes: Mutex<Vec<Process>>,
    /// The way to another driver than `driver`.
    elsewhere: Option<Connector>,
}

/// One run of the program.
#[derive(Clone)]
pub(crate) struct Process {
    tasks: Tasks,
    clock: Arc<SimulatedClock>,
    stop: CancellationToken,
    metrics: Metrics,
    outcome: Arc<Mutex<Option<Result<(), String>>>>,
}

/// A process's tasks: aborted all at once, as a kill does.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Spawner for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().spawn(task);
    }
}

impl Process {
    /// Ends every task of the process at the await it stands at.
    pub(crate) fn kill(&self) {
        self.tasks.0.lock().abort_all();
    }

    /// SIGTERM.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// The machine was suspended for so long: its timers stood still, its boot clock went on.
    #[allow(dead_code)] // not every test suspends
    pub(crate) fn suspend(&self, time: Duration) {
        *self.clock.suspended.lock() += time;
    }

    /// What a scrape would read.
    #[allow(dead_code)] // not every test reads metrics
    pub(crate) fn metrics(&self) -> String {
        self.metrics.text()
    }

    /// How the process ended, once it has ended by itself.
    pub(crate) fn outcome(&self) -> Option<Result<(), String>> {
        self.outcome.lock().clone()
    }
}

/// Simulated time: boot and wall time go with tokio's paused clock, and on while suspended.
struct SimulatedClock {
    start: Instant,
    /// Wall time at the start: the API server's.
    wall: jiff::Timestamp,
    suspended: Mutex<Duration>,
}

impl SimulatedClock {
    fn new(wall: jiff::Timestamp) -> Self {
        Self { start: Instant::now(), wall, suspended: Mutex::default() }
    }

    fn passed(&self) -> Duration {
        self.start.elapsed() + *self.suspended.lock()
    }
}

impl Clock for SimulatedClock {
    fn wall(&self) -> jiff::Timestamp {
        self.wall + jiff::SignedDuration::try_from(self.passed()).unwrap()
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(1000) + self.passed()
    }
}

impl Simulation {
    /// A cluster with one class of a driver that answers at once.
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(Options { seed, ..Options::default() })
    }

    /// The same of the Kubernetes release 1.`minor`.
    pub(crate) fn of_release(minor: u8) -> Self {
        Self::of(Options { version: ServerVersion::minor(minor), ..Options::default() })
    }

    /// The same on an API server with these options.
    pub(crate) fn of(options: Options) -> Self {
        let hooks = Hooks { extensions: vec![Arc::new(Documents)], ..Hooks::default() };
        let seed = options.seed;
        Self::on(ApiServer::new(Options { hooks, ..options }), seed, User::new("provisioner"))
    }

    /// The same on a given API server, where the program acts as `user`.
    pub(crate) fn on(api: ApiServer, seed: u64, user: User) -> Self {
        api.namespace("sc");
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
                           "provisioner": DRIVER, "reclaimPolicy": "Delete"});
        api.create(&class).unwrap();
        let script = Script { name: Some(DRIVER.into()), ..Script::default() };
        let driver = Arc::new(driver::Host::new(Scripted::new(script)));
        Self {
            api,
            driver,
            seed,
            dials: Arc::default(),
            user,
            processes: Mutex::default(),
            elsewhere: None,
        }
    }

    /// The same with another driver.
    #[allow(dead_code)] // not every test has one
    pub(crate) fn dialing(self, driver: Connector) -> Self {
        Self { elsewhere: Some(driver), ..self }
    }

    /// Starts the program.
    pub(crate) fn start(&self) -> Process {
        self.launch("host", &[])
    }

    /// Starts the program with these flags.
    pub(crate) fn start_with(&self, flags: &[&str]) -> Process {
        self.launch("host", flags)
    }

    /// Starts the program with leader election, as the host `name`.
    pub(crate) fn start_elected(&self, name: &str) -> Process {
        self.launch(name, &["--leader-election", "--leader-election-namespace=default"])
    }

    /// Starts the program as the host `name`, with leader election and more flags.
    #[allow(dead_code)] // not every test has some
    pub(crate) fn start_elected_with(&self, name: &str, flags: &[&str]) -> Process {
        let elected = ["--leader-election", "--leader-election-namespace=default"];
        self.launch(name, &[&elected, flags].concat())
    }

    /// Starts the program on the node `node`, beside the driver that `driver` leads to.
    #[allow(dead_code)] // not every test has nodes
    pub(crate) fn start_on(&self, node: &str, driver: Connector, flags: &[&str]) -> Process {
        self.launch_beside(driver, node, &[&["--node-deployment"], flags].concat())
    }

    fn launch(&self, host: &str, flags: &[&str]) -> Process {
        self.launch_beside(self.connector(), host, flags)
    }

    fn launch_beside(&self, driver: Connector, host: &str, flags: &[&str]) -> Process {
        let program = ["csi-provisioner", "--csi-address=/run/csi.sock", "--timeout=10s"];
        let args = program.iter().chain(flags).map(Into::into);
        let environment = |variable: &str| match variable {
            "NAMESPACE" => Some("default".into()),
            "POD_NAME" | "NODE_NAME" => Some(host.into()),
            _ => None,
        };
        let flags = Flags::parse(args, environment).unwrap().flags;
        let process = Process {
            tasks: Tasks::default(),
            clock: Arc::new(SimulatedClock::new(self.api.now())),
            stop: CancellationToken::new(),
            metrics: Metrics::new().unwrap(),
            outcome: Arc::default(),
        };
        let number = self.processes.lock().len() as u64;
        let world = self.world(host, driver, number, &process);
        let (stop, outcome) = (process.stop.clone(), Arc::clone(&process.outcome));
        let (tasks, metrics) = (process.tasks.clone(), process.metrics.clone());
        process.tasks.spawn(
            async move {
                let ended = app::run_with_metrics(flags, world, metrics, stop).await;
                let ended = ended.map_err(|error| error.to_string());
                *outcome.lock() = Some(ended);
                // Nothing of a process outlives it.
                tasks.0.lock().abort_all();
            }
            .boxed(),
        );
        self.processes.lock().push(process.clone());
        process
    }

    fn world(&self, host: &str, driver: Connector, number: u64, process: &Process) -> Env {
        Env {
            transport: boxed(self.api.service(self.user.clone())),
            connector: driver,
            clock: process.clock.clone(),
            random: Arc::new(Generator::from_seed(
                self.seed.wrapping_mul(1000).wrapping_add(number),
            )),
            spawner: Arc::new(process.tasks.clone()),
            host: Host { name: host.to_owned(), ..Host::default() },
        }
    }

    fn connector(&self) -> Connector {
        if let Some(driver) = &self.elsewhere {
            return Arc::clone(driver);
        }
        let (dial, dials) = (dial(&self.driver), Arc::clone(&self.dials));
        Arc::new(move |socket| {
            dials.fetch_add(1, Ordering::Relaxed);
            dial(socket)
        })
    }

    /// Waits in simulated time until `what` holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "seed {}: waited in vain until {what}\n{}",
                self.seed,
                self.trace()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What goes wrong at the API server.
    pub(crate) fn faults(&self) -> &Faults {
        self.api.faults()
    }

    /// Changes what the driver answers.
    pub(crate) fn script(&self, script: Value) {
        self.driver.backend().amend(serde_json::from_value(script).unwrap());
    }

    /// Makes a claim of the class; gives its UID.
    pub(crate) fn create_claim(&self, name: &str) -> String {
        let made = self.api.create(&claim(name)).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Makes a claim that names a VolumeAttributesClass; gives its UID.
    pub(crate) fn create_claim_of(&self, name: &str, attributes_class: &str) -> String {
        let mut claim = claim(name);
        claim["spec"]["volumeAttributesClassName"] = json!(attributes_class);
        let made = self.api.create(&claim).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn create_attributes_class(&self, name: &str, driver: &str, parameters: &Value) {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                           "metadata": {"name": name}, "driverName": driver, "parameters": parameters});
        self.api.create(&class).unwrap();
    }

    pub(crate) fn delete_claim(&self, name: &str) {
        self.api.delete("PersistentVolumeClaim", "sc", name).unwrap();
    }

    /// Marks the claim's volume as released, as the cluster does once the claim is gone.
    pub(crate) fn release(&self, uid: &str) {
        let status = json!({"status": {"phase": "Released"}});
        self.api.merge("PersistentVolume", "", &format!("pvc-{uid}"), &status).unwrap();
    }

    /// Moves a PersistentVolume to this phase, as the cluster does.
    pub(crate) fn phase(&self, name: &str, phase: &str) {
        let status = json!({"status": {"phase": phase}});
        self.api.merge("PersistentVolume", "", name, &status).unwrap();
    }

    /// Removes the claim's PersistentVolume past every finalizer.
    pub(crate) fn force_away(&self, uid: &str) {
        let name = format!("pvc-{uid}");
        let bare = json!({"metadata": {"finalizers": null}});
        self.api.merge("PersistentVolume", "", &name, &bare).unwrap();
        self.api.delete("PersistentVolume", "", &name).unwrap();
    }

    /// Whether the claim's PersistentVolume stands and is for it.
    pub(crate) fn is_saved(&self, uid: &str) -> bool {
        self.volumes().iter().any(|volume| {
            volume["metadata"]["name"] == format!("pvc-{uid}")
                && volume["spec"]["claimRef"]["uid"] == uid
        })
    }

    /// Lets something happen that no watch of PersistentVolumes shows, only the next list.
    pub(crate) fn unwatched(&self, happens: impl FnOnce(&Self)) {
        self.api.watches().cut(Some("persistentvolumes"));
        happens(self);
        self.api.create(&stranger("passer-by", "nobody", "passer-by")).unwrap();
        self.api.compact();
    }

    /// Answers so many requests with 403.
    pub(crate) fn refuse(&self, verb: &str, plural: &str, times: usize) {
        let kinds = self.api.kinds();
        let kind = kinds.iter().find(|kind| kind.plural == plural).unwrap();
        let forbidden = Status::forbidden(kind, "x", "no");
        self.faults().add(Rule::on(verb, plural, Effect::Answer(forbidden)).times(times));
    }

    /// Writes another holder into the Lease.
    pub(crate) fn usurp_lease(&self, holder: &str) {
        let lease = self.api.list("Lease", "default").pop().unwrap();
        let name = lease["metadata"]["name"].as_str().unwrap();
        let other = json!({"spec": {"holderIdentity": holder}});
        self.api.merge("Lease", "default", name, &other).unwrap();
    }

    /// Every PersistentVolume.
    pub(crate) fn volumes(&self) -> Vec<Value> {
        self.api.list("PersistentVolume", "")
    }

    /// The volumes that the driver holds, by id.
    pub(crate) fn left_at_driver(&self) -> Vec<String> {
        self.driver.backend().volumes().into_iter().collect()
    }

    /// How often the driver's method was called.
    pub(crate) fn calls(&self, method: &str) -> usize {
        self.driver.journal().count(method)
    }

    /// How many calls of the driver's method run now.
    #[allow(dead_code)] // not every test looks
    pub(crate) fn calls_under_way(&self, method: &str) -> usize {
        self.driver.backend().flight(method).map_or(0, |flight| flight.now)
    }

    /// How often a connection to the driver was tried.
    #[allow(dead_code)] // not every test counts
    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }

    /// How the process started last ended.
    #[allow(dead_code)] // not every test asks
    pub(crate) fn last_outcome(&self) -> Option<Result<(), String>> {
        self.processes.lock().last().and_then(Process::outcome)
    }

    /// The requests of each call of the driver's method.
    pub(crate) fn requests(&self, method: &str) -> Vec<Value> {
        let calls = self.driver.journal().calls();
        calls.into_iter().filter(|call| call.method == method).map(|call| call.request).collect()
    }

    /// How many requests the API server got.
    pub(crate) fn api_requests(&self, verb: &str, resource: &str) -> usize {
        self.api.requests().count(verb, resource)
    }

    /// Whether an event with this reason is there about the object of this name.
    pub(crate) fn has_event(&self, about: &str, reason: &str) -> bool {
        let events = self.api.list("Event", "sc");
        events
            .iter()
            .any(|event| event["involvedObject"]["name"] == about && event["reason"] == reason)
    }

    /// The texts of the events with this reason about the object of this name.
    pub(crate) fn told(&self, about: &str, reason: &str) -> Vec<String> {
        let events = self.api.list("Event", "sc");
        let told = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == about && event["reason"] == reason);
        told.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The same about an object without a namespace.
    pub(crate) fn has_cluster_event(&self, about: &str, reason: &str) -> bool {
        let events = self.api.list("Event", "default");
        events
            .iter()
            .any(|event| event["involvedObject"]["name"] == about && event["reason"] == reason)
    }

    /// Who holds the Lease.
    pub(crate) fn lease_holder(&self) -> Option<String> {
        let lease = self.api.list("Lease", "default").pop()?;
        Some(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    /// Whether the process started last still runs.
    pub(crate) fn is_running(&self) -> bool {
        self.processes.lock().last().is_some_and(|process| process.outcome().is_none())
    }

    /// What happened: every request to the API server and every call of the driver, in order.
    pub(crate) fn trace(&self) -> String {
        let requests = self.api.requests().all();
        let mut lines: Vec<String> =
            requests.iter().map(|r| format!("{} {} -> {}", r.received, r.what(), r.code)).collect();
        lines.extend(
            self.driver
                .journal()
                .calls()
                .iter()
                .map(|call| format!("{} {}", call.method, call.request)),
        );
        lines.join("\n")
    }
}

/// A claim of the class, annotated as kube-controller-manager does.
pub(crate) fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "sc", "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A PersistentVolume under the name that the claim `uid` gets, for the claim `owner`, made by
/// somebody else.
pub(crate) fn stranger(uid: &str, owner: &str, handle: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pvc-{uid}")},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "sc", "name": "data", "uid": owner},
        },
    })
}
