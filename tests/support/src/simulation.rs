//! A simulated cluster: API server, driver and processes of the program, which tests can kill.
//!
//! Everything runs in one process and in tokio's paused time. What tests change in the cluster is in
//! `changes`, what they read in `queries`.

mod changes;
mod objects;
mod process;
mod queries;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use csi_provisioner::{csi::Connector, flags::Flags};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{
    apiserver::{
        ApiServer, Options, User,
        access::{auth::service_account, bootstrap, rbac::Rbac},
        hooks::Hooks,
        resources::ServerVersion,
    },
    driver::{self, Backend as _, Description, Script, Scripted},
};
use tokio::time::{Instant, sleep};

use self::process::{Launch, Program};
pub use self::{
    objects::{
        attachment, claim, class, csi_node, foreign_volume, node, provisioned_volume, secret,
        with_secret,
    },
    process::Process,
};
use crate::connector::connector;

/// The driver's name.
pub const DRIVER: &str = "disk.example.com";

/// The user that a process in shadow mode acts as.
pub const SHADOW: &str = "shadow";

/// The flags of every process.
const COMMON: [&str; 2] = ["--csi-address=/run/csi.sock", "--timeout=10s"];

/// The flags with which a process takes part in leader election.
const ELECTED: [&str; 2] = ["--leader-election", "--leader-election-namespace=default"];

/// The longest that a test waits, in simulated time.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster in memory, with the StorageClass `fast` and the namespace `sc`.
pub struct Simulation {
    /// Its API server.
    pub api: ApiServer,
    /// The driver of the class.
    pub driver: Arc<driver::Host<Scripted>>,
    seed: u64,
    /// How often a process tried to connect to `driver`.
    connection_attempts: Arc<AtomicUsize>,
    /// The user that the program acts as.
    user: User,
    processes: Mutex<Vec<Process>>,
    /// Connects to the driver that processes use instead of `driver`.
    other_driver: Option<Connector>,
}

impl Simulation {
    /// A cluster whose driver answers at once.
    pub fn new(seed: u64) -> Self {
        Self::with_options(Options { seed, ..Options::default() })
    }

    /// A cluster whose driver answers by this script.
    pub fn scripted(script: Value) -> Self {
        let simulation = Self::new(1);
        simulation.script(script);
        simulation
    }

    /// A cluster of the Kubernetes release 1.`minor`.
    pub fn of_release(minor: u8) -> Self {
        Self::with_options(Options { version: ServerVersion::minor(minor), ..Options::default() })
    }

    /// A cluster whose API server has these options.
    pub fn with_options(options: Options) -> Self {
        let seed = options.seed;
        Self::with_api_server(ApiServer::new(options), seed, User::new("provisioner"))
    }

    /// A cluster of the release 1.`minor` with RBAC and these roles, where the program is the service
    /// account `account` of the namespace `default`.
    pub fn with_roles(minor: u8, roles: &[Value], account: &str) -> Self {
        let authorizer = Some(Arc::new(Rbac::default()));
        let hooks = Hooks { authorizer, ..Hooks::default() };
        let version = ServerVersion::minor(minor);
        let api = ApiServer::new(Options { version, hooks, ..Options::default() });
        for object in bootstrap().unwrap().iter().chain(roles) {
            api.create(object).unwrap();
        }
        Self::with_api_server(api, 1, service_account("default", account))
    }

