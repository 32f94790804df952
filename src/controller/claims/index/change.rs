//! What workers report to the index: live reads, attempts, volumes and records.
//!
//! [`Entry::apply`] applies a [`Change`] to the entry of its claim, without I/O. What depends on the
//! present state of the claim, such as whether a call may start, is decided in the same step.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{
    entry::{Entry, OnPvGone},
    snapshot::{RecordOrigin, Required, Verification},
};
use crate::{
    controller::{
        claims::{
            record_status,
            record_status::{RecordStatus, ThisProcess},
            state::{ClaimState, Next, Transition},
        },
        model::unusable_volume::UnusableVolume,
        ownership::ProvisionerIdentity,
        provisioner::{NotSent, Outcome, ProvisionRequest},
    },
    kube::objects::{Claim, Volume},
};

/// What a worker has learned about a claim or has done for it.
#[derive(Debug)]
pub enum Change<'a> {
    /// The resync queues the claim, and nothing else had queued it.
    Resynced,
    /// A worker begins to work on the claim.
    WorkStarted,
    /// The task that worked on the claim has panicked.
    WorkerPanicked,

    /// The live reads that were required found nothing.
    Verified(Required),
    /// A live read after `required` was taken found a PersistentVolume of the claim.
    VolumeRead {
        /// The PersistentVolume.
        volume: &'a Volume,
        /// What was required before the read.
        required: Required,
    },
    /// A live read found the claim, which may carry a record of which no event has come.
    ClaimRead(&'a Claim),
    /// A live read found the claim bound to the volume of its open call.
    FoundBound,
    /// The process of another node has, or just had, a call open for the claim: that may have made
    /// a PersistentVolume whose event is still to come.
    CallElsewhere,
    /// The selected node was removed from the claim, so what is known of the claim is out of date.
    NodeGivenBack,

    /// A call with this request starts.
    CallStarted(&'a ProvisionRequest),
    /// An attempt ended before its call.
    NotSent(&'a NotSent),
    /// The call ended.
    CallEnded(&'a Outcome),
    /// The claim waits for this.
    Blocked(&'a str),
    /// The recorded request cannot be repeated now.
    Unrepeatable,
    /// The open call of the claim is no longer followed.
    CallGivenUp,

    /// Saving the claim's volume is finished.
    Saved,
    /// A live read found the PersistentVolume that was to be saved, and that it is being deleted:
    /// the claim is queued once it is gone. If its deletion was seen meanwhile, nothing changes.
    PvTerminating(&'a Volume),
    /// The volume with this handle was not saved, and may have been deleted together with another
    /// PersistentVolume: the driver is asked again after a live look-up.
    PvGone(&'a str),
    /// The API server refuses the PersistentVolume, and nobody wants the volume any more.
    PvRefused(Box<UnusableVolume>),
    /// This process removes its finalizer from the claim's PersistentVolume: the claim is queued
    /// once that is gone.
    PvReleased,
    /// The unusable volume of the claim is removed.
    Discarded,
    /// The volume that is unusable, or that may be gone, stays as it is.
    LeakSuspected,

    /// This process is about to write the record: a record that is seen from now on is known.
    RecordWriteStarted,
    /// A write of the record ended with an error, and the API server may have carried it out.
    RecordWriteUnclear,
    /// The record was written or, with `None`, removed.
    RecordWritten(Option<RecordStatus>),
    /// The class of the claim is another provisioner's: the record is void.
    RecordVoid,
    /// The record is no longer followed: the claim is provisioned as a new one.
    RecordGivenUp,
    /// The node whose process left a call for the claim is gone: this process follows the call.
    Adopted(&'a str),
}

/// What a [`Change`] leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Whether the change was made: false if the claim is not in the index, or has changed so that
    /// a call may not start, a live read does not count, or a record is not followed.
    pub is_made: bool,
    /// After an attempt: what to do next.
    pub next: Next,
    /// After an attempt: how often in a row the open call was repeated.
    pub polls: u32,
    /// For how long the claim is blocked, or its recorded request cannot be repeated.
    pub lasted: Duration,
}

impl Effects {
    /// The change was not made.
    pub(super) const NONE: Self =
        Self { is_made: false, next: Next::Drop, polls: 0, lasted: Duration::ZERO };

    /// The change had no other effect than that it was made, or not.
    fn made(is_made: bool) -> Self {
        Self { is_made, ..Self::NONE }
    }

    fn attempted((next, polls): (Next, u32)) -> Self {
        Self { next, polls, ..Self::made(true) }
    }

    fn lasted(lasted: Duration) -> Self {
        Self { lasted, ..Self::made(true) }
    }
}

impl Entry {
    /// Applies a change to the entry of the claim. `identity`: of this process.
    pub(super) fn apply(&mut self, change: Change<'_>, identity: &ProvisionerIdentity) -> Effects {
        let known = &mut self.known;
        match change {
            Change::Verified(required) => return Effects::made(known.required.satisfy(required)),
            Change::VolumeRead { volume, required } => {
                return Effects::made(self.volume_read(volume, required, identity));
            }
            Change::ClaimRead(live) => return Effects::made(self.claim_read(live, identity)),
            Change::CallStarted(request) => return Effects::made(self.call_started(request)),
            Change::NotSent(why) => return Effects::attempted(self.not_sent(why)),
            Change::CallEnded(outcome) => {
                return Effects::attempted(self.call_ended(outcome, identity));
            }
            Change::Blocked(what) => return Effects::lasted(self.reports.blocked_for(what)),
            Change::Unrepeatable => return Effects::lasted(self.unrepeatable_for()),
            Change::Resynced => known.is_resynced = true,
            Change::WorkStarted => known.is_resynced = false,
            Change::WorkerPanicked => known.advance(Transition::Interrupted),
            Change::FoundBound => self.found_bound(),
            Change::CallElsewhere => known.required.require(Verification::VolumeAndClaim),
            Change::NodeGivenBack => known.required.require_anew(Verification::VolumeAndClaim),
            Change::CallGivenUp => known.advance(Transition::GivenUp),
            Change::Saved => self.saved(),
            Change::PvTerminating(volume) => self.pv_terminating(volume, identity),
            Change::PvGone(handle) => {
                known.required.require(Verification::VolumeAndClaim);
                known.advance(Transition::PvGone(handle));
            }
            Change::PvRefused(unusable) => known.advance(Transition::PvRefused(unusable)),
            Change::PvReleased => self.pv.on_gone = OnPvGone::Requeue,
            Change::Discarded => known.advance(Transition::Discarded),
            Change::LeakSuspected => known.advance(Transition::LeakSuspected),
            Change::RecordWriteStarted => known.record_origin = known.record_origin.known(),
            Change::RecordWriteUnclear => known.record_origin = known.record_origin.unconfirmed(),
            Change::RecordWritten(status) => self.record_written(status),
            Change::RecordVoid => known.void(),
            Change::RecordGivenUp => known.advance(Transition::RecordDropped),
            Change::Adopted(node) => self.adopt(node, identity),
        }
        Effects::made(true)
    }

    /// Returns false if no call may start now.
    fn call_started(&mut self, request: &ProvisionRequest) -> bool {
        let may_start = self.known.may_start_call();
        if may_start {
            self.known.advance(Transition::CallStarted);
            self.known.request = Some(Arc::new(request.clone()));
            if let Some(repeats) = &mut self.repeats {
                repeats.unrepeatable_since = None;
            }
        }
        may_start
    }

    fn not_sent(&mut self, why: &NotSent) -> (Next, u32) {
        self.attempts.ended(why.failure());
        let next = self.known.state.after_not_sent(why, self.known.demand());
        // The obstacle is the same, so its report is not due again.
        let lasts = match why {
            NotSent::Failed(failure) => next == Next::Retry && failure.is_lasting(),
            NotSent::Unrepeatable(_) => true,
            NotSent::Ignored { .. } | NotSent::Reschedule(_) => false,
        };
        if lasts { (next, 0) } else { self.after_attempt(next) }
    }

    fn call_ended(&mut self, outcome: &Outcome, identity: &ProvisionerIdentity) -> (Next, u32) {
        self.attempts.ended(outcome.failure());
        let demand = self.known.demand();
        let state = std::mem::take(&mut self.known.state);
        let accepted_changes = state.accepts_changes();
        let is_unknown =
            self.may_be_of_another_call(identity) && state.is_outcome_unknown_after(outcome);
        let (state, next) = state.call_ended(outcome, demand, Instant::now());
        self.known.state = state;
        self.supersede(is_unknown);
        // If nothing was sent, the record may have been removed meanwhile.
        self.follow_record();
        if self.known.state.accepts_changes() && !accepted_changes {
            tracing::info!("the driver keeps refusing: another node and a changed class count");
        }
        self.after_attempt(next)
    }

    /// Returns `next` and how often in a row the open call was repeated.
    fn after_attempt(&mut self, next: Next) -> (Next, u32) {
        if next == Next::Poll {
            let repeats = self.repeats.get_or_insert_default();
            repeats.polls = repeats.polls.saturating_add(1);
            return (next, repeats.polls);
        }
        // The call is not repeated soon: whatever happens next is reported.
        if let Some(repeats) = &mut self.repeats {
            repeats.polls = 0;
            repeats.unknown_outcomes.clear();
        }
        self.reports.forget_obstacle();
        (next, 0)
    }

    fn unrepeatable_for(&mut self) -> Duration {
        let repeats = self.repeats.get_or_insert_default();
        repeats.unrepeatable_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Returns false if the claim must be verified again, because the PersistentVolume may have been
    /// deleted meanwhile.
    fn volume_read(
        &mut self,
        volume: &Volume,
        required: Required,
        identity: &ProvisionerIdentity,
    ) -> bool {
        let is_current = self.known.is_served_by(volume) && self.known.required.satisfy(required);
        if is_current {
            self.volume_found(volume, identity);
        }
        is_current
    }

    /// A live read found the claim bound to its own volume.
    fn found_bound(&mut self) {
        let is_outcome_unknown = matches!(self.known.state, ClaimState::Background(_));
        self.known.advance(Transition::FoundBound);
        self.supersede(is_outcome_unknown);
    }

    fn saved(&mut self) {
        self.pv.is_listed = true;
        self.known.advance(Transition::Saved);
    }

    fn pv_terminating(&mut self, volume: &Volume, identity: &ProvisionerIdentity) {
        if self.known.is_saving() {
            self.volume_found(volume, identity);
            self.pv.on_gone = OnPvGone::Requeue;
        }
    }

    /// Compares the record of the claim that was read live. Returns true if it is of another
    /// process's call and no event has brought it yet; the call is followed from now on. A void
    /// record is reported later.
    fn claim_read(&mut self, live: &Claim, identity: &ProvisionerIdentity) -> bool {
        let status = self.judge(live, identity);
        let is_due = matches!(status, Some(RecordStatus::Open(_) | RecordStatus::Void(_)));
        if !is_due || self.known.record_origin != RecordOrigin::Unknown {
            return false;
        }
        let is_open = matches!(status, Some(RecordStatus::Open(_)));
        self.known.record_status = status.map(Arc::new);
        if is_open {
            self.follow_record();
        }
        is_open
    }

    fn record_written(&mut self, status: Option<RecordStatus>) {
        let known = &mut self.known;
        known.record_origin = match status {
            Some(RecordStatus::Open(_)) => known.record_origin.confirmed(),
            _ => known.record_origin.unconfirmed(),
        };
        known.record_status = status.map(Arc::new);
    }

    fn adopt(&mut self, node: &str, identity: &ProvisionerIdentity) {
        self.known.adopted = Some(node.into());
        self.known.record_status = self.judge(&self.known.claim, identity).map(Arc::new);
        self.known.record_origin = RecordOrigin::Unknown;
        self.follow_record();
    }

    /// Decides what the record on this version of the claim means.
    fn judge(&self, claim: &Claim, identity: &ProvisionerIdentity) -> Option<RecordStatus> {
        let this_process = ThisProcess { identity, adopted: self.known.adopted.as_deref() };
        record_status::judge(claim, this_process, self.known.volume_name.as_deref())
    }
}
