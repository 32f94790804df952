//! The rows of docs/differences.md that this workload will show.
//!
//! Only what flags, sidecars and environment decide; rows about rare faults are left to the page.

use super::{
    finding::{Finding, Severity},
    manifest::Workload,
};
use csi_provisioner::flags::{ClaimProtection, Flags};

/// The section of the findings.
pub(super) const SECTION: &str = "differences";

/// What is said of a section that applies as a whole, beside its heading. Others are rows, by their first
/// column.
const WHOLE: &str = "the whole section";

/// Whether an entry applies to the workload.
type Condition = fn(&Facts<'_>) -> bool;

/// The rows in the order of the page, each with the condition under which it applies.
#[rustfmt::skip] // one line a row: it is a table
const ENTRIES: &[(Condition, &str, &str)] = &[
    (|_| true, "claim deleted, bound elsewhere or given to another driver while its `CreateVolume` may still run", ""),
    (|it| it.flags.safety.claim_protection != ClaimProtection::Off, "claim deleted while no process runs, after a call whose end is not known", ""),
    (|_| true, "class missing, none named, or another provisioner's", ""),
    (|_| true, "`InvalidArgument`", ""),
    (|_| true, "\"still working\" codes", ""),
    (|_| true, "claims and volumes of several classes and namespaces", ""),
    (|it| it.workload.has_sidecar("snapshotter"), "Snapshots and clones as sources", WHOLE),
    (|it| it.flags.gates.topology, "Topology", WHOLE),
    (|_| true, "PersistentVolume refused or forbidden", ""),
    (|_| true, "`DeleteVolume`", ""),
    (|_| true, "PersistentVolumes to be deleted", ""),
    (|it| it.migrates, "in-tree PersistentVolumes to be deleted", ""),
    (|it| it.flags.gates.csi_migration_rbd, "volumes of ceph's in-tree plugin `kubernetes.io/rbd`", ""),
    (|it| it.workload.has_sidecar("attacher"), "volume that is still attached", ""),
    (|it| it.flags.capacity().is_some(), "Storage capacity", WHOLE),
    (|_| true, "events in a burst", ""),
    (|it| it.flags.http.address().is_some(), "Metrics", WHOLE),
    (|it| it.flags.http.address().is_some() && it.flags.http.pprof, "`/debug/pprof/`", ""),
    (|it| it.flags.node_deployment().is_some(), "Node deployment (`--node-deployment`)", WHOLE),
    (|_| true, "driver lost", ""),
    (|_| true, "SIGTERM", ""),
    (|it| it.flags.leader_election().is_some(), "standby", ""),
    (|it| it.flags.leader_election().is_some(), "another holder in the Lease while this process leads", ""),
    (|it| it.flags.leader_election().is_some(), "lease identity", ""),
    (|it| it.flags.kubernetes.rate().is_none(), "client-side rate limit", ""),
    (|it| it.has_variable(|name| name.to_ascii_uppercase().ends_with("_PROXY")), "`HTTP_PROXY` or `proxy-url` on the way to an API server without TLS", ""),
    (|it| it.has_variable(|name| name.to_ascii_uppercase().ends_with("_PROXY")), "an invalid proxy URL", ""),
    (|it| it.has_retired, "retired flags and feature gates", ""),
    (|it| it.has_variable(|name| name.starts_with("KUBE_FEATURE_")), "`KUBE_FEATURE_…` in the environment", ""),
];

/// What decides which rows apply.
pub(super) struct Facts<'a> {
    pub(super) flags: &'a Flags,
    pub(super) workload: &'a Workload,
    pub(super) has_retired: bool,
    /// Whether the driver replaces an in-tree plugin.
    pub(super) migrates: bool,
}

impl Facts<'_> {
    fn has_variable(&self, matches: impl Fn(&str) -> bool) -> bool {
        self.workload.provisioner.env.keys().any(|name| matches(name))
    }
}

/// The findings: one for each row or section.
pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let entries = ENTRIES.iter().filter(|(applies, ..)| applies(facts));
    entries.map(|(_, subject, text)| Finding::new(SECTION, Severity::Note, subject, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{flags, workload};

    #[test]
    fn every_row_is_on_the_page_in_its_order() {
        let page = include_str!("../../../docs/differences.md");
        let mut from = 0;
        for (_, entry, text) in ENTRIES {
            let line = match *text {
                WHOLE => format!("\n## {entry}\n"),
                _ => format!("\n| {entry} |"),
            };
            let found = page[from..].find(&line);
            assert!(found.is_some(), "not on the page, or not in this place: {entry:?}");
            from += found.unwrap();
        }
    }

    #[test]
    fn flags_and_environment_decide_which_rows_apply() {
        let rows = |args: &[&str]| {
            let (flags, workload) = (flags(args), workload("Deployment", args));
            let facts =
                Facts { flags: &flags, workload: &workload, has_retired: false, migrates: false };
            check(&facts).into_iter().map(|it| it.subject).collect::<Vec<_>>()
        };
        for (arg, row, expected) in [
            ("--leader-election", "lease identity", true),
            ("-v1", "lease identity", false),
            ("-v1", "client-side rate limit", true),
            ("--kube-api-qps=50", "client-side rate limit", false),
            ("--feature-gates=Topology=false", "Topology", false),
            ("-v1", "Topology", true),
            ("--http-endpoint=:80", "Metrics", true),
        ] {
            assert_eq!(rows(&[arg]).iter().any(|it| it == row), expected, "{arg} {row}");
        }
    }
}
