//! `testkit play`: plays scenarios from the command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use super::{
    PlayError,
    runner::{Cluster, Options, play_all, scenario_files},
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

/// Plays; the exit code says whether all went as it should.
pub async fn run(command: Play) -> Result<ExitCode, PlayError> {
    let files = chosen(&command)?;
    let Play { bin, dir, port, jobs, json, conformance, .. } = command;
    let jobs = if dir.is_some() { 1 } else { jobs };
    let options = Options {
        binary: bin,
        recorded: false,
        conformance,
        jobs,
        cli: None,
        explained: BTreeSet::new(),
    };
    let mut outcomes = BTreeMap::new();
    let cluster = move || make(dir.clone(), port);
    let summary = play_all(&files, &options, cluster, |played| {
        println!("{played}");
        if let Some(outcome) = &played.outcome {
            outcomes.insert(played.name.clone(), outcome.clone());
        }
    });
    let summary = summary.await;
    println!("{summary}");
    if let Some(path) = json {
        fs::write(&path, serde_json::to_vec_pretty(&outcomes)?)?;
    }
    Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The scenario files that are named.
fn chosen(command: &Play) -> Result<Vec<PathBuf>, PlayError> {
    let mut files = Vec::new();
    for path in &command.files {
        if path.is_dir() {
            files.extend(scenario_files(path)?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

async fn make(directory: Option<PathBuf>, port: u16) -> Result<Cluster, PlayError> {
    match directory {
        Some(directory) => Cluster::at(&directory, &format!("https://127.0.0.1:{port}")).await,
        None => Cluster::of_environment().await,
    }
}
