//! The table of flags: names, what they take, defaults, and a sentence for the usage.
//!
//! Owns nothing but the table; names, types and defaults are the original's (v6.3.0), and a few
//! flags of our own stand at its end.

use super::go::Voice::{self, Goflag, Pflag};

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Any text.
    Text,
    /// `true` or `false`; without a value `true`.
    Bool(Voice),
    /// As `Bool`, and the word `central` of a release candidate's manifests.
    CapacitySwitch,
    /// A whole number.
    Int(Voice),
    /// A whole number from 0 up.
    Uint,
    /// A number.
    Float(Voice),
    /// A duration with its unit.
    Duration(Voice),
    /// A log level.
    Level,
    /// `pattern=N,...`; repeats add up.
    Vmodule,
    /// A number of bytes with a suffix.
    Bytes,
    /// `name=bool,...`; repeats add up.
    Gates,
    /// `key:value,...`; repeats add up.
    Labels,
    /// `auto`, `always` or `off`.
    Protection,
}

/// A flag.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    /// The original's first release with it; empty for our own.
    #[cfg_attr(not(test), allow(dead_code))] // docs/flags.md is written from it
    pub(super) since: &'static str,
    pub(super) takes: Takes,
    /// Empty: none, or nothing worth showing.
    pub(super) default: &'static str,
    pub(super) help: &'static str,
}

use Takes::{
    Bool, Bytes, CapacitySwitch, Duration, Float, Gates, Int, Labels, Level, Protection, Text,
    Uint, Vmodule,
};

const fn flag(
    group: &'static str,
    name: &'static str,
    since: &'static str,
    takes: Takes,
    default: &'static str,
    help: &'static str,
) -> Flag {
    Flag { group, name, since, takes, default, help }
}

const KUBERNETES: &str = "Kubernetes connection";
const DRIVER: &str = "CSI driver";
const PROVISIONING: &str = "Provisioning";
const CAPACITY: &str = "Storage capacity";
const NODE: &str = "Node deployment";
const LEADER: &str = "Leader election";
const HTTP: &str = "HTTP";
const LOGGING: &str = "Logging";
const MISC: &str = "Miscellaneous";
const SAFETY: &str = "Safety (not in the original)";

