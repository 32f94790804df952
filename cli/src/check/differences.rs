//! The rows of docs/differences.md that this workload will show.
//!
//! Only what flags, sidecars and environment decide; rows about rare faults are left to the page.

use super::{
    finding::{Finding, Section, Severity},
    manifest::Workload,
};
use csi_provisioner::flags::{ClaimProtection, Flags};

/// A row by its first column, or a whole section by its heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageEntry {
    Row(&'static str),
    Whole(&'static str),
}

use PageEntry::{Row, Whole};

/// Whether an entry applies to the workload.
type Condition = fn(&Facts<'_>) -> bool;

/// The rows in the order of the page, each with the condition under which it applies.
#[rustfmt::skip] // one line a row: it is a table
const ENTRIES: &[(Condition, PageEntry)] = &[
    (|_| true, Row("claim deleted while its `CreateVolume` may still run")),
    (|it| it.flags.safety.claim_protection != ClaimProtection::Off, Row("claim deleted while no process runs, after a call whose end is not known")),
    (|_| true, Row("class missing, none named, or another provisioner's")),
    (|_| true, Row("`InvalidArgument`")),
    (|_| true, Row("\"still working\" codes")),
    (|_| true, Row("claims and volumes of several classes and namespaces")),
    (|it| it.workload.has_sidecar("snapshotter"), Whole("Snapshots and clones as sources")),
    (|it| it.flags.gates.topology, Whole("Topology")),
    (|_| true, Row("PersistentVolume refused or forbidden")),
    (|_| true, Row("`DeleteVolume`")),
    (|_| true, Row("PersistentVolumes to be deleted")),
    (|it| it.migrates, Row("in-tree PersistentVolumes to be deleted")),
    (|it| it.flags.gates.csi_migration_rbd, Row("volumes of ceph's in-tree plugin `kubernetes.io/rbd`")),
    (|it| it.workload.has_sidecar("attacher"), Row("volume that is still attached")),
    (|it| it.flags.capacity().is_some(), Whole("Storage capacity")),
    (|_| true, Row("events in a burst")),
    (|it| it.flags.http.address().is_some(), Whole("Metrics")),
    (|it| it.flags.http.address().is_some() && it.flags.http.pprof, Row("`/debug/pprof/`")),
    (|it| it.flags.node_deployment().is_some(), Whole("Node deployment (`--node-deployment`)")),
    (|_| true, Row("driver lost")),
    (|_| true, Row("SIGTERM")),
    (|it| it.flags.leader_election().is_some(), Row("standby")),
    (|it| it.flags.leader_election().is_some(), Row("another holder in the Lease while this process leads")),
    (|it| it.flags.leader_election().is_some(), Row("lease identity")),
    (|it| it.flags.kubernetes.rate().is_none(), Row("client-side rate limit")),
    (|it| it.has_variable(|name| name.to_ascii_uppercase().ends_with("_PROXY")), Row("`HTTP_PROXY` or `proxy-url` on the way to an API server without TLS")),
    (|it| it.has_variable(|name| name.to_ascii_uppercase().ends_with("_PROXY")), Row("an invalid proxy URL")),
    (|it| it.has_retired, Row("retired flags and feature gates")),
    (|it| it.has_variable(|name| name.starts_with("KUBE_FEATURE_")), Row("`KUBE_FEATURE_…` in the environment")),
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
    let entries = ENTRIES.iter().filter(|(applies, _)| applies(facts));
    entries.map(|(_, entry)| finding(*entry)).collect()
}

fn finding(entry: PageEntry) -> Finding {
    let (subject, text) = match entry {
        Row(row) => (row, ""),
        Whole(section) => (section, "the whole section"),
    };
    Finding::new(Section::Differences, Severity::Note, subject, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{flags, workload};

    #[test]
    fn every_row_is_on_the_page_in_its_order() {
        let page = include_str!("../../../docs/differences.md");
        let mut from = 0;
        for (_, entry) in ENTRIES {
            let line = match entry {
                Row(row) => format!("\n| {row} |"),
                Whole(section) => format!("\n## {section}\n"),
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
