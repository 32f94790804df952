//! The durable record of an open call: a finalizer and an annotation on the claim.
//!
//! What one process leaves open, the next one finds on the claim, which the finalizer keeps from
//! vanishing. This module decides when to write the record, when to remove it and when to give up a
//! call whose outcome stays unknown (`--claim-protection-timeout`), and reports calls that are
//! given up.
//!
//! * Except with `--claim-protection=always`, nothing is written for a claim whose calls all end.
//! * Except with `always`, a record that cannot be written is reported and does not prevent a call.
//!
//! [`Record`] is the content of the annotation. [`record_status`] decides what a record means, and
//! edits claims.

use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::time::{Duration, sleep};

use super::{
    index::{ClaimGuard, Entry, KnownClaim},
    record_status,
    record_status::{FINALIZER, RECORD, RecordStatus},
    state::{ClaimState, Transition},
    worker::ClaimWorker,
};
use crate::{
    controller::{
        model::record::{Record, digest},
        provisioner::{NotPrepared, ProvisionRequest, Provisioner},
    },
    flags::ClaimProtection,
    kube::{
        ApiError, Edit, Edited, Name,
        objects::{Claim, View as _},
    },
    metrics::SuspectedLeak,
    source_protection::is_overdue,
};

/// How open calls are recorded.
#[derive(Debug, Clone, Copy)]
pub struct RecordSettings {
    /// `--claim-protection`.
    pub mode: ClaimProtection,
    /// `--claim-protection-timeout`: how long a deleted claim is kept. `None`: for ever.
    pub timeout: Option<Duration>,
}

/// What to do with the record of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Nothing.
    Nothing,
    /// Write the finalizer and the record of the open request.
    Write,
    /// Remove the finalizer and the record.
    Remove,
    /// The claim, or the source of its volume, was kept for long enough: remove the record although
    /// the call is open.
    GiveUp,
}

/// How often the record of a call that is about to be cut is tried to be written.
const LAST_TRIES: usize = 5;
/// The wait between two of these tries.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Decides what to do with the record of a claim. `overdue`: the claim has been deleted for longer
/// than it is kept. `current`: its record is of the open request.
fn due(mode: ClaimProtection, claim: &KnownClaim, overdue: bool, current: bool) -> Due {
    let wanted = claim.is_wanted();
    // An open call keeps its source, and so the namespace of the source, as a record does.
    let copies = claim.request.as_ref().is_some_and(|request| request.source.is_some());
    if claim.state.is_open() {
        let lacks = claim.request.is_some() && !current;
        let is_kept = claim.is_protected() || copies && claim.state.is_outcome_unknown();
        return match overdue && is_kept {
            true => Due::GiveUp,
            false if wanted && mode != ClaimProtection::Off && lacks => Due::Write,
            false => Due::Nothing,
        };
    }
    match claim.record_status.as_deref() {
        None | Some(RecordStatus::Elsewhere(_)) => Due::Nothing,
        // A void record is removed once the claim is bound or being deleted.
        Some(RecordStatus::Void(_)) if !claim.is_record_known && !is_over(&claim.claim) => {
            Due::Nothing
        }
        // The claim is about to be bound.
        Some(_) if wanted && mode == ClaimProtection::Always && claim.state == ClaimState::Done => {
            Due::Nothing
        }
        Some(_) => Due::Remove,
    }
}

/// Whether nobody will provision for the claim any more, as it is bound or being deleted.
fn is_over(claim: &Claim) -> bool {
    claim.is_terminating() || !claim.is_unbound()
}

/// Why a claim is not protected by a record.
#[derive(Debug, thiserror::Error)]
pub enum NotProtected {
    /// The claim is gone, bound, being deleted or for another node.
    #[error("the claim is gone, bound, being deleted or for another node")]
    Unwanted,
    /// The claim carries the record of an open call of another driver.
    #[error("the claim carries the record of an open call of another driver")]
    Taken,
    /// The process of another node has a call open for the claim.
    #[error("a CreateVolume that was made for the claim on node {0:?} may still run")]
    Elsewhere(String),
    /// The record would be too long.
    #[error(
        "the record of the request is longer than {} bytes",
        super::super::model::record::MAX_BYTES
    )]
    TooLong,
    /// The API server refused the write.
    #[error("cannot put the finalizer {FINALIZER} on the claim: {0}")]
    Refused(#[from] ApiError),
}

/// What has come of taking finalizer and record off a claim.
pub(super) struct Release {
    /// Whether they are off.
    pub(super) is_done: bool,
    /// Whether the write of this process has removed them, or may have: then it reports a call that was open.
    pub(super) is_ours: bool,
}

impl<P: Provisioner> ClaimWorker<P> {
    /// With `always`, writes the record before the call.
    ///
    /// # Errors
    /// The call must not be made: with `always`, no call is made without a record.
    pub(super) async fn protect_before_call(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
    ) -> Result<(), NotProtected> {
        if self.deps.settings.open_calls.mode != ClaimProtection::Always
            || !held.is(KnownClaim::is_wanted)
        {
            return Ok(());
        }
        match self.write_record(held, request).await {
            // Another driver's record is no obstacle, and a claim can carry only one.
            Err(NotProtected::Taken) => {
                self.warn_unprotected(&NotProtected::Taken);
                Ok(())
            }
            result => result,
        }
    }

