//! `testkit play`: plays scenarios from the command line.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde_json::Value;

use super::{
    cluster::{Cluster, ClusterError},
    files::scenario_files,
    runner::{Options, Played, play_all},
};

/// What to play, with what, against what.
#[derive(Debug, Args)]
pub struct Play {
    /// The provisioner to play with.
    #[arg(long)]
    bin: PathBuf,
    /// Directory of a running API server (pki/ca.crt, sa.kubeconfig); without it each scenario
    /// gets an API server of its own: the one that `KUBEBUILDER_ASSETS` or `KUBECONFIG_E2E` ask
    /// for, else an in-memory one.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Port of that API server on 127.0.0.1.
    #[arg(long, default_value_t = 16443, requires = "dir")]
    port: u16,
    /// How many scenarios are played at once; one on a given API server.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// File that gets the outcomes as JSON, by scenario.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Directory with the rulings' table, differences/ and cluster/.
    #[arg(long, default_value = "tests/conformance")]
    conformance: PathBuf,
    /// Scenario files, or directories that hold some.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Why nothing could be played, or no outcome kept.
#[derive(Debug, thiserror::Error)]
pub enum PlayFailed {
    /// A file or directory cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Plays; the exit code says whether all went as it should.
pub async fn run(command: Play) -> Result<ExitCode, PlayFailed> {
    let files = chosen(&command)?;
    let Play { bin, dir, port, jobs, json, conformance, .. } = command;
    let jobs = if dir.is_some() { 1 } else { jobs };
    let options = Options { binary: bin, recorded: false, conformance, jobs, shadow: None };
    let mut outcomes = BTreeMap::new();
    let cluster = || make(dir.as_deref(), port);
    let summary = play_all(&files, &options, cluster, |played| {
        println!("{played}");
        keep(&mut outcomes, played);
    });
    let summary = summary.await;
    println!("{summary}");
    if let Some(path) = json {
        let text = serde_json::to_vec_pretty(&outcomes).unwrap_or_default();
        fs::write(&path, text).map_err(|source| PlayFailed::File { path, source })?;
    }
    Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn keep(outcomes: &mut BTreeMap<String, Value>, played: &Played) {
    if let Some(outcome) = &played.outcome {
        outcomes.insert(played.name.clone(), outcome.clone().into());
    }
}

/// The scenario files that are named.
fn chosen(command: &Play) -> Result<Vec<PathBuf>, PlayFailed> {
    let mut files = Vec::new();
    for path in &command.files {
        if path.is_dir() {
            let found = scenario_files(path);
            files.extend(found.map_err(|source| PlayFailed::File { path: path.clone(), source })?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

async fn make(directory: Option<&Path>, port: u16) -> Result<Cluster, ClusterError> {
    match directory {
        Some(directory) => Cluster::at(directory, &format!("https://127.0.0.1:{port}"), ()).await,
        None => Cluster::of_environment().await,
    }
}
