//! The real binary as a process, and what it needs around it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use testkit::{
    apiserver::serve::{Served, Settings},
    control_plane::TemporaryDirectory,
    driver::{Host, Scripted},
};
use tokio::time::{Instant, sleep};

/// How long any wait may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// The most memory that the program may take with what is large beside its own file, in KiB: 64 MiB less
/// the shipped file.
pub const MOST_PEAK: usize = 54 << 10;

/// The program as a process; it is killed when dropped.
pub struct Provisioner {
    process: Child,
    log: PathBuf,
}

impl Provisioner {
    /// Starts the binary `built`, which is `env!("CARGO_BIN_EXE_csi-provisioner")`, or instead of it
    /// the file that the variable `CSI_PROVISIONER` names, such as the shipped one. Its log is
    /// written to the file `log`.
    pub fn start(built: &str, arguments: &[String], log: PathBuf) -> Self {
        Self::start_in(built, &[], arguments, log)
    }

    /// Like [`Self::start`], with these variables in its environment.
    pub fn start_in(
        built: &str,
        environment: &[(&str, &str)],
        arguments: &[String],
        log: PathBuf,
    ) -> Self {
        let named = env::var_os("CSI_PROVISIONER");
        let mut program = Command::new(named.unwrap_or_else(|| built.into()));
        // Variables of the environment (KUBECONFIG, POD_NAMESPACE) would win over flags and defaults.
        program.args(arguments).env_clear().envs(environment.iter().copied());
        Self::run(&mut program, log)
    }

    /// Runs a command that becomes the program.
    pub fn run(program: &mut Command, log: PathBuf) -> Self {
        let errors = fs::File::create(&log).unwrap();
        let process = program.stdin(Stdio::null()).stderr(errors).spawn().unwrap();
        Self { process, log }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The processor time that it has taken so far.
    pub fn processor_time(&self) -> Duration {
        /// `USER_HZ` on every architecture that this program is built for.
        const TICKS_PER_SECOND: u64 = 100;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // The program's name, which ends in a parenthesis, may hold anything. 14 and 15 are user and system time.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|it| it.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    /// The most memory that it has taken so far beside its own file, in KiB. That file is larger than the
    /// shipped one.
    pub fn peak(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let value = |name: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        value("VmHWM:") - value("RssFile:")
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn stop(&mut self) -> ExitStatus {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.ended("it ends on SIGTERM").await
    }

    /// Its exit status, once it has ended.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().unwrap()
    }

    /// Waits for the end; `what` is what the test expects.
    pub async fn ended(&mut self, what: &str) -> ExitStatus {
        let mut ended = None;
        self.until(what, async |this| {
            ended = this.has_ended();
            ended.is_some()
        })
        .await;
        ended.unwrap()
    }

    /// Waits until `holds` returns true; `what` is what the test expects.
    pub async fn until(&mut self, what: &str, mut holds: impl AsyncFnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self).await {
            assert!(start.elapsed() < PATIENCE, "timed out waiting until {what}:\n{}", self.log());
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

/// The image's other binary of this name, which is beside the binary `built`: `csi-provisioner` or
/// `kubectl-csi_provisioner`.
pub fn beside(built: &str, name: &str) -> PathBuf {
    let other = Path::new(built).with_file_name(name);
    assert!(other.exists(), "{} is missing: run `cargo build` first", other.display());
    other
}

/// What the program needs: an API server in memory over HTTPS and a driver on a unix socket, with a directory for both.
pub struct Surroundings {
    /// The API server.
    pub served: Served,
    /// The driver.
    pub driver: Host<Scripted>,
    directory: TemporaryDirectory,
}

impl Surroundings {
    /// Starts both; the driver answers by this script.
    pub async fn start(script: Value) -> Self {
        Self::start_at(0, script).await
    }

    /// Like [`Self::start`], with the server on this port.
    pub async fn start_at(port: u16, script: Value) -> Self {
        let directory = TemporaryDirectory::new().unwrap();
        let settings = Settings { port, ..Settings::new(directory.path().join("cluster")) };
        let served = Served::start(settings).await.unwrap();
        let driver = Host::new(Scripted::new(serde_json::from_value(script).unwrap()));
        driver.listen(&directory.path().join("csi.sock")).unwrap();
        Self { served, driver, directory }
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The flags with which the program finds both, as the user of this kubeconfig, and others.
    pub fn flags(&self, kubeconfig: &Path, others: &[&str]) -> Vec<String> {
        let found = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--csi-address={}", self.file("csi.sock").display()),
        ];
        found.into_iter().chain(others.iter().map(ToString::to_string)).collect()
    }

    /// Starts the binary `built` as the admin, with these flags and the log in the file `log`.
    pub fn provisioner(&self, built: &str, flags: &[&str]) -> Provisioner {
        let flags = self.flags(&self.served.layout().kubeconfig("admin"), flags);
        Provisioner::start(built, &flags, self.file("log"))
    }

    /// Ends both.
    pub async fn stop(self) {
        self.driver.stop();
        self.served.stop().await;
    }
}
