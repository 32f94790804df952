//! How the nodes share claims among them (`--node-deployment`).

use prometheus::IntCounterVec;

use super::families::Families;

/// The results of attempts to own claims.
#[derive(Debug, Clone)]
pub struct NodeMetrics {
    tries: IntCounterVec,
}

impl NodeMetrics {
    pub(super) fn new(families: &Families) -> Self {
        Self {
            tries: families.counter(
                "provisioner_ownership_tries_total",
                "With --node-deployment, tries to become the owner of a claim with immediate binding, by result: own, another (a node was faster), changed (the claim did; tried again), full (no free space; tried again with back-off), gone, failed.",
                &["result"],
            ),
        }
    }

    /// An attempt to own a claim had this result.
    pub fn tried(&self, result: &'static str) {
        self.tries.with_label_values(&[result]).inc();
    }
}
