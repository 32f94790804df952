//! The command line: every flag with its default and its check.
//!
//! Syntax and texts are pflag's. There are external-provisioner's 51 flags with their defaults, our own
//! additions, and the flags and gates of earlier releases. `arguments` describes them all, `command` parses
//! them, `check` refuses what contradicts itself, with external-provisioner's exit codes and in its order.
//! [`Flags`] has the values as the other modules need them; they are consistent. Environment variables are read through a function, and `main` ends the process.

mod arguments;
mod check;
mod command;
mod duration;
mod gates;
mod releases;
mod retired;
mod review;
mod syntax;
mod values;

use std::{ffi::OsString, path::PathBuf};

use self::{
    arguments::{
        Arguments, CapacityArguments, HttpArguments, KubernetesArguments, LeaderElectionArguments,
        LoggingArguments, MiscellaneousArguments, NamingArguments, NodeDeploymentArguments,
        RetiredArguments,
    },
    command::NoArguments,
};
pub use self::{
    arguments::{Capacity, Driver, LeaderElection, NodeDeployment, Provisioning, Safety},
    check::LEADER_ELECTION_CHECK,
    gates::Gates,
    review::{Fate, Review, ReviewedFlag, review},
};

/// This program's version.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The commands of `kubectl-csi_provisioner`. What is meant for it must not start a controller.
const CLI_COMMANDS: [&str; 6] =
    ["check", "explain", "release-claims", "shadow", "shadow-report", "status"];

/// The parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Flags {
    /// The connection to the API server.
    pub kubernetes: Kubernetes,
    /// The connection to the driver.
    pub driver: Driver,
    /// The names of PersistentVolumes.
    pub naming: VolumeNaming,
    /// Provisioning.
    pub provisioning: Provisioning,
    /// `CSIStorageCapacity` objects; `None` without `--enable-capacity`.
    pub capacity: Option<Capacity>,
    /// Node deployment; `None` without `--node-deployment`.
    pub node_deployment: Option<NodeDeployment>,
    /// Leader election; `None` without `--leader-election`.
    pub leader_election: Option<LeaderElection>,
    /// The HTTP server; `None` without an address.
    pub http: Option<Http>,
    /// `--status-endpoint`: the address of the status, with a host; `None` without an address.
    pub status: Option<String>,
    /// Logging.
    pub logging: Logging,
    /// Feature gates.
    pub gates: Gates,
    /// Safety.
    pub safety: Safety,
}

/// The connection to the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Kubernetes {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`.
    pub master: Option<String>,
    /// `--kube-api-qps` with `--kube-api-burst`; `None`, no limit, if it is not given or negative (which
    /// disables the limit in client-go).
    pub rate: Option<RateLimit>,
    /// `--kube-api-capacity-qps` with `--kube-api-capacity-burst`; `None` when negative.
    pub capacity_rate: Option<RateLimit>,
}

/// A rate of requests with a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Requests a second on average.
    pub qps: f64,
    /// Requests that may be sent at once after a pause, at least 1.
    pub burst: u32,
}

/// The names of PersistentVolumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeNaming {
    /// `--volume-name-prefix`: what stands before the dash.
    pub prefix: String,
    /// `--volume-name-uuid-length`: how many characters of the claim's UID follow, 0 to 32, without its
    /// dashes. `None`: the whole UID with its dashes.
    pub uuid_length: Option<usize>,
}

impl Default for VolumeNaming {
    fn default() -> Self {
        Self { prefix: "pvc".to_owned(), uuid_length: None }
    }
}

/// The owner of `CSIStorageCapacity` objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// This pod, from the environment's `POD_NAME`; required to find the owner.
    pub pod: String,
    /// `--capacity-ownerref-level`: the number of controllers above the pod.
    pub level: u32,
}

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// `--http-endpoint` or `--metrics-address`.
    pub address: String,
    /// Whether the health check of leader election is served: with `--http-endpoint` only.
    pub leader_election_check: bool,
    /// `--metrics-path`.
    pub metrics_path: String,
    /// `--enable-pprof`.
    pub pprof: bool,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    /// `-v`.
    pub verbosity: u32,
    /// `--vmodule`: levels by file pattern; the first match counts.
    pub vmodule: Vec<(String, u32)>,
    /// `--logging-format`.
    pub format: LogFormat,
}

