//! The real binary as a process of its own, and what tests of it need around it.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use kube::{Client, Config, config::Kubeconfig};
use tokio::time::{Instant, sleep};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program as a process of its own; it is killed when dropped.
pub(crate) struct Provisioner {
    process: Child,
    log: PathBuf,
}

/// The file that is started: that of this build, or the one that `CSI_PROVISIONER` names, such as the
/// shipped one.
fn file() -> PathBuf {
    let named = std::env::var_os("CSI_PROVISIONER").map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_csi-provisioner").into())
}

impl Provisioner {
    /// Starts it; what it logs goes to the file `log`.
    pub(crate) fn start(arguments: &[String], log: PathBuf) -> Self {
        Self::start_in(&[], arguments, log)
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_in(
        environment: &[(&str, &str)],
        arguments: &[String],
        log: PathBuf,
    ) -> Self {
        let mut program = Command::new(file());
        // What stands in the environment (KUBECONFIG, POD_NAMESPACE) would win over flags and defaults.
        program.args(arguments).env_clear().envs(environment.iter().copied());
        Self::run(&mut program, log)
    }

    /// The same by a command that becomes it.
    pub(crate) fn run(program: &mut Command, log: PathBuf) -> Self {
        let errors = fs::File::create(&log).unwrap();
        let process = program.stdin(Stdio::null()).stderr(errors).spawn().unwrap();
        Self { process, log }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.ended("it ends on SIGTERM").await
    }

    /// How it ended, once it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().unwrap()
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self, what: &str) -> ExitStatus {
        let mut ended = None;
        self.until(what, async |this| {
            ended = this.has_ended();
            ended.is_some()
        })
        .await;
        ended.unwrap()
    }

    /// Waits until something holds.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut holds: impl AsyncFnMut(&mut Self) -> bool,
    ) {
        let start = Instant::now();
        while !holds(self).await {
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}:\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory with a path short enough for sockets, removed at the end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    /// A new one.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("walk-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A client by a kubeconfig file.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &<_>::default()).await.unwrap();
    Client::try_from(config).unwrap()
}
