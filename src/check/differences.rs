//! The rows of docs/differences.md that this workload will show.
//!
//! Only what flags, sidecars and environment decide; rows about rare faults are left to the page.

use super::{
    finding::{Finding, Section, Severity},
    manifest::Workload,
};
use crate::flags::{ClaimProtection, Flags};

/// What a row applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    ClaimProtection,
    NoRateLimit,
    LeaderElection,
    Attachments,
    Snapshots,
    Topology,
    Capacity,
    NodeDeployment,
    Http,
    Profiles,
    Migration,
    MigrationOfRbd,
    RetiredFlags,
    Proxy,
    KubeFeatures,
}

/// A row by its first column, or a whole section by its heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Row(&'static str),
    Whole(&'static str),
}

use Place::{Row, Whole};

/// The rows in the order of the page.
#[rustfmt::skip] // one line a row: it is a table
const PLACES: &[(When, Place)] = &[
    (When::Always, Row("claim deleted while its `CreateVolume` may still run")),
    (When::ClaimProtection, Row("claim deleted while no process runs, after a call whose end is not known")),
    (When::Always, Row("class missing, none named, or another provisioner's")),
    (When::Always, Row("`InvalidArgument`")),
    (When::Always, Row("\"still working\" codes")),
    (When::Always, Row("a driver that answers with deadlines, Unavailable or Aborted")),
    (When::Snapshots, Whole("Snapshots and clones as sources")),
    (When::Topology, Whole("Topology")),
    (When::Always, Row("PersistentVolume refused or forbidden")),
    (When::Always, Row("`DeleteVolume`")),
    (When::Always, Row("PersistentVolumes to be deleted")),
    (When::Migration, Row("in-tree PersistentVolumes to be deleted")),
    (When::MigrationOfRbd, Row("volumes of ceph's in-tree plugin `kubernetes.io/rbd`")),
    (When::Attachments, Row("volume that is still attached")),
    (When::Capacity, Whole("Storage capacity")),
    (When::Always, Row("events in a burst")),
    (When::Http, Whole("Metrics")),
    (When::Profiles, Row("`/debug/pprof/`")),
    (When::NodeDeployment, Whole("Node deployment (`--node-deployment`)")),
    (When::Always, Row("driver lost")),
    (When::Always, Row("SIGTERM")),
    (When::LeaderElection, Row("a new leader that stood by")),
    (When::LeaderElection, Row("standby")),
    (When::LeaderElection, Row("another holder in the Lease while this process leads")),
    (When::LeaderElection, Row("lease identity")),
    (When::NoRateLimit, Row("client-side rate limit")),
    (When::Proxy, Row("`HTTP_PROXY` or `proxy-url` on the way to an API server without TLS")),
    (When::Proxy, Row("an invalid proxy URL")),
    (When::RetiredFlags, Row("retired flags and feature gates")),
    (When::KubeFeatures, Row("`KUBE_FEATURE_…` in the environment")),
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
    fn holds(&self, when: When) -> bool {
        let Self { flags, workload, .. } = self;
        match when {
            When::Always => true,
            When::ClaimProtection => flags.safety.claim_protection != ClaimProtection::Off,
            When::NoRateLimit => flags.kubernetes.rate.is_none(),
            When::LeaderElection => flags.leader_election.is_some(),
            When::Attachments => workload.has_sidecar("attacher"),
            When::Snapshots => workload.has_sidecar("snapshotter"),
            When::Topology => flags.gates.topology,
            When::Capacity => flags.capacity.is_some(),
            When::NodeDeployment => flags.node_deployment.is_some(),
            When::Http => flags.http.is_some(),
            When::Profiles => flags.http.as_ref().is_some_and(|http| http.pprof),
            When::Migration => self.migrates,
            When::MigrationOfRbd => flags.gates.csi_migration_rbd,
            When::RetiredFlags => self.has_retired,
            When::Proxy => self.has_variable(|name| name.to_ascii_uppercase().ends_with("_PROXY")),
            When::KubeFeatures => self.has_variable(|name| name.starts_with("KUBE_FEATURE_")),
        }
    }

    fn has_variable(&self, matches: impl Fn(&str) -> bool) -> bool {
        self.workload.provisioner.env.keys().any(|name| matches(name))
    }
}

/// The findings: one for each row or section.
pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let places = PLACES.iter().filter(|(when, _)| facts.holds(*when));
    let finding = |(_, place): &(When, Place)| {
        let (subject, text) = match place {
            Row(row) => (*row, ""),
            Whole(section) => (*section, "the whole section"),
        };
        Finding::new(Section::Differences, Severity::Note, subject, text)
    };
    places.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{flags, workload};

    #[test]
    fn every_row_is_on_the_page_in_its_order() {
        let page = include_str!("../../docs/differences.md");
        let mut from = 0;
        for (_, place) in PLACES {
            let line = match place {
                Row(row) => format!("\n| {row} |"),
                Whole(section) => format!("\n## {section}\n"),
            };
            let found = page[from..].find(&line);
            assert!(found.is_some(), "not on the page, or not in this place: {place:?}");
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
