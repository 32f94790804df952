//! One process of the program.

use std::{sync::Arc, time::Duration};

use cli::shadow::{self, Described};
use csi_provisioner::{
    app::{self, Env, Host},
    csi::Connector,
    flags::Flags,
    kube::Connections,
    metrics::Metrics,
    runtime::{Generator, Spawner as _},
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use testkit::apiserver::{ApiServer, User};
use tokio_util::sync::CancellationToken;

use crate::runtime::{SimulatedClock, Tasks};

/// One run of the program.
#[derive(Clone)]
pub struct Process {
    tasks: Tasks,
    clock: Arc<SimulatedClock>,
    stop: CancellationToken,
    metrics: Metrics,
    outcome: Arc<Mutex<Option<Result<(), String>>>>,
}

/// What a process runs.
pub(super) enum Program {
    /// The sidecar.
    Sidecar,
    /// Shadow mode, which compares for this driver.
    Shadow(Described),
}

/// What a process is started with.
pub(super) struct Launch<'a> {
    pub(super) program: Program,
    pub(super) flags: Flags,
    pub(super) host: String,
    pub(super) api: &'a ApiServer,
    pub(super) user: User,
    pub(super) connector: Connector,
    /// Of its random numbers.
    pub(super) seed: u64,
}

impl Process {
    pub(super) fn start(launch: Launch<'_>) -> Self {
        let process = Self {
            tasks: Tasks::default(),
            clock: Arc::new(SimulatedClock::new(launch.api.now())),
            stop: CancellationToken::new(),
            metrics: Metrics::new(),
            outcome: Arc::default(),
        };
        let env = Env {
            connections: Connections::to(launch.api.service(launch.user)),
            connector: launch.connector,
            clock: process.clock.clone(),
            random: Arc::new(Generator::from_seed(launch.seed)),
            spawner: Arc::new(process.tasks.clone()),
            metrics: process.metrics.clone(),
            host: Host { name: launch.host, ..Host::default() },
        };
        process.tasks.spawn(process.clone().run(launch.program, launch.flags, env).boxed());
        process
    }

    async fn run(self, program: Program, flags: Flags, env: Env) {
        let ended = match program {
            Program::Sidecar => app::run(flags, env, self.stop).boxed(),
            Program::Shadow(driver) => shadow::run(flags, driver, env, self.stop).boxed(),
        };
        let ended = ended.await;
        *self.outcome.lock() = Some(ended.map_err(|error| error.to_string()));
        // No task outlives its process.
        self.tasks.0.lock().abort_all();
    }

    /// SIGKILL: ends each task at the await that it has reached.
    pub fn kill(&self) {
        self.tasks.0.lock().abort_all();
    }

    /// SIGTERM.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// The machine was suspended for so long: its timers stopped, its boot clock did not.
    pub fn suspend(&self, time: Duration) {
        self.clock.suspend(time);
    }

    /// What a scrape returns.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }

    /// How the process ended, if it has ended by itself.
    pub fn outcome(&self) -> Option<Result<(), String>> {
        self.outcome.lock().clone()
    }
}