/// All flags, by group.
#[rustfmt::skip] // one line a flag: it is a table
pub(super) const FLAGS: [Flag; 54] = [
    flag(KUBERNETES, "kubeconfig", "v0.2", Text, "", "Path of a kubeconfig file; the environment's KUBECONFIG overrides it"),
    flag(KUBERNETES, "master", "v0.2", Text, "", "URL of the API server"),
    flag(KUBERNETES, "kube-api-qps", "v2.0", Float(Goflag), "", "Requests a second to the API server. Not given: no limit of our own, the server's flow control decides (the original: 5)"),
    flag(KUBERNETES, "kube-api-burst", "v2.0", Int(Goflag), "10", "Requests to the API server that may come at once, with --kube-api-qps"),
    flag(KUBERNETES, "kube-api-capacity-qps", "v3.2", Float(Pflag), "1", "Requests a second to the API server about CSIStorageCapacity objects"),
    flag(KUBERNETES, "kube-api-capacity-burst", "v3.2", Int(Pflag), "5", "Requests about CSIStorageCapacity objects that may come at once"),
    flag(DRIVER, "csi-address", "v0.2", Text, "/run/csi/socket", "The CSI driver's socket"),
    flag(DRIVER, "timeout", "v1.1", Duration(Pflag), "10s", "Time limit of each call to the driver"),
    flag(PROVISIONING, "volume-name-prefix", "v0.2", Text, "pvc", "Start of the names of volumes"),
    flag(PROVISIONING, "volume-name-uuid-length", "v0.2", Int(Pflag), "-1", "Digits of the claim's UUID in names of volumes; -1: all of it, with its dashes"),
    flag(PROVISIONING, "retry-interval-start", "v1.1", Duration(Pflag), "1s", "Wait after a first failure; doubled with each further one"),
    flag(PROVISIONING, "retry-interval-max", "v1.1", Duration(Pflag), "5m", "Longest wait after a failure"),
    flag(PROVISIONING, "worker-threads", "v1.1", Uint, "100", "Claims, and volumes to delete, worked on at once"),
    flag(PROVISIONING, "cloning-protection-threads", "v1.6", Uint, "1", "Sources of clones whose protection is taken off at once"),
    flag(PROVISIONING, "snapshot-orphan-sweep-interval", "v6.3", Duration(Pflag), "5m", "How often to look for snapshots that kept our protection; 0: never"),
    flag(PROVISIONING, "strict-topology", "v1.2", Bool(Pflag), "false", "With a selected node, ask for its topology only"),
    flag(PROVISIONING, "immediate-topology", "v2.1", Bool(Pflag), "true", "Without a selected node, name the topologies of all nodes with the driver"),
    flag(PROVISIONING, "extra-create-metadata", "v1.6", Bool(Pflag), "false", "Tell the driver names of claim and volume"),
    flag(PROVISIONING, "default-fstype", "v2.0", Text, "", "File system of volumes whose StorageClass names none"),
    flag(PROVISIONING, "controller-publish-readonly", "v3.0", Bool(Pflag), "false", "Mark volumes read-only whose claims only ask to read"),
    flag(PROVISIONING, "prevent-volume-mode-conversion", "v3.2", Bool(Pflag), "true", "Refuse to restore a snapshot into another volume mode without permission"),
    flag(CAPACITY, "enable-capacity", "v2.1", CapacitySwitch, "false", "Publish CSIStorageCapacity objects"),
    flag(CAPACITY, "capacity-threads", "v2.0", Uint, "1", "CSIStorageCapacity objects worked on at once"),
    flag(CAPACITY, "capacity-poll-interval", "v2.0", Duration(Pflag), "1m", "How often to ask the driver for its capacity"),
    flag(CAPACITY, "capacity-for-immediate-binding", "v2.0", Bool(Pflag), "false", "Publish capacity of StorageClasses with immediate binding too"),
    flag(CAPACITY, "capacity-ownerref-level", "v2.0", Int(Pflag), "1", "Which owner of this pod owns the objects: 0 the pod, 1 its owner, 2 that one's owner; negative: none"),
    flag(NODE, "node-deployment", "v2.1", Bool(Pflag), "false", "This process runs on each node, beside a driver of node-local volumes"),
    flag(NODE, "node-deployment-immediate-binding", "v2.1", Bool(Pflag), "true", "With --node-deployment, provision claims with immediate binding"),
    flag(NODE, "node-deployment-base-delay", "v2.1", Duration(Pflag), "20s", "First wait before trying to own a claim with immediate binding"),
    flag(NODE, "node-deployment-max-delay", "v2.1", Duration(Pflag), "60s", "Longest wait before trying to own a claim with immediate binding"),
    flag(LEADER, "leader-election", "v2.0", Bool(Goflag), "false", "Work only while holding the Lease"),
    flag(LEADER, "leader-election-namespace", "v1.2", Text, "", "Namespace of the Lease; not given: the pod's"),
    flag(LEADER, "leader-election-lease-duration", "v3.0", Duration(Goflag), "15s", "How long others wait for a silent leader"),
    flag(LEADER, "leader-election-renew-deadline", "v3.0", Duration(Goflag), "10s", "How long a leader tries to renew before it gives up"),
    flag(LEADER, "leader-election-retry-period", "v3.0", Duration(Goflag), "5s", "How long to wait between tries"),
    flag(LEADER, "leader-election-labels", "v6.2", Labels, "", "Labels put on the Lease"),
    flag(HTTP, "http-endpoint", "v2.1", Text, "", "Address (as in `:8080`) that serves metrics and health checks"),
    flag(HTTP, "metrics-address", "v1.5", Text, "", "Older name of --http-endpoint, without the health check of leader election"),
    flag(HTTP, "metrics-path", "v1.5", Text, "/metrics", "Path of the metrics"),
    flag(HTTP, "enable-pprof", "v3.2", Bool(Pflag), "false", "Serve profiles under /debug/pprof/"),
    flag(LOGGING, "v", "v0.2", Level, "0", "Log level: 0 start, errors and outcomes; 2 decisions; 4 tries; 5 calls to the driver; 6 requests to the API server; 8 their bodies; 10 all"),
    flag(LOGGING, "vmodule", "v0.2", Vmodule, "", "Log levels of single files"),
    flag(LOGGING, "logging-format", "v5.2", Text, "text", "`text` or `json`"),
    flag(LOGGING, "log-flush-frequency", "v5.2", Duration(Pflag), "5s", "Accepted; logs are not held back"),
    flag(LOGGING, "log-text-split-stream", "v5.2", Bool(Pflag), "false", "Cannot be turned on, as in the original"),
    flag(LOGGING, "log-json-split-stream", "v5.2", Bool(Pflag), "false", "Cannot be turned on, as in the original"),
    flag(LOGGING, "log-text-info-buffer-size", "v5.2", Bytes, "0", "Cannot be set, as in the original"),
    flag(LOGGING, "log-json-info-buffer-size", "v5.2", Bytes, "0", "Cannot be set, as in the original"),
    flag(MISC, "version", "v0.3", Bool(Goflag), "false", "Print the version and end"),
    flag(MISC, "automaxprocs", "v5.3", Bool(Pflag), "false", "Accepted; this program's threads need no such setting"),
    flag(MISC, "feature-gates", "v0.4", Gates, "", "Features switched by name"),
    flag(SAFETY, "shutdown-timeout", "", Duration(Pflag), "20s", "After SIGTERM, how long work under way may take to end"),
    flag(SAFETY, "claim-protection", "", Protection, "auto", "When a claim is protected from deletion while its volume may be in the making: `auto`, `always` or `off`"),
    flag(SAFETY, "claim-protection-timeout", "", Duration(Pflag), "1h", "How long a deleted claim is kept for a driver that does not answer; 0: for ever"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_originals_51_flags_and_3_of_our_own_each_once() {
        let names: BTreeSet<_> = FLAGS.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), 54);
        assert_eq!(FLAGS.iter().filter(|f| f.group == SAFETY).count(), 3);
    }
}
