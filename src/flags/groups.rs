//! All flags, by group: names, types, defaults and help.
//!
//! This is the one description of the flags, in the order of the usage and of `docs/flags.md`. A
//! field's name is the flag's name unless `long` says otherwise; its comment is the help. A bool is a
//! switch: its value may be left out. Names, types and defaults are external-provisioner's (v6.3.0),
//! except for the last two groups and the status. Which values contradict each other is left to
//! [`check`](super::check).

#![allow(clippy::struct_excessive_bools, clippy::struct_field_names)] // flags, named as such

use std::{path::PathBuf, time::Duration};

use clap::Args;
use go_fmt::{
    parse_bool, parse_decimal, parse_duration, parse_float, parse_int, quantity::Quantity,
};

use super::{
    gates,
    values::{
        Labels, Vmodule, capacity_switch, claim_protection, duration, goflag, labels,
        local_address, optional, optional_duration, quantity, uint, vmodule,
    },
};

/// `None` for an empty text, or for zero. An alias, because a flag of the type `Option` has no default in clap.
type Maybe<T> = Option<T>;

/// The connection to the API server.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Kubernetes connection")]
pub struct Kubernetes {
    /// Path of a kubeconfig file; the environment's KUBECONFIG overrides it
    #[arg(long, value_name = "string", default_value = "", hide_default_value = true, value_parser = optional::<PathBuf>)]
    pub kubeconfig: Maybe<PathBuf>,
    /// URL of the API server
    #[arg(long, value_name = "string", default_value = "", hide_default_value = true, value_parser = optional::<String>)]
    pub master: Maybe<String>,
    /// Requests a second to the API server. Not given: no limit of our own, the server's flow
    /// control decides (external-provisioner: 5)
    #[arg(long, value_name = "float", value_parser = goflag(parse_float))]
    pub kube_api_qps: Option<f64>,
    /// Requests to the API server that may come at once, with --kube-api-qps
    #[arg(long, value_name = "int", default_value = "10", value_parser = goflag(parse_int))]
    pub kube_api_burst: i64,
    /// Requests a second to the API server about CSIStorageCapacity objects
    #[arg(long, value_name = "float", default_value = "1", value_parser = parse_float)]
    pub kube_api_capacity_qps: f64,
    /// Requests about CSIStorageCapacity objects that may come at once
    #[arg(long, value_name = "int", default_value = "5", value_parser = parse_int)]
    pub kube_api_capacity_burst: i64,
}

impl Kubernetes {
    /// The rate of requests; `None`, no limit, without `--kube-api-qps`.
    pub fn rate(&self) -> Option<RateLimit> {
        RateLimit::new(self.kube_api_qps?, self.kube_api_burst)
    }

    /// The rate of requests about CSIStorageCapacity objects; `None` for no limit.
    pub fn capacity_rate(&self) -> Option<RateLimit> {
        RateLimit::new(self.kube_api_capacity_qps, self.kube_api_capacity_burst)
    }
}

/// A rate of requests with a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Requests a second on average.
    pub qps: f64,
    /// Requests that may be sent at once after a pause, at least 1.
    pub burst: u32,
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

