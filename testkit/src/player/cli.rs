//! `testkit play`: plays scenarios from the command line.

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    PlayError,
    runner::{Options, play_all, scenario_files},
};

/// What to play, and with what.
///
/// Each scenario gets an API server of its own: the one that `KUBEBUILDER_ASSETS` or `KUBECONFIG_E2E` ask for, else an
/// in-memory one.
#[derive(Debug, Args)]
pub struct Play {
    /// The provisioner to play with.
    #[arg(long)]
    bin: PathBuf,
    /// How many scenarios are played at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
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
    let Play { bin, jobs, conformance, .. } = command;
    let options = Options {
        binary: bin,
        recorded: false,
        conformance,
        jobs,
        cli: None,
        explained: BTreeSet::new(),
    };
    let summary = play_all(&files, &options, |played| println!("{played}")).await;
    println!("{summary}");
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
