//! The provisioner's program: found or built, started, ended, quoted. It is dead when `Program` is dropped.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use testkit::player::last_lines;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{Failure, cluster::Cluster};

const NAME: &str = "csi-provisioner";
/// The workspace that the program is built from.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");

/// How long the program may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How many of the log's last lines are quoted.
const QUOTED: usize = 12;

/// The program to play with: `named`, or the workspace's own.
pub async fn find(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let path = match named {
        Some(path) => path,
        None => beside_us().await?,
    };
    if path.is_file() {
        return Ok(path);
    }
    let how = format!(
        "`cargo run -p demo` builds it, `cargo build -p {NAME}` does too, and `--program` names another"
    );
    Err(format!("there is no {}: {how}", path.display()).into())
}

/// The program beside our own executable. If cargo runs us, it first brings that one up to date,
/// with the profile that we were built with.
async fn beside_us() -> Result<PathBuf, Failure> {
    let own = env::current_exe().unwrap_or_default();
    if let Some(cargo) = env::var_os("CARGO") {
        build(&cargo, &profile(&own)).await?;
    }
    Ok(own.with_file_name(NAME))
}

/// The profile that an executable under `target/` was built with, by its directory.
fn profile(executable: &Path) -> String {
    let directory = executable.parent().and_then(Path::file_name).unwrap_or_default();
    let name = directory.to_string_lossy();
    if name == "debug" { "dev".to_owned() } else { name.into_owned() }
}

async fn build(cargo: &OsStr, profile: &str) -> Result<(), Failure> {
    let arguments = ["build", "--package", NAME, "--profile", profile];
    let command = format!("cargo {}", arguments.join(" "));
    eprintln!("The program, first: {command}");
    let failed = |why: String| format!("`{command}` failed: {why}");
    let mut cargo = Command::new(cargo);
    cargo.args(arguments).args(["--manifest-path", WORKSPACE]).kill_on_drop(true);
    // Build scripts (ring's, for one) look at what cargo says of our package, and would be run anew.
    for (name, _) in env::vars().filter(|(name, _)| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
    }) {
        cargo.env_remove(name);
    }
    let ended = cargo.status().await.map_err(|error| failed(error.to_string()))?;
    if ended.success() { Ok(()) } else { Err(failed(ended.to_string()).into()) }
}

/// The running program; it is killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts the program at `path` in a cluster, as the service account of its own, with further `flags`.
    pub(crate) fn start(path: &Path, cluster: &Cluster, flags: &[String]) -> Result<Self, Failure> {
        let failed = |source: io::Error| format!("can't start {}: {source}", path.display());
        let log = cluster.log();
        // A second process writes after the first.
        let output = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let child = Command::new(path)
            .arg(format!("--kubeconfig={}", cluster.kubeconfig("sa").display()))
            .arg(format!("--csi-address={}", cluster.socket().display()))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            // Ctrl-C is for us; we end the program.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, log })
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to end, and kills it if it does not.
    pub(crate) async fn stop(mut self) {
        // A child that was not waited for still holds its number, so no other is hit.
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // One that just ended needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(GRACE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// Kills it, and waits until it is dead.
    pub(crate) async fn kill(mut self) {
        // One that just ended is as dead.
        let _ = self.child.kill().await;
    }

    /// The last lines of its log, as a paragraph.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = last_lines(&String::from_utf8_lossy(&log), QUOTED);
        if log.is_empty() {
            return "The program said nothing.".to_owned();
        }
        format!("The program's last words:\n    {}", log.replace('\n', "\n    "))
    }
}
