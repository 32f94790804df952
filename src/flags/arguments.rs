//! All flags: names, types, defaults and help.
//!
//! This is the one description of the flags, in the order of the usage and of `docs/flags.md`. A
//! field's name is the flag's name unless `long` says otherwise; its comment is the help. A bool is a
//! switch: its value may be left out. Names, types and defaults are external-provisioner's (v6.3.0),
//! except for the last two groups and the status. What the values mean, and which of them contradict each other, is left to
//! the parent and to [`check`](super::check).

#![allow(clippy::struct_excessive_bools, clippy::struct_field_names)] // flags, named as such

use std::time::Duration;

use clap::{
    ArgAction::{Set, SetTrue},
    Args, Parser,
};

use super::{
    ClaimProtection, Owner, gates,
    values::{
        CapacitySwitch, Labels, Vmodule, boolean, bytes, capacity_switch, claim_protection,
        duration, float, goflag, int, labels, level, nanos, optional_duration, uint, vmodule,
    },
};

/// The value of each flag: as given, or its default.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
#[command(args_override_self = true, help_template = "{all-args}")]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) kubernetes: KubernetesArguments,
    #[command(flatten)]
    pub(super) driver: Driver,
    #[command(flatten)]
    pub(super) naming: NamingArguments,
    #[command(flatten)]
    pub(super) provisioning: Provisioning,
    #[command(flatten)]
    pub(super) capacity: CapacityArguments,
    #[command(flatten)]
    pub(super) node_deployment: NodeDeploymentArguments,
    #[command(flatten)]
    pub(super) leader_election: LeaderElectionArguments,
    #[command(flatten)]
    pub(super) http: HttpArguments,
    #[command(flatten)]
    pub(super) logging: LoggingArguments,
    #[command(flatten)]
    pub(super) miscellaneous: MiscellaneousArguments,
    #[command(flatten)]
    pub(super) safety: Safety,
    #[command(flatten)]
    pub(super) retired: RetiredArguments,
}

/// `None` for zero. An alias, because a flag of the type `Option` has no default in clap.
type OptionalDuration = Option<Duration>;