    /// Writes the record of a call that will outlast the process. The claim will not be worked on
    /// again, so failures are retried at once.
    pub(super) async fn protect_before_exit(&self, held: &ClaimGuard, request: &ProvisionRequest) {
        for _ in 1..LAST_TRIES {
            if self.protect(held, request).await {
                return;
            }
            sleep(LAST_WAIT).await;
        }
        self.protect(held, request).await;
    }

    /// Writes the record if the mode wants one. A failure is logged, and the next sync of the claim
    /// tries again. Returns false if another try may succeed.
    pub(super) async fn protect(&self, held: &ClaimGuard, request: &ProvisionRequest) -> bool {
        let owed = self.deps.settings.open_calls.mode != ClaimProtection::Off
            && held.is(KnownClaim::is_wanted);
        if !owed {
            return true;
        }
        let written = self.write_record(held, request).await;
        let over = !matches!(written, Err(NotProtected::Refused(_)));
        match written {
            Ok(()) => {}
            Err(NotProtected::Unwanted) => tracing::debug!("too late to protect the claim"),
            Err(error) => self.warn_unprotected(&error),
        }
        over
    }

    fn warn_unprotected(&self, error: &NotProtected) {
        if self.is_warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "an open call is not protected");
        } else {
            tracing::warn!(
                %error,
                "An open call is not protected: if its claim is deleted while no replica runs, its volume may be left at the driver. Logged once"
            );
        }
    }

    /// Writes or removes the record as needed. Returns false if that must be tried again, which is in another
    /// turn.
    pub(super) async fn reconcile_record(&self, held: &ClaimGuard) -> bool {
        if held.has_failed_to_record() {
            return false;
        }
        let is_reconciled = self.try_to_reconcile(held).await;
        if !is_reconciled {
            held.failed_to_record();
        }
        is_reconciled
    }

    async fn try_to_reconcile(&self, held: &ClaimGuard) -> bool {
        let Some(known) = held.known() else { return true };
        let current = self.is_current(&known);
        match due(self.deps.settings.open_calls.mode, &known, self.is_overdue(&known), current) {
            Due::Nothing => true,
            Due::Write => match &known.request {
                Some(request) => self.protect(held, request).await,
                None => true,
            },
            Due::Remove => {
                let identity = &self.deps.identity;
                let remove = |object: &mut Value| record_status::remove_own(object, identity);
                self.release(held, &known.claim, remove).await.is_done
            }
            Due::GiveUp => self.give_up(held, &known).await,
        }
    }

    fn is_current(&self, known: &KnownClaim) -> bool {
        match (known.open_record(), &known.request) {
            (Some(record), Some(request)) => {
                let mut current = self.record(request);
                // As the node was given back, the record names no place: the next request may be for another.
                if known.state.accepts_changes() && record.topology.is_none() {
                    current.topology = None;
                }
                *record == current
            }
            _ => false,
        }
    }

    /// Whether the claim has been deleted for longer than it is kept.
    pub(super) fn is_overdue(&self, known: &KnownClaim) -> bool {
        let deleted = known.claim.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let seen = known.terminating_for();
        is_overdue(deleted, seen, self.deps.clock.wall(), self.deps.settings.open_calls.timeout)
    }

    /// The digest of the request.
    pub(super) fn digest(&self, request: &ProvisionRequest) -> String {
        digest(request, &self.deps.provisioner.secret_names(request))
    }

    fn record(&self, request: &ProvisionRequest) -> Record {
        Record::of(request, &self.deps.identity, self.digest(request))
    }

    async fn write_record(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
    ) -> Result<(), NotProtected> {
        let record = self.record(request);
        let text = record.encode().ok_or(NotProtected::TooLong)?;
        let identity = &self.deps.identity;
        // Nothing is open yet, so another node that was selected meanwhile provisions for the claim.
        let is_first = !held.is(|known| known.state.is_open());
        let mut is_moved = false;
        let add_record = |object: &mut Value| {
            is_moved = is_first && record_status::is_for_other_node(object, identity);
            let edit =
                if is_moved { Edit::Nothing } else { record_status::add(object, identity, &text) };
            if edit == Edit::Write {
                held.update(Entry::record_write_started);
            }
            edit
        };
        let live = match self.edit(held, &request.claim, add_record).await? {
            Edited::Written(live) | Edited::Unchanged(live) => live,
            Edited::Gone => return Err(NotProtected::Unwanted),
        };
        match record_status::read(&live) {
            _ if is_moved || is_over(&live) => Err(NotProtected::Unwanted),
            Some(written) if written == record => {
                let status = Some(RecordStatus::Open(record));
                held.update(|it| it.record_written(status));
                Ok(())
            }
            Some(other) if other.is_of_other_node(identity) => {
                Err(NotProtected::Elsewhere(other.printable_node().to_owned()))
            }
            _ => Err(NotProtected::Taken),
        }
    }

    async fn edit(
        &self,
        held: &ClaimGuard,
        claim: &Claim,
        edit: impl FnMut(&mut Value) -> Edit,
    ) -> Result<Edited<Claim>, ApiError> {
        let name = Name::namespaced(claim.namespace(), claim.name())?;
        self.deps.client.edit::<Claim>(name, held.uid(), edit).await
    }

    /// Releases a deleted claim although its call is open.
    async fn give_up(&self, held: &ClaimGuard, known: &KnownClaim) -> bool {
        let identity = &self.deps.identity;
        let remove = |object: &mut Value| record_status::remove_own(object, identity);
        let Release { is_done, is_ours } = self.release(held, &known.claim, remove).await;
        let is_due = is_ours || is_done && !known.is_protected();
        if is_due && held.update(Entry::report_release).unwrap_or(true) {
            let volume = known.volume_name.as_deref().unwrap_or_default();
            self.suspect_timeout(&known.claim, volume);
        }
        if is_done {
            held.update(|it| it.advance(Transition::GivenUp));
        }
        is_done
    }

    /// Removes finalizer and record by the edit `remove`.
    pub(super) async fn release(
        &self,
        held: &ClaimGuard,
        claim: &Claim,
        remove: impl Fn(&mut Value) -> Edit,
    ) -> Release {
        let mut is_sent = false;
        let noted = |object: &mut Value| {
            let edit = remove(object);
            is_sent |= edit == Edit::Write;
            edit
        };
        match self.edit(held, claim, noted).await {
            Ok(edited) => {
                held.update(|it| it.record_written(None));
                Release { is_done: true, is_ours: matches!(edited, Edited::Written(_)) }
            }
            Err(error) => {
                let why = format!("cannot take the finalizer {FINALIZER} off the claim: {error}");
                tracing::warn!("{why}");
                self.blocked(claim, &why, &why, Duration::ZERO);
                Release { is_done: false, is_ours: is_sent && error.is_unclear() }
            }
        }
    }

    pub(super) fn suspect_timeout(&self, claim: &Claim, volume: &str) {
        let why = format!(
            "the claim was deleted, and how its CreateVolume ended could not be found out within --claim-protection-timeout: the volume {volume:?} may be left at the driver"
        );
        self.suspect(claim, SuspectedLeak::PROTECTION_TIMEOUT, &why);
    }

    /// Reports, once, a suspected leak: the claim has a volume that this process has not saved, and the
    /// outcome of its own call is unknown.
    pub(super) fn report_superseded(&self, held: &ClaimGuard) {
        let Some(Some(request)) = held.update(Entry::take_superseded) else { return };
        let why = format!(
            "the claim has a volume from elsewhere, and how a CreateVolume for it ended is not known: should that have made the volume {:?}, it is left at the driver",
            request.name()
        );
        self.suspect(&request.claim, SuspectedLeak::SUPERSEDED, &why);
    }

    /// Gives up a recorded call that cannot be repeated, once that has lasted for
    /// `--claim-protection-timeout`, and reports a suspected leak. The claim is provisioned as a new one.
    pub(super) fn give_up_unrepeatable(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
        why: &NotPrepared,
    ) {
        let is_stuck = matches!(why, NotPrepared::Unrepeatable(_) | NotPrepared::Reschedule(_));
        if !is_stuck || !held.is(|known| known.state == ClaimState::Recorded) {
            return;
        }
        let waited = held.update(Entry::unrepeatable_for).unwrap_or_default();
        let is_too_long =
            self.deps.settings.open_calls.timeout.is_some_and(|timeout| waited >= timeout);
        if !is_too_long || !held.is(KnownClaim::is_wanted) {
            return;
        }
        let why = format!(
            "where an earlier CreateVolume asked for the volume {:?} cannot be asked for within --claim-protection-timeout: it is asked for elsewhere, and one there may be left at the driver",
            request.name()
        );
        self.suspect(&request.claim, SuspectedLeak::TOPOLOGY, &why);
        held.update(|it| it.advance(Transition::RecordDropped));
    }

    /// Reports, once, a record on the claim that is void: the volume that it names may be left at the driver.
    pub(super) fn report_void_record(&self, held: &ClaimGuard) {
        let Some(known) = held.known() else { return };
        let Some(record) = known.void_record() else { return };
        if held.update(Entry::report_void_record) != Some(true) {
            return;
        }
        let volume = record.printable_volume();
        tracing::warn!(
            volume,
            "a record of an open call is not followed: it does not follow from the claim, its class and the flags of this process"
        );
        self.deps.metrics.controller.unfollowed_record();
        let named = if volume.is_empty() { String::new() } else { format!(" {volume:?}") };
        let why = format!(
            "the annotation {RECORD} is not followed, as it does not fit the claim, its class and the provisioner's flags: if a CreateVolume was made with it, the volume{named} may be left at the driver"
        );
        self.deps.events.blocked(&known.claim, &why);
    }
}

#[cfg(test)]
mod tests;
