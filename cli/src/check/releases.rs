//! The releases of external-provisioner in which flags came.

/// external-provisioner's first releases with each flag; our own flags are missing.
#[rustfmt::skip] // one line a release: it is a table
pub(super) const SINCE: [(&str, &[&str]); 15] = [
    ("v0.2", &["kubeconfig", "master", "csi-address", "volume-name-prefix", "volume-name-uuid-length", "v", "vmodule"]),
    ("v0.3", &["version"]),
    ("v0.4", &["feature-gates"]),
    ("v1.1", &["timeout", "retry-interval-start", "retry-interval-max", "worker-threads"]),
    ("v1.2", &["strict-topology", "leader-election-namespace"]),
    ("v1.5", &["metrics-address", "metrics-path"]),
    ("v1.6", &["cloning-protection-threads", "extra-create-metadata"]),
    ("v2.0", &["kube-api-qps", "kube-api-burst", "default-fstype", "capacity-threads", "capacity-poll-interval", "capacity-for-immediate-binding", "capacity-ownerref-level", "leader-election"]),
    ("v2.1", &["immediate-topology", "enable-capacity", "node-deployment", "node-deployment-immediate-binding", "node-deployment-base-delay", "node-deployment-max-delay", "http-endpoint"]),
    ("v3.0", &["controller-publish-readonly", "leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period"]),
    ("v3.2", &["kube-api-capacity-qps", "kube-api-capacity-burst", "prevent-volume-mode-conversion", "enable-pprof"]),
    ("v5.2", &["logging-format", "log-flush-frequency", "log-text-split-stream", "log-json-split-stream", "log-text-info-buffer-size", "log-json-info-buffer-size"]),
    ("v5.3", &["automaxprocs"]),
    ("v6.2", &["leader-election-labels"]),
    ("v6.3", &["snapshot-orphan-sweep-interval"]),
];

/// external-provisioner's first release with the flag; `None` for our own flags.
pub(super) fn since(name: &str) -> Option<&'static str> {
    SINCE.iter().find(|(_, flags)| flags.contains(&name)).map(|(release, _)| *release)
}
