//! Claims with the record of a call that is not this process's.
//!
//! * The call of another node (node deployment), whose process may never come back. Then a deleted claim is
//!   released, by any process. From a live claim the process of its selected node takes the record off, and
//!   provisions for it anew. The process that does so reports it.
//! * The call of another driver. Such a record is left to the provisioner of that driver, and is no obstacle.
//!   But one that a claim brought from another cluster, or from an earlier class, nobody may ever close. Once
//!   the claim asks for our driver or is bound to a volume of ours, it is reported when the claim is deleted,
//!   and taken off after the same time-out as a record of our own.

use std::time::Duration;

use serde_json::Value;

use super::{
    super::{model::record::Record, provisioner::Provisioner},
    call_record::Release,
    index::{ClaimGuard, Entry, KnownClaim},
    record_status,
    worker::ClaimWorker,
};
use crate::{
    kube::{
        ApiError,
        objects::{Claim, View as _, Volume},
    },
    metrics::SuspectedLeak,
    workqueue::Action,
};

/// How often it is looked whether the node of a deleted claim's record is gone.
const NODE_RECHECK: Duration = Duration::from_secs(5 * 60);

impl<P: Provisioner> ClaimWorker<P> {
    /// Follows the call of another node, of which `record` is: that node's process may never come back, and its
    /// call can be repeated by no other.
    pub(super) async fn follow_elsewhere(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
        record: &Record,
    ) -> Action {
        let claim = &known.claim;
        let is_terminating = claim.is_terminating();
        let wait = self.deps.peers.wait(held.uid());
        // Only the selected node's process may provision for a live claim, but any may release a deleted
        // one.
        if is_terminating && !wait.is_zero() {
            return Action::RequeueAfter(wait);
        }
        let node = record.printable_node();
        let node_is_gone = self.is_node_gone(node).await;
        let volume = known.volume_name.as_deref().unwrap_or_default();
        match (is_terminating, node_is_gone) {
            (_, true) => {
                let report = || self.suspect_node(claim, volume);
                let action = self.release_recorded(held, claim, record, report).await;
                if is_terminating { action } else { Action::Retry }
            }
            (true, false) if self.is_overdue(known) => {
                let report = || self.suspect_timeout(claim, volume);
                self.release_recorded(held, claim, record, report).await
            }
            // All that were deleted together share the next read.
            (true, false) => Action::RequeueAfter(NODE_RECHECK),
            (false, false) => {
                let why = format!(
                    "a CreateVolume that was made for the claim on node {node:?} may still run: it is followed to its end there"
                );
                self.retry_blocked(claim, &why, &why)
            }
        }
    }

    /// Whether the API server says that the node does not exist. False if that cannot be found out,
    /// or if the record names no node.
    async fn is_node_gone(&self, node: &str) -> bool {
        if node.is_empty() {
            return false;
        }
        match self.nodes.get(None, node).await {
            Ok(_) => false,
            Err(error) if error.is_not_found() => true,
            Err(error) => {
                tracing::debug!(%error, node, "cannot tell whether the node is gone");
                false
            }
        }
    }

    /// Takes the record of another process off a claim. The process whose write removes the record, or may
    /// have removed it, reports the call.
    async fn release_recorded(
        &self,
        held: &ClaimGuard,
        claim: &Claim,
        record: &Record,
        report: impl FnOnce(),
    ) -> Action {
        let remove = |object: &mut Value| record_status::remove_recorded(object, record);
        let Release { is_done, is_ours } = self.release(held, claim, remove).await;
        if is_ours && held.update(Entry::report_release).unwrap_or(true) {
            report();
        }
        if !is_done {
            return Action::Retry;
        }
        held.update(Entry::released);
        self.deps.peers.forget(held.uid());
        Action::Done
    }

    /// Reports a suspected leak: the node whose process has a call open for the claim is gone.
    fn suspect_node(&self, claim: &Claim, volume: &str) {
        let why = format!(
            "the node whose CreateVolume for this claim may still have run is gone: its volume {volume:?} may be left at the driver"
        );
        self.suspect(claim, SuspectedLeak::NODE_GONE, &why);
    }

    /// Looks after a claim with which this process has nothing else to do, and which the record of another
    /// driver may hold for ever.
    pub(super) async fn look_for_other_driver(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
    ) -> Action {
        let claim = &known.claim;
        let Some(record) = record_status::of_other_driver(&self.deps.identity, claim) else {
            return Action::Done;
        };
        match self.is_of_this_driver(claim).await {
            Ok(true) => {}
            Ok(false) => return Action::Done,
            Err(error) => {
                tracing::debug!(%error, "cannot tell whether the claim has a volume of this driver");
                return Action::Retry;
            }
        }
        let wait = self.deps.peers.wait(held.uid());
        if !wait.is_zero() {
            return Action::RequeueAfter(wait);
        }
        if self.is_overdue(known) {
            let report = || self.report_taken_off(claim, &record);
            return self.release_recorded(held, claim, &record, report).await;
        }
        if self.deps.identity.node.is_none() || self.deps.identity.is_provisioner_of(claim) {
            self.report_other_driver(held, claim, &record);
        }
        Action::Retry
    }

    /// Whether the claim asks for this driver, or is bound to a volume of this driver.
    async fn is_of_this_driver(&self, claim: &Claim) -> Result<bool, ApiError> {
        if self.deps.identity.is_for_driver(claim) {
            return Ok(true);
        }
        let Some(name) = claim.spec.volume_name.as_deref() else { return Ok(false) };
        let bound = self.read_volume(name).await?;
        let is_for_claim = |volume: &Volume| {
            volume.spec.claim_ref.as_ref().is_some_and(|it| it.uid == claim.uid())
        };
        Ok(bound.is_some_and(|it| is_for_claim(&it) && self.deps.identity.owns_volume(&it)))
    }

    /// Tells once what holds a deleted claim of ours: the record of another driver.
    fn report_other_driver(&self, held: &ClaimGuard, claim: &Claim, record: &Record) {
        if held.update(Entry::report_other_driver) != Some(true) {
            return;
        }
        let driver = record.printable_driver();
        self.deps.metrics.controller.unfollowed_record();
        let named = if driver.is_empty() { "OTHER" } else { driver };
        let why = format!(
            "the record of an open call of the CSI driver {driver:?} holds the deleted claim until that driver's provisioner ends its call. Where none runs any more, run kubectl csi-provisioner release-claims --driver {named} --release, or wait for --claim-protection-timeout"
        );
        self.deps.events.blocked(claim, &why);
    }

    /// Reports that the record of another driver is off a deleted claim.
    fn report_taken_off(&self, claim: &Claim, record: &Record) {
        let (driver, volume) = (record.printable_driver(), record.printable_volume());
        let why = format!(
            "the record of an open call of the CSI driver {driver:?} was taken off the deleted claim after --claim-protection-timeout: the volume {volume:?} may be left at that driver"
        );
        self.deps.events.blocked(claim, &why);
    }
}