/// The connection to the driver.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "CSI driver")]
pub struct Driver {
    /// The CSI driver's socket
    #[arg(long = "csi-address", value_name = "string", default_value = "/run/csi/socket")]
    pub address: String,
    /// Time limit of each call to the driver
    #[arg(long, value_name = "duration", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// The names of PersistentVolumes.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Provisioning")]
pub struct VolumeNaming {
    /// Start of the names of volumes
    #[arg(long = "volume-name-prefix", value_name = "string", default_value = "pvc")]
    pub prefix: String,
    /// Digits of the claim's UUID in names of volumes; -1: all of it, with its dashes
    #[arg(long = "volume-name-uuid-length", value_name = "int", default_value = "-1", value_parser = parse_int)]
    pub uuid_length: i64,
}

impl Default for VolumeNaming {
    fn default() -> Self {
        Self { prefix: "pvc".to_owned(), uuid_length: -1 }
    }
}

/// Provisioning.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Provisioning")]
pub struct Provisioning {
    /// Wait after a first failure; doubled with each further one
    #[arg(long = "retry-interval-start", value_name = "duration", default_value = "1s", value_parser = duration)]
    pub retry_start: Duration,
    /// Longest wait after a failure
    #[arg(long = "retry-interval-max", value_name = "duration", default_value = "5m", value_parser = duration)]
    pub retry_max: Duration,
    /// Claims, and volumes to delete, worked on at once
    #[arg(long = "worker-threads", value_name = "uint", default_value = "100", value_parser = uint)]
    pub workers: usize,
    /// Sources of clones whose protection is taken off at once
    #[arg(long = "cloning-protection-threads", value_name = "uint", default_value = "1", value_parser = uint)]
    pub cloning_protection_workers: usize,
    /// How often to look for snapshots that kept our protection; 0: never
    #[arg(long = "snapshot-orphan-sweep-interval", value_name = "duration", default_value = "5m", value_parser = optional_duration)]
    pub snapshot_sweep_interval: Maybe<Duration>,
    /// With a selected node, ask for its topology only
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub strict_topology: bool,
    /// Without a selected node, name the topologies of all nodes with the driver
    #[arg(long, value_name = "bool", default_value = "true", value_parser = parse_bool)]
    pub immediate_topology: bool,
    /// Tell the driver names of claim and volume
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub extra_create_metadata: bool,
    /// File system of volumes whose StorageClass names none
    #[arg(long, value_name = "string", default_value = "", hide_default_value = true)]
    pub default_fstype: String,
    /// Mark volumes read-only whose claims only ask to read
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub controller_publish_readonly: bool,
    /// Refuse to restore a snapshot into another volume mode without permission
    #[arg(long, value_name = "bool", default_value = "true", value_parser = parse_bool)]
    pub prevent_volume_mode_conversion: bool,
}

/// `CSIStorageCapacity` objects.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Storage capacity")]
pub struct Capacity {
    /// Publish CSIStorageCapacity objects
    #[arg(long, value_name = "bool", default_value = "false", value_parser = capacity_switch)]
    pub enable_capacity: bool,
    /// CSIStorageCapacity objects worked on at once
    // With an id, as clap's ids are unique among all groups.
    #[arg(id = "capacity-threads", long, value_name = "uint", default_value = "1", value_parser = uint)]
    pub workers: usize,
    /// How often to ask the driver for its capacity
    #[arg(long = "capacity-poll-interval", value_name = "duration", default_value = "1m", value_parser = duration)]
    pub poll_interval: Duration,
    /// Publish capacity of StorageClasses with immediate binding too
    #[arg(long = "capacity-for-immediate-binding", value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub for_immediate_binding: bool,
    /// Which owner of this pod owns the objects: 0 the pod, 1 its owner, 2 that one's owner;
    /// negative: none
    #[arg(long = "capacity-ownerref-level", value_name = "int", default_value = "1", value_parser = parse_int)]
    pub owner_level: i64,
    /// The objects' namespace, from the environment's `NAMESPACE`; required.
    #[arg(skip)]
    pub namespace: String,
    /// This pod, from the environment's `POD_NAME`; required to find the owner.
    #[arg(skip)]
    pub pod: String,
}

impl Capacity {
    /// The number of controllers above the pod up to the objects' owner; `None` if they have none.
    pub fn owner_level(&self) -> Option<u32> {
        (self.owner_level >= 0).then(|| u32::try_from(self.owner_level).unwrap_or(u32::MAX))
    }
}

/// Node deployment.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Node deployment")]
pub struct NodeDeployment {
    /// This process runs on each node, beside a driver of node-local volumes
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub node_deployment: bool,
    /// With --node-deployment, provision claims with immediate binding
    #[arg(long = "node-deployment-immediate-binding", value_name = "bool", default_value = "true", value_parser = parse_bool)]
    pub immediate_binding: bool,
    /// First wait before trying to own a claim with immediate binding
    #[arg(long = "node-deployment-base-delay", value_name = "duration", default_value = "20s", value_parser = duration)]
    pub base_delay: Duration,
    /// Longest wait before trying to own a claim with immediate binding
    #[arg(long = "node-deployment-max-delay", value_name = "duration", default_value = "60s", value_parser = duration)]
    pub max_delay: Duration,
    /// The environment's `NODE_NAME`.
    #[arg(skip)]
    pub node_name: String,
}

/// Leader election.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElection {
    /// Work only while holding the Lease
    #[arg(long, value_name = "bool", default_value = "false", value_parser = goflag(parse_bool))]
    pub leader_election: bool,
    /// Namespace of the Lease; not given: the pod's
    #[arg(long = "leader-election-namespace", value_name = "string", default_value = "", hide_default_value = true, value_parser = optional::<String>)]
    pub namespace: Maybe<String>,
    /// How long others wait for a silent leader
    #[arg(long = "leader-election-lease-duration", value_name = "duration", default_value = "15s", value_parser = goflag(duration))]
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up
    #[arg(long = "leader-election-renew-deadline", value_name = "duration", default_value = "10s", value_parser = goflag(duration))]
    pub renew_deadline: Duration,
    /// How long to wait between tries
    #[arg(long = "leader-election-retry-period", value_name = "duration", default_value = "5s", value_parser = goflag(duration))]
    pub retry_period: Duration,
    /// Labels put on the Lease
    #[arg(long = "leader-election-labels", value_name = "key:value,...", value_parser = labels)]
    pub labels: Vec<Labels>,
}

