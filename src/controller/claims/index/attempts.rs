//! What becomes of a claim in an attempt.
//!
//! Owns the moments at which a claim's state goes on. Promises that it does so as `claim_state` says
//! and nowhere else.

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
    /// A call for `order` starts; false when it may not, or no longer.
    pub fn called(&self, uid: &str, order: &ProvisionRequest) -> bool {
        let called = |entry: &mut Entry| {
            let may_call = entry.may_call();
            if may_call {
                entry.advance(ClaimState::called);
                entry.unrepeatable = None;
                entry.order = Some(Box::new(order.clone()));
            }
            may_call
        };
        self.change(uid, called).unwrap_or(false)
    }

    /// An attempt ended before its call: what to do next, and how often the call that is open was
    /// asked after in a row.
    pub fn not_asked(&self, uid: &str, why: &NotSent) -> (Next, u32) {
        let not_asked = |entry: &mut Entry| {
            let next = entry.state.not_asked(why, entry.demand());
            // That it still waits for the same is no news.
            let lasts = next == Next::Retry
                && matches!(why, NotSent::Failed(failure) if failure.is_lasting());
            let waits = lasts || matches!(why, NotSent::Unrepeatable(_));
            if waits { (next, 0) } else { entry.goes_on(next) }
        };
        self.change(uid, not_asked).unwrap_or((Next::Drop, 0))
    }

    /// The call ended: what to do next, and how often it was asked after in a row.
    pub fn answered(&self, uid: &str, outcome: &Outcome) -> (Next, u32) {
        let answered = |entry: &mut Entry| {
            let demand = entry.demand();
            let was_loosened = entry.state.is_loosened();
            let is_unknown = self.is_local() && entry.state.leaves_unknown(outcome);
            let (state, next) =
                std::mem::take(&mut entry.state).answered(outcome, demand, Instant::now());
            entry.state = state;
            entry.close(is_unknown);
            // Where nothing was sent, the record may have gone meanwhile.
            entry.take_up_record();
            if entry.state.is_loosened() && !was_loosened {
                tracing::info!("the driver keeps refusing: another node and a changed class count");
            }
            entry.goes_on(next)
        };
        self.change(uid, answered).unwrap_or((Next::Drop, 0))
    }

    /// Saving the claim's volume has come to its end.
    pub fn saved(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.shown = true;
            entry.advance(ClaimState::saved);
        });
    }

    /// The claim's volume with this handle was not saved, and may be gone with another
    /// PersistentVolume: the claim asks anew, once that is looked up.
    pub fn bared(&self, uid: &str, handle: &str) {
        self.change(uid, |entry| {
            entry.requires(Verification::VolumeAndClaim);
            entry.advance(|state| state.bared(handle));
        });
    }

    /// The API server refuses the claim's PersistentVolume, and nobody wants it any more.
    pub fn refused(&self, uid: &str, leftover: UnusableVolume) {
        self.change(uid, |entry| entry.advance(|state| state.refused(leftover)));
    }

    /// The claim's volume that could not be used is gone: whether the claim still wants one.
    pub fn discarded(&self, uid: &str) -> bool {
        self.change(uid, |entry| {
            entry.advance(ClaimState::discarded);
            entry.demand() == Demand::Wanted
        })
        .unwrap_or(false)
    }

    /// The claim's volume that cannot be used, or may be gone, stays where it is.
    pub fn suspected(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::suspected));
    }

    /// The task that worked on the claim died.
    pub fn interrupted(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::interrupted));
    }

    /// The claim's open call is not followed any longer.
    pub fn given_up(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::given_up));
    }

    /// The claim's selected node was given back: what is known of the claim is in doubt.
    pub fn node_given_back(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.verification = Verification::None;
            entry.requires(Verification::VolumeAndClaim);
        });
    }

    /// What was in doubt about the claim at this glance is settled; what is in doubt since is not.
    pub fn looked_up(&self, snapshot: &ClaimSnapshot) {
        self.change(snapshot.claim.uid(), |entry| {
            if entry.verification <= snapshot.verification && entry.doubted == snapshot.doubted {
                entry.verification = Verification::None;
            }
        });
    }
}
