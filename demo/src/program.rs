//! The provisioner's program: found or built, started, quoted.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use testkit::program::{Program, last_lines};
use tokio::process::Command;

use crate::{Failure, cluster::Cluster};

const NAME: &str = "csi-provisioner";
/// The workspace that the program is built from.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");

/// How long the program may take to end when it is asked to.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

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
    // With the demo's own package: what both use has the features that it was just built with.
    let arguments = ["build", "--package", NAME, "--package", "demo", "--profile", profile];
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

/// Starts the program at `path` in a cluster, as the service account of its own, with further `flags`. What a second
/// process prints comes after what the first did.
pub(crate) fn start(path: &Path, cluster: &Cluster, flags: &[String]) -> Result<Program, Failure> {
    let mut command = Command::new(path);
    command
        .arg(format!("--kubeconfig={}", cluster.kubeconfig("sa").display()))
        .arg(format!("--csi-address={}", cluster.socket().display()))
        .args(flags)
        // Ctrl-C is for us; we end the program.
        .process_group(0);
    let started = Program::start(&mut command, cluster.log());
    Ok(started.map_err(|source| format!("can't start {}: {source}", path.display()))?)
}

/// The last lines of its log, as a paragraph.
pub(crate) fn last_words(program: &Program) -> String {
    let log = last_lines(&program.log(), QUOTED);
    if log.is_empty() {
        return "The program said nothing.".to_owned();
    }
    format!("The program's last words:\n    {}", log.replace('\n', "\n    "))
}