/// The HTTP servers.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "HTTP")]
pub struct Http {
    /// Address (as in `:8080`) that serves metrics and health checks
    #[arg(long = "http-endpoint", value_name = "string", default_value = "", hide_default_value = true, value_parser = optional::<String>)]
    pub endpoint: Maybe<String>,
    /// Older name of --http-endpoint, without the health check of leader election
    #[arg(long, value_name = "string", default_value = "", hide_default_value = true, value_parser = optional::<String>)]
    pub metrics_address: Maybe<String>,
    /// Path of the metrics
    #[arg(long, value_name = "string", default_value = "/metrics")]
    pub metrics_path: String,
    /// Serve the CPU profile at /debug/pprof/profile
    #[arg(long = "enable-pprof", value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub pprof: bool,
    /// Address (as in `127.0.0.1:8090`) that serves the status as JSON; without a host, loopback only
    #[arg(long = "status-endpoint", value_name = "string", default_value = "", hide_default_value = true, value_parser = local_address)]
    pub status: Maybe<String>,
}

impl Http {
    /// The address of metrics and health checks; `None` for no server.
    pub fn address(&self) -> Option<&str> {
        self.endpoint.as_deref().or(self.metrics_address.as_deref())
    }
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Logging")]
pub struct Logging {
    /// Log level: 0 start, errors and outcomes; 2 decisions; 4 tries; 5 calls to the driver; 6
    /// requests to the API server; 10 all
    #[arg(short, long = "v", value_name = "level", default_value = "0", value_parser = parse_decimal)]
    pub verbosity: u32,
    /// Log levels of single files
    // Of all that is given, the first pattern that fits a file counts.
    #[arg(long, value_name = "pattern=N,...", value_parser = vmodule)]
    pub vmodule: Vec<Vmodule>,
    /// `text` or `json`
    #[arg(long = "logging-format", value_name = "string", default_value = "text")]
    pub format: String,
}

/// Flags of logging that can only be refused.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogOutput {
    /// Accepted; logs are not held back
    #[arg(long, value_name = "duration", default_value = "5s", value_parser = parse_duration)]
    pub log_flush_frequency: i64,
    /// Cannot be turned on, as in external-provisioner
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub log_text_split_stream: bool,
    /// Cannot be turned on, as in external-provisioner
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub log_json_split_stream: bool,
    /// Cannot be set, as in external-provisioner
    #[arg(long, value_name = "quantity", default_value = "0", value_parser = quantity)]
    pub log_text_info_buffer_size: Quantity,
    /// Cannot be set, as in external-provisioner
    #[arg(long, value_name = "quantity", default_value = "0", value_parser = quantity)]
    pub log_json_info_buffer_size: Quantity,
}

/// What ends at once, or is accepted only, and the feature gates.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Miscellaneous")]
pub(super) struct Miscellaneous {
    /// Print the version and end
    #[arg(long, value_name = "bool", default_value = "false", value_parser = goflag(parse_bool))]
    pub version: bool,
    /// Accepted; this program's threads need no such setting
    #[arg(long, value_name = "bool", default_value = "false", value_parser = parse_bool)]
    pub automaxprocs: bool,
    /// The gates as they are set.
    #[arg(long, value_name = "name=bool,...", value_parser = gates::parse, help = gates::usage())]
    pub feature_gates: Vec<gates::Map>,
}

/// Safety.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Safety (not in external-provisioner)")]
pub struct Safety {
    /// After SIGTERM, how long work under way may take to end
    #[arg(long, value_name = "duration", default_value = "20s", value_parser = duration)]
    pub shutdown_timeout: Duration,
    /// When a claim is protected from deletion while its volume may be in the making: `auto`,
    /// `always` or `off`
    #[arg(long, value_name = "mode", default_value = "auto", value_parser = claim_protection)]
    pub claim_protection: ClaimProtection,
    /// How long a deleted claim is kept for a driver that does not answer; 0: for ever
    #[arg(long, value_name = "duration", default_value = "1h", value_parser = optional_duration)]
    pub claim_protection_timeout: Maybe<Duration>,
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

/// The flags of earlier releases that still have an effect; [`retired`](super::retired) has all.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct RetiredFlags {
    /// On: as `--leader-election`
    #[arg(long, hide = true, default_value = "false", value_parser = parse_bool)]
    pub enable_leader_election: bool,
    /// The kind of object that v1 locked
    #[arg(long, hide = true, default_value = "", value_parser = optional::<String>)]
    pub leader_election_type: Maybe<String>,
    /// `central`: as `--enable-capacity`
    #[arg(long, hide = true, default_value = "", value_parser = optional::<String>)]
    pub capacity_controller_deployment_mode: Maybe<String>,
}