#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes connection")]
pub(super) struct KubernetesArguments {
    /// Path of a kubeconfig file; the environment's KUBECONFIG overrides it
    #[arg(long, value_name = "string")]
    pub(super) kubeconfig: Option<String>,
    /// URL of the API server
    #[arg(long, value_name = "string")]
    pub(super) master: Option<String>,
    /// Requests a second to the API server. Not given: no limit of our own, the server's flow
    /// control decides (external-provisioner: 5)
    #[arg(long, value_name = "float", value_parser = goflag(float))]
    pub(super) kube_api_qps: Option<f64>,
    /// Requests to the API server that may come at once, with --kube-api-qps
    #[arg(long, value_name = "int", default_value = "10", value_parser = goflag(int))]
    pub(super) kube_api_burst: i64,
    /// Requests a second to the API server about CSIStorageCapacity objects
    #[arg(long, value_name = "float", default_value = "1", value_parser = float)]
    pub(super) kube_api_capacity_qps: f64,
    /// Requests about CSIStorageCapacity objects that may come at once
    #[arg(long, value_name = "int", default_value = "5", value_parser = int)]
    pub(super) kube_api_capacity_burst: i64,
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

#[derive(Debug, Args)]
#[command(next_help_heading = "Provisioning")]
pub(super) struct NamingArguments {
    /// Start of the names of volumes
    #[arg(long, value_name = "string", default_value = "pvc")]
    pub(super) volume_name_prefix: String,
    /// Digits of the claim's UUID in names of volumes; -1: all of it, with its dashes
    #[arg(long, value_name = "int", default_value = "-1", value_parser = int)]
    pub(super) volume_name_uuid_length: i64,
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
    pub snapshot_sweep_interval: OptionalDuration,
    /// With a selected node, ask for its topology only
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub strict_topology: bool,
    /// Without a selected node, name the topologies of all nodes with the driver
    #[arg(long, value_name = "bool", default_value = "true", value_parser = boolean)]
    pub immediate_topology: bool,
    /// Tell the driver names of claim and volume
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub extra_create_metadata: bool,
    /// File system of volumes whose StorageClass names none
    #[arg(long, value_name = "string", default_value = "", hide_default_value = true)]
    pub default_fstype: String,
    /// Mark volumes read-only whose claims only ask to read
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub controller_publish_readonly: bool,
    /// Refuse to restore a snapshot into another volume mode without permission
    #[arg(long, value_name = "bool", default_value = "true", value_parser = boolean)]
    pub prevent_volume_mode_conversion: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Storage capacity")]
pub(super) struct CapacityArguments {
    /// Publish CSIStorageCapacity objects
    #[arg(long, value_name = "bool", action = SetTrue, default_value = "false", value_parser = capacity_switch)]
    pub(super) enable_capacity: CapacitySwitch,
    #[command(flatten)]
    pub(super) settings: Capacity,
    /// Which owner of this pod owns the objects: 0 the pod, 1 its owner, 2 that one's owner;
    /// negative: none
    #[arg(long, value_name = "int", default_value = "1", value_parser = int)]
    pub(super) capacity_ownerref_level: i64,
}

/// `CSIStorageCapacity` objects.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Capacity {
    /// CSIStorageCapacity objects worked on at once
    // With an id, as clap's ids are unique among all groups.
    #[arg(id = "capacity-threads", long, value_name = "uint", default_value = "1", value_parser = uint)]
    pub workers: usize,
    /// How often to ask the driver for its capacity
    #[arg(long = "capacity-poll-interval", value_name = "duration", default_value = "1m", value_parser = duration)]
    pub poll_interval: Duration,
    /// Publish capacity of StorageClasses with immediate binding too
    #[arg(long = "capacity-for-immediate-binding", value_name = "bool", default_value = "false", value_parser = boolean)]
    pub for_immediate_binding: bool,
    /// The objects' namespace, from the environment's `NAMESPACE`; required.
    #[arg(skip)]
    pub namespace: String,
    /// The owner of the objects; `None` if `--capacity-ownerref-level` is negative.
    #[arg(skip)]
    pub owner: Option<Owner>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Node deployment")]
pub(super) struct NodeDeploymentArguments {
    /// This process runs on each node, beside a driver of node-local volumes
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub(super) node_deployment: bool,
    #[command(flatten)]
    pub(super) settings: NodeDeployment,
}

/// Node deployment.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NodeDeployment {
    /// With --node-deployment, provision claims with immediate binding
    #[arg(long = "node-deployment-immediate-binding", value_name = "bool", default_value = "true", value_parser = boolean)]
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

#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub(super) struct LeaderElectionArguments {
    /// Work only while holding the Lease
    #[arg(long, value_name = "bool", default_value = "false", value_parser = goflag(boolean))]
    pub(super) leader_election: bool,
    #[command(flatten)]
    pub(super) settings: LeaderElection,
    /// Labels put on the Lease
    #[arg(long, value_name = "key:value,...", value_parser = labels)]
    pub(super) leader_election_labels: Vec<Labels>,
}

/// Leader election.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LeaderElection {
    /// Namespace of the Lease; not given: the pod's
    #[arg(long = "leader-election-namespace", value_name = "string")]
    pub namespace: Option<String>,
    /// How long others wait for a silent leader
    #[arg(long = "leader-election-lease-duration", value_name = "duration", default_value = "15s", value_parser = goflag(duration))]
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up
    #[arg(long = "leader-election-renew-deadline", value_name = "duration", default_value = "10s", value_parser = goflag(duration))]
    pub renew_deadline: Duration,
    /// How long to wait between tries
    #[arg(long = "leader-election-retry-period", value_name = "duration", default_value = "5s", value_parser = goflag(duration))]
    pub retry_period: Duration,
    /// `--leader-election-labels`.
    #[arg(skip)]
    pub labels: Labels,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
pub(super) struct HttpArguments {
    /// Address (as in `:8080`) that serves metrics and health checks
    #[arg(long, value_name = "string")]
    pub(super) http_endpoint: Option<String>,
    /// Older name of --http-endpoint, without the health check of leader election
    #[arg(long, value_name = "string")]
    pub(super) metrics_address: Option<String>,
    /// Path of the metrics
    #[arg(long, value_name = "string", default_value = "/metrics")]
    pub(super) metrics_path: String,
    /// Serve the CPU profile at /debug/pprof/profile
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub(super) enable_pprof: bool,
    /// Address (as in `127.0.0.1:8090`) that serves the status as JSON; without a host, loopback only
    #[arg(long, value_name = "string")]
    pub(super) status_endpoint: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LoggingArguments {
    /// Log level: 0 start, errors and outcomes; 2 decisions; 4 tries; 5 calls to the driver; 6
    /// requests to the API server; 10 all
    #[arg(long, value_name = "level", default_value = "0", value_parser = level)]
    pub(super) v: u32,
    /// Log levels of single files
    #[arg(long, value_name = "pattern=N,...", value_parser = vmodule)]
    pub(super) vmodule: Vec<Vmodule>,
    /// `text` or `json`
    #[arg(long, value_name = "string", default_value = "text")]
    pub(super) logging_format: String,
    /// Accepted; logs are not held back
    #[arg(long, value_name = "duration", default_value = "5s", value_parser = nanos)]
    pub(super) log_flush_frequency: i64,
    /// Cannot be turned on, as in external-provisioner
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub(super) log_text_split_stream: bool,
    /// Cannot be turned on, as in external-provisioner
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub(super) log_json_split_stream: bool,
    /// Cannot be set, as in external-provisioner
    #[arg(long, value_name = "quantity", action = Set, default_value = "0", value_parser = bytes)]
    pub(super) log_text_info_buffer_size: bool,
    /// Cannot be set, as in external-provisioner
    #[arg(long, value_name = "quantity", action = Set, default_value = "0", value_parser = bytes)]
    pub(super) log_json_info_buffer_size: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Miscellaneous")]
pub(super) struct MiscellaneousArguments {
    /// Print the version and end
    #[arg(long, value_name = "bool", default_value = "false", value_parser = goflag(boolean))]
    pub(super) version: bool,
    /// Accepted; this program's threads need no such setting
    #[arg(long, value_name = "bool", default_value = "false", value_parser = boolean)]
    pub(super) automaxprocs: bool,
    #[arg(long, value_name = "name=bool,...", value_parser = gates::parse, help = gates::usage())]
    pub(super) feature_gates: Vec<gates::Map>,
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
    pub claim_protection_timeout: OptionalDuration,
}

/// The flags of earlier releases that still have an effect; [`retired`](super::retired) has all.
#[derive(Debug, Args)]
pub(super) struct RetiredArguments {
    /// On: as `--leader-election`
    #[arg(long, hide = true, action = SetTrue, default_value = "false", value_parser = boolean)]
    pub(super) enable_leader_election: bool,
    /// The kind of object that v1 locked
    #[arg(long, hide = true)]
    pub(super) leader_election_type: Option<String>,
    /// `central`: as `--enable-capacity`
    #[arg(long, hide = true)]
    pub(super) capacity_controller_deployment_mode: Option<String>,
}
