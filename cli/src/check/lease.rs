//! The Lease, and whether the old and the new pods could work at the same time.

use super::{
    finding::{Finding, Severity},
    manifest::Workload,
};
use csi_provisioner::{flags::Flags, leader};

/// The time after the running calls within which the program ends, in seconds.
const SHUTDOWN_REST: u64 = 5;

const ENDPOINTS: &str = "external-provisioner v1 locks an Endpoints object here, which this program does not look at: scale it to 0 before the switch, or give it --leader-election-type=leases first";

const NO_ELECTION: &str = "no leader election, so that old and new pods work at the same time: scale to 0 before the switch, or set the strategy Recreate";

/// The namespace of the Lease.
pub(super) fn namespace(flags: &Flags, workload: &Workload) -> String {
    let flag = flags.leader_election().and_then(|election| election.namespace.as_deref());
    let variable = workload.provisioner.env.get("POD_NAMESPACE").and_then(Option::as_deref);
    leader::namespace(flag, variable, Some(&workload.namespace))
}

/// The findings about Lease and rollout.
pub(super) fn check(flags: &Flags, workload: &Workload, driver: Option<&str>) -> Vec<Finding> {
    let endpoints = flags.locks_endpoints().then(|| finding(Severity::ToDo, "lock", ENDPOINTS));
    let lease = if flags.leader_election().is_some() {
        lease(&namespace(flags, workload), driver)
    } else if flags.node_deployment().is_some() || workload.replaces_in_place {
        finding(Severity::Ok, "none", "no leader election: an old pod ends before a new one starts")
    } else {
        finding(Severity::ToDo, "none", NO_ELECTION)
    };
    [endpoints, Some(lease), grace(flags, workload)].into_iter().flatten().collect()
}

fn lease(namespace: &str, driver: Option<&str>) -> Finding {
    match driver {
        Some(driver) => {
            let name = format!("{namespace}/{}", leader::lease_name(driver));
            finding(
                Severity::Ok,
                &name,
                "the same as external-provisioner's: old and new pods wait for each other",
            )
        }
        None => finding(
            Severity::Unchecked,
            &format!("namespace {namespace}"),
            "the manifest does not show the driver's name, of which the Lease's is made: give --driver",
        ),
    }
}

/// A pod that is killed early leaves its calls and the Lease open.
fn grace(flags: &Flags, workload: &Workload) -> Option<Finding> {
    let needed = flags.safety.shutdown_timeout.as_secs() + SHUTDOWN_REST;
    let text = format!(
        "running calls may not end before the pod is killed: set it to {needed} at least, or a smaller --shutdown-timeout"
    );
    let subject = format!("terminationGracePeriodSeconds: {}", workload.grace_seconds);
    (workload.grace_seconds < needed).then(|| finding(Severity::ToDo, &subject, &text))
}

fn finding(severity: Severity, subject: &str, text: &str) -> Finding {
    Finding::new("lease", severity, subject, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{flags, workload};

    #[test]
    fn the_lease_is_named_by_the_driver_and_the_flags() {
        for (args, driver, severity, subject) in [
            (
                &["--leader-election"][..],
                Some("rbd.csi.ceph.com"),
                Severity::Ok,
                "ns/rbd-csi-ceph-com",
            ),
            (
                &["--leader-election", "--leader-election-namespace=x"],
                Some("a"),
                Severity::Ok,
                "x/a",
            ),
            (&["--leader-election"], None, Severity::Unchecked, "namespace ns"),
            (&[], Some("a"), Severity::ToDo, "none"),
        ] {
            let found = check(&flags(args), &workload("Deployment", args), driver);
            assert_eq!((found[0].severity, found[0].subject.as_str()), (severity, subject));
            assert_eq!(found.len(), 1);
        }
    }

    #[test]
    fn pods_that_replace_each_other_need_no_lease_and_v1_needs_care() {
        let statefulset = check(&flags(&[]), &workload("StatefulSet", &[]), None);
        assert_eq!(statefulset[0].severity, Severity::Ok);
        let args = ["--enable-leader-election", "--leader-election-type=endpoints"];
        let v1 = check(&flags(&args), &workload("Deployment", &args), Some("a"));
        assert_eq!((v1[0].severity, v1[1].subject.as_str()), (Severity::ToDo, "ns/a"));
    }

    #[test]
    fn a_pod_needs_time_to_end() {
        let workload = Workload { grace_seconds: 10, ..workload("StatefulSet", &[]) };
        let found = check(&flags(&[]), &workload, None);
        assert!(found[1].text.contains("set it to 25 at least"), "{found:?}");
    }
}
