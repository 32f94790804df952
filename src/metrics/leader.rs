//! Leader election.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::families::Families;

/// `leader_election_*`.
#[derive(Debug, Clone)]
pub struct LeaderMetrics {
    master_status: IntGaugeVec,
    slowpath_total: IntCounterVec,
}

impl LeaderMetrics {
    pub(super) fn new(families: &Families) -> Self {
        Self {
            master_status: families.int_gauge(
                "leader_election_master_status",
                "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            ),
            slowpath_total: families.counter(
                "leader_election_slowpath_total",
                "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            ),
        }
    }

    /// Whether this process leads. The label `name` is empty, as in external-provisioner.
    pub fn leads(&self, leads: bool) {
        self.master_status.with_label_values(&[""]).set(i64::from(leads));
    }

    /// This process read its own Lease before it renewed it, after a failed renewal or a restart.
    pub fn slow_path(&self) {
        self.slowpath_total.with_label_values(&[""]).inc();
    }
}
