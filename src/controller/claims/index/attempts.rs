//! Provisioning attempts.
//!
//! Applies the transitions of [`ClaimState`] when an attempt starts and ends. The states of claims
//! change only here, by events and by records.

use tokio::time::Instant;

use super::{ClaimIndex, ClaimSnapshot, Verification, entry::Entry};
use crate::{
    controller::{
        claims::state::{ClaimState, Demand, Next},
        model::unusable_volume::UnusableVolume,
        provisioner::{NotSent, Outcome, ProvisionRequest},
    },
    kube::objects::View as _,
};

impl ClaimIndex {
    /// Starts a call with `request`. Returns false if no call may start now.
    pub fn start_call(&self, uid: &str, request: &ProvisionRequest) -> bool {
        let start = |entry: &mut Entry| {
            let may_call = entry.may_call();
            if may_call {
                entry.advance(ClaimState::call_started);
                entry.unrepeatable_since = None;
                entry.request = Some(Box::new(request.clone()));
            }
            may_call
        };
        self.change(uid, start).unwrap_or(false)
    }

    /// An attempt ended before its call. Returns what to do next, and how often in a row the open
    /// call was repeated.
    pub fn on_not_sent(&self, uid: &str, why: &NotSent) -> (Next, u32) {
        let after_not_sent = |entry: &mut Entry| {
            let next = entry.state.after_not_sent(why, entry.demand());
            // The obstacle is the same, so its report is not due again.
            let lasts = next == Next::Retry
                && matches!(why, NotSent::Failed(failure) if failure.is_lasting());
            let dependencies = lasts || matches!(why, NotSent::Unrepeatable(_));
            if dependencies { (next, 0) } else { entry.after_attempt(next) }
        };
        self.change(uid, after_not_sent).unwrap_or((Next::Drop, 0))
    }

    /// The call ended. Returns what to do next, and how often in a row the call was repeated.
    pub fn on_outcome(&self, uid: &str, outcome: &Outcome) -> (Next, u32) {
        let apply = |entry: &mut Entry| {
            let demand = entry.demand();
            let accepted_changes = entry.state.accepts_changes();
            let is_outcome_unknown =
                self.is_local() && entry.state.is_outcome_unknown_after(outcome);
            let (state, next) =
                std::mem::take(&mut entry.state).call_ended(outcome, demand, Instant::now());
            entry.state = state;
            entry.close(is_outcome_unknown);
            // If nothing was sent, the record may have been removed meanwhile.
            entry.follow_record();
            if entry.state.accepts_changes() && !accepted_changes {
                tracing::info!("the driver keeps refusing: another node and a changed class count");
            }
            entry.after_attempt(next)
        };
        self.change(uid, apply).unwrap_or((Next::Drop, 0))
    }

    /// Saving the claim's volume is finished.
    pub fn on_saved(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.is_pv_listed = true;
            entry.advance(ClaimState::saved);
        });
    }

    /// The volume with this handle was not saved, and may have been deleted together with another
    /// PersistentVolume: the driver is asked again after a live look-up.
    pub fn on_pv_gone(&self, uid: &str, handle: &str) {
        self.change(uid, |entry| {
            entry.requires(Verification::VolumeAndClaim);
            entry.advance(|state| state.pv_gone(handle));
        });
    }

    /// The API server refuses the PersistentVolume, and nobody wants the volume any more.
    pub fn on_pv_refused(&self, uid: &str, unusable: UnusableVolume) {
        self.change(uid, |entry| entry.advance(|state| state.pv_refused(unusable)));
    }

    /// The unusable volume of the claim is removed. Returns whether the claim still wants a volume.
    pub fn on_discarded(&self, uid: &str) -> bool {
        self.change(uid, |entry| {
            entry.advance(ClaimState::discarded);
            entry.demand() == Demand::Wanted
        })
        .unwrap_or(false)
    }

    /// The volume that is unusable, or that may be gone, stays as it is.
    pub fn on_leak_suspected(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::leak_suspected));
    }

    /// The task that worked on the claim has panicked.
    pub fn on_worker_panic(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::interrupted));
    }

    /// The open call of the claim is no longer followed.
    pub fn give_up_call(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::given_up));
    }

    /// The selected node was removed from the claim, so what is known of the claim is out of date.
    pub fn on_node_given_back(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.verification = Verification::None;
            entry.requires(Verification::VolumeAndClaim);
        });
    }

    /// The live reads that `snapshot` required found nothing. What was required since then still
    /// is.
    pub fn on_verified(&self, snapshot: &ClaimSnapshot) {
        self.change(snapshot.claim.uid(), |entry| {
            if entry.verification <= snapshot.verification
                && entry.verification_epoch == snapshot.verification_epoch
            {
                entry.verification = Verification::None;
            }
        });
    }
}
