//! The entry of one claim in the index, and how events of PersistentVolumes and records change it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{known::KnownClaim, reports::Reports};
use crate::{
    controller::{
        attempts::Attempts,
        claims::{
            record_status::RecordStatus,
            state::{ClaimState, Transition},
        },
        model::{
            finalizer,
            finalizer::{Due, due},
            request::ProvisionRequest,
            unsaved_volume::{Seen, UnsavedVolume},
        },
        ownership::{PROVISIONED_BY, ProvisionerIdentity},
    },
    kube::{
        informer::hash,
        objects::{View as _, Volume},
    },
};

/// What the index keeps of one claim.
#[derive(Debug, Default)]
pub struct Entry {
    /// What workers get.
    pub(super) known: KnownClaim,
    pub(super) pv: PvEvents,
    pub(super) reports: Reports,
    pub(super) attempts: Attempts,
    /// In a box, as most claims never have an open call that is repeated.
    pub(super) repeats: Option<Box<Repeats>>,
}

/// The repeats of a claim's open call.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// How often in a row the call was repeated.
    pub(super) in_a_row: u32,
    /// Since when the recorded request cannot be repeated.
    pub(super) unrepeatable_since: Option<Instant>,
    /// Since when nothing was sent for the claim.
    pub(super) unasked_since: Option<Instant>,
    /// The kinds of unknown outcomes of which the user was warned since the call was opened.
    pub(super) unknown_outcomes: BTreeSet<&'static str>,
}

/// The texts of the claim that changed last, to share them with the next one, which often fails for the same reason.
#[derive(Debug, Default)]
pub(super) struct LatestTexts {
    failure: Arc<str>,
    obstacle: Arc<str>,
}

/// What is known of the claim's PersistentVolume beside the state of the claim.
#[derive(Debug, Default)]
pub(super) struct PvEvents {
    /// The [`hash`] of its UID, once a list, an event or a live read has shown it.
    pub(super) uid: Option<u64>,
    /// Whether one was seen that a provisioner of our driver has made, which closes the claim's call.
    pub(super) is_provisioned: bool,
    /// Whether the claim is queued when it is gone: this process waits for that. Otherwise the next event of
    /// the claim or the resync queues it, as with external-provisioner.
    pub(super) is_awaited_gone: bool,
    /// The handle of its volume, from when this process begins to take our finalizer off so that the claim gets
    /// another one of the same volume (safety rule 13), until it is gone or is seen to keep the finalizer.
    pub(super) let_go: Option<Box<str>>,
}

impl Entry {
    /// An entry without a claim. `is_new`: this process has seen all events of the claim.
    pub(super) fn new(volume_name: Option<Arc<str>>, is_new: bool) -> Self {
        let known_since = Some(Instant::now());
        let mut known = KnownClaim { volume_name, known_since, ..Default::default() };
        if !is_new {
            known.required.require();
        }
        Self { known, ..Self::default() }
    }

    /// Shares the claim's texts with the claim that changed before it, where they are equal.
    pub(super) fn share_texts(&mut self, latest: &mut LatestTexts) {
        share(self.attempts.message(), &mut latest.failure);
        share(self.reports.obstacle_text(), &mut latest.obstacle);
    }

    /// Follows the recorded call unless this process knows it already; stops following it if there
    /// is no record any more. Returns whether the state changed.
    pub(super) fn follow_record(&mut self) -> bool {
        let known = &mut self.known;
        if known.open_record().is_none() {
            let was_followed = known.state == ClaimState::Recorded;
            known.advance(Transition::RecordDropped);
            // A record that was followed until now and has become void is reported like any other.
            known.is_record_known &= !was_followed;
            return was_followed;
        }
        if known.is_record_known {
            return false;
        }
        known.is_record_known = true;
        known.required.require();
        let before = known.state.clone();
        known.advance(Transition::RecordFound);
        known.state != before
    }

    /// Whether the void record on the claim must be reported. One that this process wrote is not
    /// unexpected.
    pub(super) fn has_unexpected_record(&self, status: Option<&RecordStatus>) -> bool {
        let is_void = matches!(status, Some(RecordStatus::Void(_)));
        is_void && !self.known.is_record_known && !self.reports.void_record
    }

    /// The claim waits for `what`. Returns for how long it has, and whether to report that now: once it has lasted
    /// for `patience`, and again before its event expires. Like the other reports, it is assumed to be made.
    pub fn blocked(&mut self, what: &str, patience: Duration) -> (Duration, bool) {
        (self.blocked_for(what), self.reports.obstacle(what).take_report(patience))
    }