    /// A cluster with this API server, where the program acts as `user`.
    pub fn with_api_server(api: ApiServer, seed: u64, user: User) -> Self {
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
            connection_attempts: Arc::default(),
            user,
            processes: Mutex::default(),
            other_driver: None,
        }
    }

    /// This cluster, whose processes use another driver.
    #[must_use]
    pub fn with_driver(self, driver: Connector) -> Self {
        Self { other_driver: Some(driver), ..self }
    }

    /// Starts the program.
    pub fn start(&self) -> Process {
        self.start_with(&[])
    }

    /// Starts the program with these flags.
    pub fn start_with(&self, flags: &[&str]) -> Process {
        self.launch(self.connector(), "host", flags)
    }

    /// Starts the program with leader election, as the host `name`.
    pub fn start_elected(&self, name: &str) -> Process {
        self.start_elected_with(name, &[])
    }

    /// Starts the program as the host `name`, with leader election and more flags.
    pub fn start_elected_with(&self, name: &str, flags: &[&str]) -> Process {
        self.launch(self.connector(), name, &[&ELECTED, flags].concat())
    }

    /// Starts the program with leader election, as the host `name` with a driver of its own.
    pub fn start_elected_beside(&self, name: &str, driver: Connector) -> Process {
        self.launch(driver, name, &ELECTED)
    }

    /// Starts the program on the node `node`, with the driver that `driver` connects to.
    pub fn start_on(&self, node: &str, driver: Connector, flags: &[&str]) -> Process {
        self.launch(driver, node, &[&["--node-deployment"], flags].concat())
    }

    /// Starts the program in shadow mode, as the user [`SHADOW`].
    pub fn start_shadow(&self, flags: &[&str]) -> Process {
        self.start_shadow_as(User::new(SHADOW), flags)
    }

    /// Starts the program in shadow mode, as this user.
    pub fn start_shadow_as(&self, user: User, flags: &[&str]) -> Process {
        let Description { name, plugin, controller } = self.driver.backend().description();
        let capabilities = [plugin, controller].concat().join(",");
        let driver = [format!("--driver={name}"), format!("--capabilities={capabilities}")];
        let args = COMMON.iter().chain(flags).map(Into::into);
        let args = driver.into_iter().map(Into::into).chain(args);
        let (parsed, driver) = cli::shadow::parse(args, |_| None).unwrap();
        self.launch_program(user, self.connector(), SHADOW, parsed.flags, Program::Shadow(driver))
    }

    fn launch(&self, connector: Connector, host: &str, flags: &[&str]) -> Process {
        let args = ["csi-provisioner"].iter().chain(&COMMON).chain(flags).map(Into::into);
        let environment = |variable: &str| match variable {
            "NAMESPACE" => Some("default".into()),
            "POD_NAME" | "NODE_NAME" => Some(host.into()),
            _ => None,
        };
        let flags = Flags::parse(args, environment).unwrap().flags;
        self.launch_program(self.user.clone(), connector, host, flags, Program::Sidecar)
    }

    fn launch_program(
        &self,
        user: User,
        connector: Connector,
        host: &str,
        flags: Flags,
        program: Program,
    ) -> Process {
        let number = self.processes.lock().len() as u64;
        let process = Process::start(Launch {
            program,
            flags,
            host: host.to_owned(),
            api: &self.api,
            user,
            connector,
            seed: self.seed.wrapping_mul(1000).wrapping_add(number),
        });
        self.processes.lock().push(process.clone());
        process
    }

    fn connector(&self) -> Connector {
        if let Some(driver) = &self.other_driver {
            return Arc::clone(driver);
        }
        let (connect, attempts) = (connector(&self.driver), Arc::clone(&self.connection_attempts));
        Arc::new(move |socket| {
            attempts.fetch_add(1, Ordering::Relaxed);
            connect(socket)
        })
    }

    /// How long it takes until the claim has its volume.
    pub async fn until_saved(&self, uid: &str) -> Duration {
        self.until("the volume is saved", |simulation| simulation.is_saved(uid)).await
    }

    /// SIGTERM, and the end of the process.
    pub async fn until_stopped(&self, process: &Process) {
        process.stop();
        self.until("the process ended", |_| process.outcome().is_some()).await;
    }

    /// Waits in simulated time until `holds` returns true; `what` is what the test expects. Returns how long it took.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !holds(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "seed {}: timed out waiting until {what}\n{}",
                self.seed,
                self.trace()
            );
            sleep(Duration::from_millis(20)).await;
        }
        start.elapsed()
    }
}
