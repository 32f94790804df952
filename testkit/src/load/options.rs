//! The command line of `load`.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, value_parser};

/// Provisions and deletes claims, and prints one line of JSON that says how that went.
///
/// It starts an API server (in memory, or a real one with `--assets`), binds claims as
/// kube-controller-manager does, and measures the program beside it.
#[derive(Debug, Clone, Parser)]
#[command(name = "load")]
pub struct Options {
    /// How many claims to provision and delete.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..))]
    pub claims: u32,
    /// Bound claims of the run's class with their volumes, in pairs, that stand in the cluster from the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub bound: usize,
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
    pub(super) fn claims(&self) -> usize {
        usize::try_from(self.claims).unwrap_or(usize::MAX)
    }

    pub(super) fn settle(&self) -> Duration {
        Duration::from_secs(self.settle)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
