//! Deleted claims of ours that the record of another driver holds.
//!
//! Such a record is left to the provisioner of that driver, and is no obstacle. But one that a claim brought
//! from another cluster, or from an earlier class, nobody may ever close. Once the claim asks for our driver
//! or is bound to a volume of ours, it is reported when the claim is deleted, and taken off after the same
//! time-out as a record of our own.

use super::{
    super::{model::record::Record, provisioner::Provisioner},
    index::{ClaimGuard, KnownClaim},
    record_status,
    worker::ClaimWorker,
};
use crate::{
    kube::{
        ApiError, Name,
        objects::{Claim, View as _, Volume},
    },
    workqueue::Action,
};

impl<P: Provisioner> ClaimWorker<P> {
    /// Does what is due for a claim with which this process has nothing else to do.
    pub(crate) async fn look_for_other_driver(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
    ) -> Action {
        let claim = &known.claim;
        if !record_status::may_be_held_by_other_driver(&self.identity, claim) {
            return Action::Done;
        }
        match record_status::of_other_driver(&self.identity, claim) {
            Some(record) => self.follow_other_driver(held, known, &record).await,
            None => Action::Done,
        }
    }

    async fn follow_other_driver(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
        record: &Record,
    ) -> Action {
        let claim = &known.claim;
        match self.is_of_this_driver(claim).await {
            Ok(true) => {}
            Ok(false) => return Action::Done,
            Err(error) => {
                tracing::debug!(%error, "cannot tell whether the claim has a volume of this driver");
                return Action::Retry;
            }
        }
        let wait = self.peers.wait(held.uid());
        if !wait.is_zero() {
            return Action::RequeueAfter(wait);
        }
        if !self.is_overdue(known) {
            if self.identity.node.is_none() || self.identity.is_provisioner_of(claim) {
                self.report_other_driver(held, claim, record);
            }
            return Action::Retry;
        }
        let is_released = self.release_for_other_driver(held, claim, record).await;
        if is_released { Action::Done } else { Action::Retry }
    }

    /// Whether the claim asks for this driver, or is bound to a volume of this driver.
    async fn is_of_this_driver(&self, claim: &Claim) -> Result<bool, ApiError> {
        if self.identity.is_for_driver(claim) {
            return Ok(true);
        }
        let Some(name) = claim.spec.volume_name.as_deref() else { return Ok(false) };
        let bound = self.client.get_opt::<Volume>(Name::cluster(name)?).await?;
        let is_for_claim = |volume: &Volume| {
            volume.spec.claim_ref.as_ref().is_some_and(|it| it.uid == claim.uid())
        };
        Ok(bound.is_some_and(|it| is_for_claim(&it) && self.identity.owns_volume(&it)))
    }
}