/// `--logging-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// klog's lines.
    Text,
    /// One JSON object a line.
    Json,
}

/// `--claim-protection`: when a claim has our finalizer and the record of its open call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClaimProtection {
    /// When the outcome of a call is unknown, or its volume is not saved or removed at once.
    #[default]
    Auto,
    /// From before the first call until the claim is bound.
    Always,
    /// Never. Records of other processes are followed.
    Off,
}

/// Flags, and warnings for the user.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The flags.
    pub flags: Flags,
    /// Warnings, to be logged after logging is set up.
    pub warnings: Vec<String>,
}

/// The process does not start: the text to print, to stdout if it was asked for, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The text, without a newline at its end.
    pub text: String,
    /// external-provisioner's exit code; 0 for help and version.
    pub exit_code: u8,
}

impl Flags {
    /// Parses the command line, which begins with the program's name. `env` looks up environment variables.
    ///
    /// # Errors
    /// A [`Refusal`] if the process must not start.
    pub fn parse(
        args: impl Iterator<Item = OsString>,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Parsed, Refusal> {
        // No flag takes anything but text.
        let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
        let program = args.next().unwrap_or_else(|| "csi-provisioner".to_owned());
        let args: Vec<String> = args.collect();
        if let Some(command) = args.first().filter(|first| CLI_COMMANDS.contains(&first.as_str())) {
            return Err(Refusal::new(&moved(command), 2));
        }
        let line = command::parse(&args).map_err(|why| match why {
            NoArguments::Help => Refusal::printed(command::usage(&program).trim_end()),
            NoArguments::Error(error) => {
                Refusal::new(&format!("{}{error}", command::usage(&program)), 2)
            }
        })?;
        let (gates, mut warnings) = check::before_version(&line.arguments, &env)?;
        if line.arguments.miscellaneous.version {
            return Err(Refusal::printed(&format!("{program} {VERSION}")));
        }
        check::after_version(&line.arguments)?;
        warnings.extend(check::warnings(&line));
        let flags = Self::new(line.arguments, gates, &env);
        check::make_sense(&flags)?;
        Ok(Parsed { flags, warnings })
    }

    /// The flags by their meaning. Each argument is named here, so that none is forgotten.
    fn new(arguments: Arguments, gates: Gates, env: &impl Fn(&str) -> Option<OsString>) -> Self {
        let Arguments {
            kubernetes,
            driver,
            naming: NamingArguments { volume_name_prefix, volume_name_uuid_length },
            provisioning,
            capacity,
            node_deployment,
            leader_election,
            http,
            logging,
            miscellaneous: MiscellaneousArguments { version: _, automaxprocs: _, feature_gates: _ },
            safety,
            retired,
        } = arguments;
        Self {
            kubernetes: Kubernetes::new(kubernetes),
            driver,
            naming: VolumeNaming {
                prefix: volume_name_prefix,
                // Only -1 is left that is no length.
                uuid_length: usize::try_from(volume_name_uuid_length).ok(),
            },
            provisioning: Provisioning {
                cloning_protection_workers: provisioning.cloning_protection_workers.max(1),
                ..provisioning
            },
            capacity: Capacity::new(capacity, &retired, env),
            node_deployment: NodeDeployment::new(node_deployment, env),
            leader_election: LeaderElection::new(leader_election, &retired),
            status: status_address(&http),
            http: Http::new(http),
            logging: Logging::new(logging),
            gates,
            safety,
        }
    }
}

impl Refusal {
    fn new(text: &str, exit_code: u8) -> Self {
        Self { text: text.to_owned(), exit_code }
    }

