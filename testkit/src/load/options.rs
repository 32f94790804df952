//! What is asked of a run, on the command line.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum, value_parser};

use super::residents::Residents;

/// Provisions and deletes claims, and prints one line of JSON that says how that went.
///
/// Without `--kubeconfig` it starts an API server (in memory, or a real one with `--assets`), binds
/// claims as kube-controller-manager does, and measures the program beside it.
#[derive(Debug, Clone, Parser)]
#[command(name = "load")]
pub struct Options {
    /// How many claims to provision and delete.
    #[arg(long, default_value_t = 1000, value_parser = at_most_20_000)]
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
    /// Where the driver keeps its volumes.
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    pub driver: Store,
    /// How long the driver takes to create or delete a volume, in milliseconds.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub driver_latency: u64,
    /// How many volumes the driver creates or deletes at once; further calls wait. Without it there is no
    /// limit.
    #[arg(long, value_name = "SLOTS", value_parser = at_least_1)]
    pub driver_slots: Option<usize>,
    /// Claims that are created before the others, and whose CreateVolume takes five seconds: with a shorter
    /// `--timeout` of the program they are never served.
    #[arg(long, default_value_t = 0, value_name = "CLAIMS", conflicts_with = "backlog")]
    pub hanging: usize,
    /// Start etcd and kube-apiserver from this directory and run against them.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "kubeconfig")]
    pub assets: Option<PathBuf>,
    /// The cluster to run against; what was made there is removed at the end.
    #[arg(long, requires = "namespace")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace for claims. It must exist.
    #[arg(long, requires = "kubeconfig")]
    pub namespace: Option<String>,
    /// Measure the cluster's own provisioner, by claims of this class; no program is started.
    #[arg(long, requires = "kubeconfig", conflicts_with_all = ["program", "driver", "driver_latency", "driver_slots", "hanging", "arguments"])]
    pub class: Option<String>,
    /// Bind claims, for a cluster that has no kube-controller-manager.
    #[arg(long, requires = "kubeconfig")]
    pub binder: bool,
    /// The provisioner to measure; by default `csi-provisioner` beside this program.
    #[arg(long)]
    pub program: Option<PathBuf>,
    /// Let all claims stand before the program starts, and compare how fast they get their volumes
    /// with a bare client that makes the same writes.
    #[arg(long, conflicts_with_all = ["rate", "class"])]
    pub backlog: bool,
    /// Run this program as well, in turn with the other on the same server, and compare.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "class")]
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

/// Where a driver keeps its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// Nowhere but in memory: answers at once, or after `--driver-latency`.
    Memory,
    /// As directories, written through to the disk.
    Disk,
}

impl Store {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

impl Options {
    /// `--settle`
    pub fn settle(&self) -> Duration {
        Duration::from_secs(self.settle)
    }

    /// `--timeout`
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// The embedded server remembers 250 000 requests, of which a claim costs about ten.
fn at_most_20_000(text: &str) -> Result<usize, String> {
    let claims = at_least_1(text)?;
    if claims > 20_000 { Err("at most 20000".to_owned()) } else { Ok(claims) }
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

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parse(line: &str) -> Result<Options, ErrorKind> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.kind())
    }

    #[test]
    fn without_options_a_thousand_claims_go_to_the_embedded_server() {
        let options = parse("").unwrap();
        assert_eq!(
            (options.claims, options.rate, options.residents),
            (1000, None, Residents::default())
        );
        assert!(options.kubeconfig.is_none() && options.program.is_none());
    }

    #[test]
    fn what_follows_two_dashes_is_the_programs() {
        let options = parse("--claims 20 -- -v=5 --worker-threads=10").unwrap();
        assert_eq!(options.arguments, ["-v=5", "--worker-threads=10"]);
    }

    #[test]
    fn a_cluster_is_never_touched_outside_a_named_namespace() {
        assert_eq!(parse("--kubeconfig f").unwrap_err(), ErrorKind::MissingRequiredArgument);
        for needs_cluster in ["--namespace n", "--class c", "--binder"] {
            let refused = parse(needs_cluster).unwrap_err();
            assert_eq!(refused, ErrorKind::MissingRequiredArgument, "{needs_cluster}");
        }
        assert!(parse("--kubeconfig f --namespace n").is_ok());
    }

    #[test]
    fn the_clusters_own_provisioner_takes_neither_program_nor_driver() {
        let own = "--kubeconfig f --namespace n --class c";
        assert!(parse(own).is_ok());
        for more in ["--program p", "--driver disk", "--driver-latency 3", "--hanging 1", "-- -v=5"]
        {
            let refused = parse(&format!("{own} {more}")).unwrap_err();
            assert_eq!(refused, ErrorKind::ArgumentConflict, "{more}");
        }
    }

    #[test]
    fn arguments_for_the_other_program_alone_need_one() {
        let parsed = parse("--against p --against-argument --kube-api-qps=500 -- -v=1").unwrap();
        assert_eq!(parsed.against_arguments, ["--kube-api-qps=500"]);
        assert_eq!(parsed.arguments, ["-v=1"]);
        let refused = parse("--against-argument -v=1").unwrap_err();
        assert_eq!(refused, ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn a_table_compares_two_programs() {
        assert!(parse("--against p --markdown").unwrap().markdown);
        assert_eq!(parse("--markdown").unwrap_err(), ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn there_is_one_server() {
        assert!(parse("--assets d").is_ok());
        let both = parse("--assets d --kubeconfig f --namespace n").unwrap_err();
        assert_eq!(both, ErrorKind::ArgumentConflict);
    }

    #[test]
    fn a_backlog_stands_at_once_and_is_the_programs_own() {
        assert!(parse("--backlog").unwrap().backlog);
        for more in ["--rate 5", "--kubeconfig f --namespace n --class c"] {
            let refused = parse(&format!("--backlog {more}")).unwrap_err();
            assert_eq!(refused, ErrorKind::ArgumentConflict, "{more}");
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for line in [
            "--claims 0",
            "--claims 20001",
            "--concurrency 0",
            "--rate 0",
            "--rate NaN",
            "--rate -1",
            "--timeout 0",
            "--against p --rounds 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(parse("--rate 0.5").unwrap().rate, Some(0.5));
    }
}