    /// Whether to warn of this kind of unknown outcome: once while the call is open.
    pub fn report_unknown_outcome(&mut self, kind: &'static str) -> bool {
        self.repeats.get_or_insert_default().unknown_outcomes.insert(kind)
    }

    /// Whether to report, once, that the record on the claim is void.
    pub fn report_void_record(&mut self) -> bool {
        let status = self.known.record_status.as_deref();
        // A saved volume closes the call.
        let is_due = self.has_unexpected_record(status) && !self.pv.is_provisioned;
        self.reports.void_record |= is_due;
        is_due
    }

    /// Whether to report, once, that the record of another driver holds the deleted claim.
    pub fn report_other_driver(&mut self) -> bool {
        !std::mem::replace(&mut self.reports.other_driver, true)
    }

    /// Whether to report, once, that the claim was released, or may have been, while its call was open.
    pub fn report_release(&mut self) -> bool {
        !std::mem::replace(&mut self.reports.release, true)
    }

    /// The request of unknown outcome that another volume has closed, to be reported once.
    pub fn take_superseded(&mut self) -> Option<Arc<ProvisionRequest>> {
        self.known.superseded.take()
    }

    /// A PersistentVolume for the claim was seen.
    pub(super) fn volume_found(&mut self, volume: &Volume, identity: &ProvisionerIdentity) {
        self.pv.uid = Some(hash(volume.uid()));
        if volume.has_finalizer(finalizer::PROTECTION) && due(volume) != Due::UnprotectUnbound {
            self.pv.let_go = None;
        }
        self.pv.is_provisioned |=
            volume.annotation(PROVISIONED_BY).is_some() && identity.owns_volume(volume);
        if self.known.is_served_by(volume) {
            let is_background = matches!(self.known.state, ClaimState::Background(_));
            self.known.advance(Transition::PvFound(volume.source_id()));
            self.supersede(is_background && self.may_be_of_another_call(identity));
        }
    }

    /// Whether the claim's PersistentVolume may have another volume than the one that a call of this
    /// process has made: an admin or another driver's provisioner made it, or each node has a driver of its own.
    pub(super) fn may_be_of_another_call(&self, identity: &ProvisionerIdentity) -> bool {
        identity.node.is_some() || !self.pv.is_provisioned
    }

    /// If the claim got its volume while the outcome of the call was unknown, keeps the request in
    /// order to report it.
    pub(super) fn supersede(&mut self, is_outcome_unknown: bool) {
        if is_outcome_unknown && self.known.state == ClaimState::Done {
            self.known.superseded = self.known.request.take();
        }
    }

    /// Whether the claim's PersistentVolume was there when it was last seen.
    pub(super) fn has_pv(&self) -> bool {
        match &self.known.state {
            ClaimState::InFlight { has_pv, .. } => *has_pv,
            ClaimState::Saving(unsaved) => unsaved.seen == Seen::Exists,
            state => *state == ClaimState::Done,
        }
    }

    /// Changes the volume that waits to be saved, if there is one.
    pub(in crate::controller::claims) fn update_unsaved(
        &mut self,
        change: impl FnOnce(&mut UnsavedVolume),
    ) {
        if let ClaimState::Saving(unsaved) = &mut self.known.state {
            change(Arc::make_mut(unsaved));
        }
    }

    /// This PersistentVolume has the claim's name and is not for the claim, or no longer: somebody has changed its
    /// `claimRef`.
    pub(super) fn name_taken(&mut self, volume: &Volume) {
        self.known.required.require();
        if self.pv.uid == Some(hash(volume.uid())) {
            self.pv.let_go = None;
            self.known.advance(Transition::PvDeleted);
        }
    }

    /// The claim's PersistentVolume is gone. Returns whether to queue the claim.
    pub(super) fn pv_deleted(&mut self) -> bool {
        self.known.required.require();
        if let Some(handle) = self.pv.let_go.take() {
            self.known.advance(Transition::PvLetGo(&handle));
        }
        self.known.advance(Transition::PvDeleted);
        std::mem::take(&mut self.pv.is_awaited_gone)
    }
}

/// Makes `text` the same as `latest` if both are equal, otherwise `latest` the same as `text`.
fn share<T: PartialEq + Clone>(text: Option<&mut T>, latest: &mut T) {
    match text {
        Some(text) if text == latest => text.clone_from(latest),
        Some(text) => latest.clone_from(text),
        None => {}
    }
}
