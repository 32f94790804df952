//! What workers learn about a claim, and do for it: live reads, attempts, volumes and records.
//!
//! Each method of [`Entry`] here is one thing that has happened. What depends on the present state of the
//! claim, such as whether a call may start, is decided in the same step. No I/O.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{entry::Entry, known::Required};
use crate::{
    controller::{
        claims::{
            record_status,
            record_status::RecordStatus,
            state::{ClaimState, Transition},
        },
        model::unsaved_volume::Seen,
        ownership::ProvisionerIdentity,
        provisioner::{Next, Outcome, ProvisionRequest},
    },
    kube::{
        informer::hash,
        objects::{Claim, View as _, Volume},
    },
};

impl Entry {
    /// The state changes as `transition` says.
    pub fn advance(&mut self, transition: Transition<'_>) {
        self.known.advance(transition);
    }

    /// The live reads that were required at the time of `required` found nothing.
    pub fn verified(&mut self, required: Required) {
        self.known.required.satisfy(required);
    }

    /// A live read after `required` was taken found a PersistentVolume of the claim. Returns false if the
    /// claim must be verified again, because the PersistentVolume may have been deleted meanwhile.
    pub fn volume_read(
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

    /// A live read found the claim, whose record no event may have brought yet. Returns true if the record is
    /// of another process's call; the call is followed from now on. A void record is reported later.
    pub fn claim_read(&mut self, live: &Claim, identity: &ProvisionerIdentity) -> bool {
        let status = record_status::judge(live, identity, self.known.volume_name.as_deref());
        let is_due = matches!(status, Some(RecordStatus::Open(_) | RecordStatus::Void(_)));
        if !is_due || self.known.is_record_known {
            return false;
        }
        let is_open = matches!(status, Some(RecordStatus::Open(_)));
        self.known.record_status = status.map(Arc::new);
        if is_open {
            self.follow_record();
        }
        is_open
    }

    /// A live read found the claim bound to the volume of its open call.
    pub fn found_bound(&mut self) {
        let is_outcome_unknown = matches!(self.known.state, ClaimState::Background(_));
        self.advance(Transition::FoundBound);
        self.supersede(is_outcome_unknown);
    }

    /// What is known of the claim may be out of date: live reads come before its next call.
    pub fn require_reads(&mut self) {
        self.known.required.require();
    }

    /// The record of another process's call is off the claim: that call is over for this process, and may have
    /// made a PersistentVolume whose event is still to come.
    pub fn released(&mut self) {
        self.reports.release = false;
        self.require_reads();
    }

    /// A call with this request is about to start. Returns false if none may start now, as the claim has
    /// changed since the plan was made.
    pub fn call_started(&mut self, request: &ProvisionRequest) -> bool {
        let may_start = self.known.may_start_call();
        if may_start {
            self.advance(Transition::CallStarted);
            self.known.request = Some(Arc::new(request.clone()));
            if let Some(repeats) = &mut self.repeats {
                repeats.unrepeatable_since = None;
            }
        }
        may_start
    }

    /// An attempt that began at `started` has ended. Returns what to do next, and how often in a row the open
    /// call was repeated.
    pub fn ended(
        &mut self,
        outcome: &Outcome,
        started: Instant,
        identity: &ProvisionerIdentity,
    ) -> (Next, u32) {
        self.attempts.ended(outcome.failure());
        let accepted_changes = self.known.state.accepts_changes();
        let is_unknown = self.may_be_of_another_call(identity)
            && self.known.state.is_outcome_unknown_after(outcome);
        let next = self.known.after(outcome);
        // The state knows only when the call ended.
        self.update_unsaved(|unsaved| unsaved.started = started);
        if let Outcome::NotPrepared(why) = outcome {
            // If the obstacle is the same, its report is not due again.
            let lasts = why.lasts() && next == Next::Retry;
            return if lasts { (next, 0) } else { self.after_attempt(next) };
        }
        if let Some(repeats) = &mut self.repeats
            && !matches!(outcome, Outcome::Unsent(_))
        {
            repeats.unasked_since = None;
        }
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
        if next == Next::Repeat {
            let repeats = self.repeats.get_or_insert_default();
            repeats.in_a_row = repeats.in_a_row.saturating_add(1);
            return (next, repeats.in_a_row);
        }
        // The call is not repeated soon: whatever happens next is reported.
        if let Some(repeats) = &mut self.repeats {
            repeats.in_a_row = 0;
            repeats.unknown_outcomes.clear();
        }
        self.reports.forget_obstacle();
        (next, 0)
    }

    /// The claim waits for `what`. Returns for how long it has.
    pub fn blocked_for(&mut self, what: &str) -> Duration {
        self.reports.blocked_for(what)
    }

    /// The recorded request cannot be repeated now. Returns for how long it has been so.
    pub fn unrepeatable_for(&mut self) -> Duration {
        let repeats = self.repeats.get_or_insert_default();
        repeats.unrepeatable_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// No call runs. Returns for how long nothing was sent for the claim; zero when first asked after a call.
    pub fn unasked_for(&mut self) -> Duration {
        let repeats = self.repeats.get_or_insert_default();
        repeats.unasked_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Saving the claim's volume is finished.
    pub fn saved(&mut self) {
        self.advance(Transition::Saved);
    }

    /// A live read found the PersistentVolume that was to be saved, and that it is being deleted: the claim is
    /// queued once it is gone. If its deletion was seen meanwhile, nothing changes.
    pub fn pv_terminating(&mut self, volume: &Volume, identity: &ProvisionerIdentity) {
        if self.known.unsaved().is_some_and(|it| it.seen != Seen::Gone) {
            self.volume_found(volume, identity);
            self.pv.is_awaited_gone = true;
        }
    }

    /// The volume with this handle was not saved, and may have been deleted together with another
    /// PersistentVolume: the driver is asked again after a live look-up.
    pub fn pv_gone(&mut self, handle: &str) {
        self.known.required.require();
        self.advance(Transition::PvGone(handle));
    }

    /// This process is about to write the record: a record that is seen from now on is known.
    pub fn record_write_started(&mut self) {
        self.known.is_record_known = true;
    }

    /// The claim is queued once the PersistentVolume that stands in its way, or that is being deleted, is gone.
    pub fn await_pv_gone(&mut self) {
        self.pv.is_awaited_gone = true;
    }

    /// This process is about to let go of the claim's PersistentVolume, which somebody deleted before the claim was
    /// bound to it. The claim is queued once it is gone. Returns false if the claim would get another volume, as it
    /// was made under another name.
    pub fn let_go(&mut self, volume: &Volume) -> bool {
        let is_named = self.known.volume_name.as_deref() == Some(volume.name());
        // If not, the claim has seen it go.
        if is_named && self.has_pv() && self.pv.uid == Some(hash(volume.uid())) {
            self.pv.let_go = Some(volume.source_id().into());
            self.await_pv_gone();
        }
        is_named
    }

    /// The record was written or, with `None`, removed.
    pub fn record_written(&mut self, status: Option<RecordStatus>) {
        self.known.record_status = status.map(Arc::new);
    }

    /// The class of the claim is another provisioner's: the record is void.
    pub fn record_void(&mut self) {
        self.known.void();
        // With its class back the record counts again, and the live read finds it.
        self.known.required.require();
    }
}
