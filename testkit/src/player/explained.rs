//! What `kubectl csi-provisioner explain` says at the end of a scenario.
//!
//! Owns which claims it is asked about: those that have no PersistentVolume, as nothing binds claims in a
//! scenario.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    cluster::Cluster,
    run::{self, Beside, RunError},
    runner::PlayError,
    scenario::Scenario,
};

/// Flags of the controller that the command has as well.
const FLAGS: [&str; 9] = [
    "--volume-name-prefix",
    "--volume-name-uuid-length",
    "--default-fstype",
    "--feature-gates",
    "--node-deployment",
    "--strict-topology",
    "--immediate-topology",
    "--prevent-volume-mode-conversion",
    "--extra-create-metadata",
];

/// What was said about a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// The exit code.
    pub code: i32,
    /// What was printed.
    pub text: String,
}

/// Plays a scenario with the sidecar `binary`, and asks `cli` about each claim that has no PersistentVolume at its end.
///
/// # Errors
/// The scenario broke off.
pub async fn play_and_explain(
    file: &Path,
    cluster: &Cluster,
    binary: &Path,
    cli: &Path,
    conformance: &Path,
) -> Result<Vec<Explained>, PlayError> {
    let scenario = Scenario::load(file)?;
    Ok(run::play(&scenario, cluster, binary, conformance, Beside::Explain(cli)).await?.explained)
}

/// The claims without a PersistentVolume.
pub(super) fn unserved(claims: &[Value], volumes: &[Value]) -> Vec<(String, String)> {
    let text = |object: &Value, pointer| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let served: BTreeSet<_> =
        volumes.iter().map(|volume| text(volume, "/spec/claimRef/uid")).collect();
    let unserved = claims.iter().filter(|claim| !served.contains(&text(claim, "/metadata/uid")));
    unserved.map(|it| (text(it, "/metadata/namespace"), text(it, "/metadata/name"))).collect()
}

/// Asks about a claim, as the admin.
pub(super) async fn ask(
    cli: &Path,
    kubeconfig: PathBuf,
    flags: &[String],
    (namespace, name): (String, String),
) -> Result<Explained, RunError> {
    let known = |flag: &&String| {
        FLAGS.iter().any(|known| flag.split('=').next().is_some_and(|name| name == *known))
    };
    let mut command = Command::new(cli);
    command
        .args(["explain", "pvc", &name, "--namespace", &namespace, "--kubeconfig"])
        .arg(kubeconfig)
        .args(flags.iter().filter(known))
        .env_clear();
    // The API server may run on this thread.
    let ran = tokio::task::spawn_blocking(move || command.output()).await;
    let output = ran.map_err(std::io::Error::from).and_then(|output| output);
    let output = output.map_err(RunError::Explain)?;
    let printed = [output.stdout, output.stderr].concat();
    Ok(Explained {
        claim: format!("{namespace}/{name}"),
        code: output.status.code().unwrap_or(-1),
        text: String::from_utf8_lossy(&printed).into_owned(),
    })
}
