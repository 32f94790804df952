//! The command line of `load`.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, value_parser};

use super::residents::Residents;

/// Provisions and deletes claims, and prints one line of JSON that says how that went.
///
/// It starts an API server (in memory, or a real one with `--assets`), binds claims as
/// kube-controller-manager does, and measures the program beside it.
#[derive(Debug, Clone, Parser)]
#[command(name = "load")]
pub struct Options {
    /// How many claims to provision and delete.
    #[arg(long, default_value_t = 1000, value_parser = at_most_10_000)]
    pub claims: usize,
    /// Claims a second, created and later deleted; without it as many as the server takes.
    #[arg(long, value_parser = positive)]
    pub rate: Option<f64>,
    /// How many requests that create or delete claims run at once.
    #[arg(long, default_value_t = 32, value_parser = at_least_1)]
    pub concurrency: usize,
    /// What stands in the cluster from the start.
    #[command(flatten)]
    pub residents: Residents,
    /// How long the driver takes to create or delete a volume, in milliseconds.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub driver_latency: u64,
    /// How many volumes the driver creates or deletes at once; further calls wait. Without it there is no
    /// limit.
    #[arg(long, value_name = "SLOTS", value_parser = at_least_1)]
    pub driver_slots: Option<usize>,
    /// Start etcd and kube-apiserver from this directory and run against them.
    #[arg(long, value_name = "DIRECTORY")]
    pub assets: Option<PathBuf>,
    /// The provisioner to measure; by default `csi-provisioner` beside this program.
    #[arg(long)]
    pub program: Option<PathBuf>,
    /// Run this program as well, in turn with the other, and compare.
    #[arg(long, value_name = "PROGRAM")]
    pub against: Option<PathBuf>,
    /// Print the comparison as a table in Markdown instead of one line of JSON.
    #[arg(long, requires = "against")]
    pub markdown: bool,
    /// One more argument for the program of `--against` alone; may be repeated.
    #[arg(
        long = "against-argument",
        value_name = "ARGUMENT",
        requires = "against",
        allow_hyphen_values = true
    )]
    pub against_arguments: Vec<String>,
    /// How often both programs have their turn.
    #[arg(long, default_value_t = 3, value_name = "ROUNDS", value_parser = value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Seconds without anything to do before memory is read and after each half.
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    pub settle: u64,
    /// Seconds that each half may take before the run is given up.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// More arguments for the provisioner, or for both.
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

impl Options {
    pub(super) fn settle(&self) -> Duration {
        Duration::from_secs(self.settle)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// The embedded server remembers 400 000 requests, of which a claim costs some thirty.
fn at_most_10_000(text: &str) -> Result<usize, String> {
    let claims = at_least_1(text)?;
    if claims > 10_000 { Err("at most 10000".to_owned()) } else { Ok(claims) }
}

fn at_least_1(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    // Also refuses what is no number at all; a pause of more than 1000 s is a mistake.
    if (0.001..=1e6).contains(&rate) {
        Ok(rate)
    } else {
        Err("between 0.001 and 1000000".to_owned())
    }
}
