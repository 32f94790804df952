//! The command line: every flag with its default and its check.
//!
//! Syntax and texts are pflag's. There are external-provisioner's 51 flags with their defaults, our own
//! additions, and the flags and gates of earlier releases. Refusals have external-provisioner's exit
//! codes, in its order. Values in [`Flags`] are consistent. Environment variables are read through a
//! function, and `main` ends the process.

mod check;
mod command;
#[cfg(test)]
mod document;
mod duration;
mod gates;
mod go;
mod retired;
mod syntax;
mod table;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use self::command::{NoValues, Values};
pub use self::gates::Gates;

/// This program's version.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Flags {
    /// The connection to the API server.
    pub kubernetes: Kubernetes,
    /// The connection to the driver.
    pub driver: Driver,
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
    pub rate: Option<Rate>,
    /// `--kube-api-capacity-qps` with `--kube-api-capacity-burst`; `None` when negative.
    pub capacity_rate: Option<Rate>,
}

/// A rate of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests a second.
    pub qps: f64,
    /// Requests that may be sent at once, at least 1.
    pub burst: u32,
}

/// The connection to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// `--csi-address`.
    pub address: String,
    /// `--timeout`, the limit of each call.
    pub timeout: Duration,
}

/// Provisioning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of its own
pub struct Provisioning {
    /// `--volume-name-prefix`.
    pub name_prefix: String,
    /// `--volume-name-uuid-length`, 0 to 32; `None` for the whole UUID with its dashes.
    pub name_uuid_length: Option<usize>,
    /// `--retry-interval-start`.
    pub retry_start: Duration,
    /// `--retry-interval-max`.
    pub retry_max: Duration,
    /// `--worker-threads`, at least 1.
    pub workers: usize,
    /// `--cloning-protection-threads`, at least 1.
    pub cloning_protection_workers: usize,
    /// `--snapshot-orphan-sweep-interval`; `None` for never.
    pub snapshot_sweep_interval: Option<Duration>,
    /// `--strict-topology`.
    pub strict_topology: bool,
    /// `--immediate-topology`.
    pub immediate_topology: bool,
    /// `--extra-create-metadata`.
    pub extra_create_metadata: bool,
    /// `--default-fstype`; empty for none.
    pub default_fstype: String,
    /// `--controller-publish-readonly`.
    pub controller_publish_readonly: bool,
    /// `--prevent-volume-mode-conversion`.
    pub prevent_volume_mode_conversion: bool,
}

/// `CSIStorageCapacity` objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// `--capacity-threads`, at least 1.
    pub workers: usize,
    /// `--capacity-poll-interval`.
    pub poll_interval: Duration,
    /// `--capacity-for-immediate-binding`.
    pub for_immediate_binding: bool,
    /// The objects' namespace, from the environment's `NAMESPACE`; required.
    pub namespace: String,
    /// The owner of the objects; `None` for none (`--capacity-ownerref-level` is negative).
    pub owner: Option<Owner>,
}

/// The owner of `CSIStorageCapacity` objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// This pod, from the environment's `POD_NAME`; required to find the owner.
    pub pod: String,
    /// `--capacity-ownerref-level`: the number of controllers above the pod.
    pub level: u32,
}

/// Node deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDeployment {
    /// The environment's `NODE_NAME`.
    pub node_name: String,
    /// `--node-deployment-immediate-binding`.
    pub immediate_binding: bool,
    /// `--node-deployment-base-delay`.
    pub base_delay: Duration,
    /// `--node-deployment-max-delay`.
    pub max_delay: Duration,
}

/// Leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    /// `--leader-election-namespace`; `None` for the pod's.
    pub namespace: Option<String>,
    /// `--leader-election-lease-duration`.
    pub lease_duration: Duration,
    /// `--leader-election-renew-deadline`.
    pub renew_deadline: Duration,
    /// `--leader-election-retry-period`.
    pub retry_period: Duration,
    /// `--leader-election-labels`.
    pub labels: BTreeMap<String, String>,
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

/// Safety.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Safety {
    /// `--shutdown-timeout`.
    pub shutdown_timeout: Duration,
    /// `--claim-protection`.
    pub claim_protection: ClaimProtection,
    /// `--claim-protection-timeout`; `None` (0) for no limit.
    pub claim_protection_timeout: Option<Duration>,
}

/// When a claim has our finalizer while its volume may be being created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClaimProtection {
    /// Once a call's outcome is unknown.
    #[default]
    Auto,
    /// From before the first call.
    Always,
    /// Never.
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