    /// What was asked for, such as help.
    fn printed(text: &str) -> Self {
        Self::new(text, 0)
    }
}

/// Says where a command went.
fn moved(command: &str) -> String {
    format!(
        "{command} is a command of kubectl-csi_provisioner, which is beside this program in the image: kubectl-csi_provisioner {command} --help"
    )
}

impl Kubernetes {
    fn new(arguments: KubernetesArguments) -> Self {
        let KubernetesArguments {
            kubeconfig,
            master,
            kube_api_qps,
            kube_api_burst,
            kube_api_capacity_qps,
            kube_api_capacity_burst,
        } = arguments;
        Self {
            kubeconfig: non_empty(kubeconfig).map(PathBuf::from),
            master: non_empty(master),
            rate: kube_api_qps.and_then(|qps| RateLimit::new(qps, kube_api_burst)),
            capacity_rate: RateLimit::new(kube_api_capacity_qps, kube_api_capacity_burst),
        }
    }
}

impl RateLimit {
    /// As in client-go: zero means its defaults, a negative value no limit. A value that is not finite means
    /// no limit too.
    fn new(qps: f64, burst: i64) -> Option<Self> {
        let burst = match burst {
            0 => 10,
            burst => u32::try_from(burst.max(1)).unwrap_or(u32::MAX),
        };
        let qps = if qps == 0.0 { 5.0 } else { qps };
        (qps > 0.0 && qps.is_finite()).then_some(Self { qps, burst })
    }
}

impl Capacity {
    fn new(
        arguments: CapacityArguments,
        retired: &RetiredArguments,
        env: &impl Fn(&str) -> Option<OsString>,
    ) -> Option<Self> {
        let wanted = check::wants_capacity(&arguments, retired);
        let CapacityArguments { enable_capacity: _, settings, capacity_ownerref_level: level } =
            arguments;
        let owner = || Owner {
            pod: variable(env, "POD_NAME"),
            level: u32::try_from(level).unwrap_or(u32::MAX),
        };
        wanted.then(|| Self {
            workers: settings.workers.max(1),
            namespace: variable(env, "NAMESPACE"),
            owner: (level >= 0).then(owner),
            ..settings
        })
    }
}

impl NodeDeployment {
    fn new(
        arguments: NodeDeploymentArguments,
        env: &impl Fn(&str) -> Option<OsString>,
    ) -> Option<Self> {
        let NodeDeploymentArguments { node_deployment, settings } = arguments;
        node_deployment.then(|| Self { node_name: variable(env, "NODE_NAME"), ..settings })
    }
}

impl LeaderElection {
    fn new(arguments: LeaderElectionArguments, retired: &RetiredArguments) -> Option<Self> {
        let LeaderElectionArguments { leader_election, settings, leader_election_labels } =
            arguments;
        (leader_election || retired.enable_leader_election).then(|| Self {
            namespace: non_empty(settings.namespace),
            labels: leader_election_labels.into_iter().flatten().collect(),
            ..settings
        })
    }
}

impl Http {
    fn new(arguments: HttpArguments) -> Option<Self> {
        let HttpArguments {
            http_endpoint,
            metrics_address,
            metrics_path,
            enable_pprof,
            status_endpoint: _,
        } = arguments;
        let endpoint = non_empty(http_endpoint);
        Some(Self {
            leader_election_check: endpoint.is_some(),
            address: endpoint.or_else(|| non_empty(metrics_address))?,
            metrics_path,
            pprof: enable_pprof,
        })
    }
}

/// Without a host the status is for this machine or pod only, unlike the metrics.
fn status_address(arguments: &HttpArguments) -> Option<String> {
    let address = non_empty(arguments.status_endpoint.clone())?;
    let has_host = !address.starts_with(':');
    Some(if has_host { address } else { format!("127.0.0.1{address}") })
}

impl Logging {
    fn new(arguments: LoggingArguments) -> Self {
        // The others can only be refused.
        let LoggingArguments { v, vmodule, logging_format, .. } = arguments;
        let is_json = logging_format == "json";
        Self {
            verbosity: v,
            vmodule: vmodule.into_iter().flatten().collect(),
            format: if is_json { LogFormat::Json } else { LogFormat::Text },
        }
    }
}

/// The value of an environment variable; empty if it is not set.
fn variable(env: &impl Fn(&str) -> Option<OsString>, name: &str) -> String {
    env(name).unwrap_or_default().to_string_lossy().into_owned()
}

fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