/// The process does not start: the text to print and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The text, without a newline at its end.
    pub text: String,
    /// external-provisioner's exit code; 0 for help and version.
    pub exit_code: u8,
    /// Whether to print to stderr instead of stdout.
    pub to_stderr: bool,
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
        // Nothing that a flag takes here is anything but text.
        let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
        let program = args.next().unwrap_or_else(|| "csi-provisioner".to_owned());
        let args: Vec<String> = args.collect();
        let values = command::read(&args).map_err(|why| match why {
            NoValues::Help => Refusal::new(command::usage(&program).trim_end(), 0),
            NoValues::Error(error) => {
                Refusal::new(&format!("{}{error}", command::usage(&program)), 2)
            }
        })?;
        let (gates, mut warnings) = check::before_version(&values, &env)?;
        if values.get("version") {
            return Err(Refusal {
                text: format!("{program} {VERSION}"),
                exit_code: 0,
                to_stderr: false,
            });
        }
        check::after_version(&values)?;
        let flags = Self::from_values(&values, gates, &env);
        check::make_sense(&flags)?;
        warnings.extend(check::warnings(&values));
        Ok(Parsed { flags, warnings })
    }

    fn from_values(values: &Values, gates: Gates, env: &impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            kubernetes: Kubernetes::from_values(values),
            driver: Driver {
                address: values.get("csi-address"),
                timeout: values.duration("timeout"),
            },
            provisioning: Provisioning::from_values(values),
            capacity: check::wants_capacity(values).then(|| Capacity::from_values(values, env)),
            node_deployment: values.get::<bool>("node-deployment").then(|| NodeDeployment {
                node_name: variable(env, "NODE_NAME"),
                immediate_binding: values.get("node-deployment-immediate-binding"),
                base_delay: values.duration("node-deployment-base-delay"),
                max_delay: values.duration("node-deployment-max-delay"),
            }),
            leader_election: check::wants_leader_election(values)
                .then(|| LeaderElection::from_values(values)),
            http: Http::from_values(values),
            logging: Logging {
                verbosity: values.get("v"),
                vmodule: values.vmodule(),
                format: if values.get::<String>("logging-format") == "json" {
                    LogFormat::Json
                } else {
                    LogFormat::Text
                },
            },
            gates,
            safety: Safety {
                shutdown_timeout: values.duration("shutdown-timeout"),
                claim_protection: values.get("claim-protection"),
                claim_protection_timeout: some(values.duration("claim-protection-timeout")),
            },
        }
    }
}

impl Refusal {
    fn new(text: &str, exit_code: u8) -> Self {
        Self { text: text.to_owned(), exit_code, to_stderr: true }
    }
}

impl Kubernetes {
    fn from_values(values: &Values) -> Self {
        let rate = || Rate::from_values(values, "kube-api-qps", "kube-api-burst");
        Self {
            kubeconfig: values.text("kubeconfig").map(PathBuf::from),
            master: values.text("master"),
            rate: values.is_given("kube-api-qps").then(rate).flatten(),
            capacity_rate: Rate::from_values(
                values,
                "kube-api-capacity-qps",
                "kube-api-capacity-burst",
            ),
        }
    }
}

impl Rate {
    /// As in client-go: zero means its defaults, a negative value no limit. A value that is not finite means
    /// no limit too.
    fn from_values(values: &Values, qps: &str, burst: &str) -> Option<Self> {
        let qps: f64 = values.get(qps);
        let burst = match values.get::<i64>(burst) {
            0 => 10,
            burst => u32::try_from(burst.max(1)).unwrap_or(u32::MAX),
        };
        let qps = if qps == 0.0 { 5.0 } else { qps };
        (qps > 0.0 && qps.is_finite()).then_some(Self { qps, burst })
    }
}

impl Provisioning {
    fn from_values(values: &Values) -> Self {
        Self {
            name_prefix: values.get("volume-name-prefix"),
            // What is not a length was refused before, but for -1.
            name_uuid_length: usize::try_from(values.get::<i64>("volume-name-uuid-length")).ok(),
            retry_start: values.duration("retry-interval-start"),
            retry_max: values.duration("retry-interval-max"),
            workers: workers(values, "worker-threads"),
            cloning_protection_workers: workers(values, "cloning-protection-threads"),
            snapshot_sweep_interval: some(values.duration("snapshot-orphan-sweep-interval")),
            strict_topology: values.get("strict-topology"),
            immediate_topology: values.get("immediate-topology"),
            extra_create_metadata: values.get("extra-create-metadata"),
            default_fstype: values.get("default-fstype"),
            controller_publish_readonly: values.get("controller-publish-readonly"),
            prevent_volume_mode_conversion: values.get("prevent-volume-mode-conversion"),
        }
    }
}

impl Capacity {
    fn from_values(values: &Values, env: &impl Fn(&str) -> Option<OsString>) -> Self {
        let level: i64 = values.get("capacity-ownerref-level");
        let owner = || Owner {
            pod: variable(env, "POD_NAME"),
            level: u32::try_from(level).unwrap_or(u32::MAX),
        };
        Self {
            workers: workers(values, "capacity-threads"),
            poll_interval: values.duration("capacity-poll-interval"),
            for_immediate_binding: values.get("capacity-for-immediate-binding"),
            namespace: variable(env, "NAMESPACE"),
            owner: (level >= 0).then(owner),
        }
    }
}

impl LeaderElection {
    fn from_values(values: &Values) -> Self {
        Self {
            namespace: values.text("leader-election-namespace"),
            lease_duration: values.duration("leader-election-lease-duration"),
            renew_deadline: values.duration("leader-election-renew-deadline"),
            retry_period: values.duration("leader-election-retry-period"),
            labels: values.labels(),
        }
    }
}

impl Http {
    fn from_values(values: &Values) -> Option<Self> {
        let endpoint = values.text("http-endpoint");
        Some(Self {
            leader_election_check: endpoint.is_some(),
            address: endpoint.or_else(|| values.text("metrics-address"))?,
            metrics_path: values.get("metrics-path"),
            pprof: values.get("enable-pprof"),
        })
    }
}

/// The value of an environment variable; empty if it is not set.
fn variable(env: &impl Fn(&str) -> Option<OsString>, name: &str) -> String {
    env(name).unwrap_or_default().to_string_lossy().into_owned()
}

/// A number of workers, at least 1, since otherwise no work would be done.
fn workers(values: &Values, name: &str) -> usize {
    usize::try_from(values.get::<u64>(name)).unwrap_or(usize::MAX).max(1)
}

fn some(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

#[cfg(test)]
mod tests;
