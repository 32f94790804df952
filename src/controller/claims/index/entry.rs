//! The entry of one claim in the index.

use std::{collections::BTreeSet, sync::Arc};

use tokio::time::{Duration, Instant};

use super::{Existence, Verification};
use crate::{
    controller::{
        claims::{
            call_record::{Record, RecordStatus},
            state::{ClaimState, Demand, Next},
        },
        events::EVENT_LASTS,
        ownership::PROVISIONED_BY,
        provisioner::ProvisionRequest,
    },
    kube::objects::{Claim, View as _, Volume},
    mutations,
    mutations::Mutation,
};

/// What the index knows of one claim. Optional large fields are boxed: most claims lack them.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not the states of one thing
pub(super) struct Entry {
    /// The newest version of the claim. It is kept after the claim is gone while a call is open.
    pub(super) claim: Arc<Claim>,
    /// Why the claim is kept.
    pub(super) interest: Interest,
    /// What the finalizer and the record on the claim mean.
    pub(super) record_status: Option<Box<RecordStatus>>,
    /// Whether this process has written the record, has tried to, or follows it.
    pub(super) record_is_known: bool,
    /// Whether the API server has confirmed the record of an open call to this process, and no later
    /// write of this process may have removed it.
    pub(super) record_is_confirmed: bool,
    /// The node that is gone and whose call for the claim this process follows.
    pub(super) adopted: Option<Box<str>>,
    /// Whether a PersistentVolume for the claim was seen that a provisioner has made, which closes
    /// its call.
    pub(super) has_provisioned_pv: bool,
    /// Whether it was reported that the record is void.
    pub(super) void_is_reported: bool,
    /// Whether it was reported that the claim was released while its call was open.
    pub(super) release_is_reported: bool,
    /// Since when the recorded request cannot be repeated.
    pub(super) unrepeatable_since: Option<Instant>,
    /// When this process first saw that the claim is being deleted.
    pub(super) terminating_since: Option<Instant>,
    pub(super) state: ClaimState,
    /// The name of the claim's PersistentVolume.
    pub(super) volume_name: Option<String>,
    /// What must be read live before the next call, apart from what the name requires
    /// ([`Entry::verification`]).
    pub(super) verification: Verification,
    /// How often something required a verification. Live reads from before do not count.
    pub(super) verification_epoch: u32,
    /// The request of the open call, which is repeated unchanged (safety rule 4).
    pub(super) request: Option<Box<ProvisionRequest>>,
    /// The request of a call of unknown outcome that another volume of the claim has closed. To be
    /// reported.
    pub(super) superseded: Option<Box<ProvisionRequest>>,
    /// How often in a row the open call was repeated.
    pub(super) polls: u32,
    /// The kinds of unknown outcomes of which the user was warned since the call was opened.
    pub(super) warned: BTreeSet<&'static str>,
    /// What the claim waits for, apart from the driver.
    pub(super) obstacle: Option<Obstacle>,
    /// Whether the newest list of PersistentVolumes, or an event since, contained the claim's.
    pub(super) is_pv_listed: bool,
    pub(super) existence: Existence,
    /// What to do when the claim's PersistentVolume is gone.
    pub(super) on_pv_gone: OnPvGone,
    /// When the claim was added to the index.
    pub(super) known_since: Option<Instant>,
    /// Whether only the resync has queued the claim.
    pub(super) resynced: bool,
}

/// What happens to a claim when its PersistentVolume is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OnPvGone {
    /// Nothing: the next event of the claim or the resync queues it, as with external-provisioner.
    #[default]
    Nothing,
    /// The claim is queued: this process has removed its finalizer from the PersistentVolume for
    /// that.
    Requeue,
}

/// Why a claim that exists is kept in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Interest {
    /// It is not: it is bound, not ours, or gone.
    #[default]
    None,
    /// It is bound or not ours, and carries our finalizer.
    Protected,
    /// It is unbound and ours.
    Unbound,
}

/// Something that keeps a claim from getting its volume.
#[derive(Debug)]
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) since: Instant,
    /// When the user was last told.
    pub(super) reported: Option<Instant>,
    /// Whether a task is scheduled that reports it in time.
    pub(super) is_scheduled: bool,
}

impl Obstacle {
    pub(super) fn new(what: &str) -> Self {
        Self { what: what.to_owned(), since: Instant::now(), reported: None, is_scheduled: false }
    }

    /// Whether to report it now: once it has lasted for `patience`, and again before its event
    /// expires.
    pub(super) fn is_due(&self, patience: Duration) -> bool {
        match self.reported {
            None => self.since.elapsed() >= patience,
            Some(reported) => reported.elapsed() >= EVENT_LASTS,
        }
    }
}

impl Entry {
    /// Takes the present obstacle if it is `what`, else creates one that begins now.
    pub(super) fn take_obstacle(&mut self, what: &str) -> Obstacle {
        let same = self.obstacle.take().filter(|obstacle| obstacle.what == what);
        same.unwrap_or_else(|| Obstacle::new(what))
    }

    pub(super) fn demand(&self) -> Demand {
        if self.interest == Interest::Unbound && !self.claim.is_terminating() {
            Demand::Wanted
        } else {
            Demand::Withdrawn
        }
    }

    /// What must be read live before the next call. A name that holds only a part of the UID may be
    /// another claim's as well, and that claim may have got its volume since the last attempt. So
    /// such a name is looked up before each call, except before a repeat of an open call.
    pub(super) fn verification(&self) -> Verification {
        let whole = self.volume_name.as_ref().is_some_and(|name| name.contains(self.claim.uid()));
        let is_first = matches!(self.state, ClaimState::Waiting | ClaimState::Recorded);
        if is_first && !whole {
            self.verification.max(Verification::Volume)
        } else {
            self.verification
        }
    }

    /// Requires a verification. Live reads from before this do not satisfy it.
    pub(super) fn requires(&mut self, verification: Verification) {
        self.verification = self.verification.max(verification);
        self.verification_epoch = self.verification_epoch.wrapping_add(1);
    }

    /// Notes the end of an attempt. Returns `next` and how often in a row the open call was
    /// repeated.
    pub(super) fn after_attempt(&mut self, next: Next) -> (Next, u32) {
        if next == Next::Poll {
            self.polls = self.polls.saturating_add(1);
        } else {
            self.polls = 0;
            self.warned.clear();
            self.obstacle = None;
        }
        (next, self.polls)
    }

    /// Whether a call may start now: nothing must be verified first, and the claim is wanted or the
    /// call repeats an open one.
    pub(super) fn may_call(&self) -> bool {
        let asked_for = self.demand() == Demand::Wanted || self.state.is_open();
        self.state.may_call() && self.verification == Verification::None && asked_for
    }

    /// Whether the source of the volume is still needed: a call is open or will be made, or its
    /// volume could still be lost. A record stands for an open call, also before this process
    /// follows it.
    pub(super) fn needs_source(&self) -> bool {
        match self.state {
            ClaimState::Waiting => self.demand() == Demand::Wanted || self.may_have_open_call(),
            ClaimState::SuspectedLeak | ClaimState::Done => false,
            _ => true,
        }
    }

    /// Whether this process has a call open, or a record says that another one has.
    pub(super) fn may_have_open_call(&self) -> bool {
        let is_recorded = matches!(
            self.record_status.as_deref(),
            Some(RecordStatus::Open(_) | RecordStatus::Elsewhere(_))
        );
        self.state.is_open() || is_recorded
    }

    /// The record of an earlier process's call that this process must repeat.
    pub(super) fn recorded(&self) -> Option<Record> {
        match (&self.state, self.record_status.as_deref()) {
            (ClaimState::Recorded, Some(RecordStatus::Open(record))) => Some(record.clone()),
            _ => None,
        }
    }

    /// The record of another node's call, unless this process has a call open itself.
    pub(super) fn elsewhere(&self) -> Option<Record> {
        match self.record_status.as_deref() {
            Some(RecordStatus::Elsewhere(record)) if !self.state.is_open() => Some(record.clone()),
            _ => None,
        }
    }

    /// Follows the recorded call unless this process knows it already; stops following it if there
    /// is no record any more. Returns whether the state changed.
    pub(super) fn follow_record(&mut self) -> bool {
        let before = self.state.clone();
        match self.record_status.as_deref() {
            Some(RecordStatus::Open(_)) if !self.record_is_known => {
                self.record_is_known = true;
                self.requires(Verification::VolumeAndClaim);
                self.advance(ClaimState::record_found);
            }
            Some(RecordStatus::Open(_)) => {}
            _ => {
                self.advance(ClaimState::record_dropped);
                // A record that was followed until now and has become void is reported like any
                // other.
                self.record_is_known &= self.state == before;
            }
        }
        self.state != before
    }

    /// Nobody wants the volume on this node any more: a call of a gone node that was not repeated
    /// here yet is left to whichever process finds its record.
    pub(super) fn drop_adoption(&mut self) {
        if self.state == ClaimState::Recorded {
            self.adopted = None;
        }
    }

    /// Returns the record if it is void and that must be reported, which is once.
    pub(super) fn take_unfollowed(&mut self) -> Option<Record> {
        let Some(RecordStatus::Void(record)) = self.record_status.as_deref() else { return None };
        // A record that this process wrote is not unexpected, and a saved volume closes the call.
        let is_due = !self.record_is_known && !self.void_is_reported && !self.has_provisioned_pv;
        self.void_is_reported |= is_due;
        is_due.then(|| record.clone())
    }

    pub(super) fn advance(&mut self, transition: impl FnOnce(ClaimState) -> ClaimState) {
        self.state = transition(std::mem::take(&mut self.state));
    }

    /// A PersistentVolume for the claim was seen. `is_local`: each node has a driver of its own, so
    /// that a volume which this process has not saved says nothing about what its own call has
    /// made.
    pub(super) fn volume_found(&mut self, volume: &Volume, is_local: bool) {
        self.is_pv_listed = true;
        self.has_provisioned_pv |= self.is_made(volume);
        if self.is_served_by(volume) {
            let is_outcome_unknown = is_local && matches!(self.state, ClaimState::Background(_));
            self.advance(|state| state.volume_found(volume.source_id()));
            self.close(is_outcome_unknown);
        }
    }

    /// A live read found the claim bound to its own volume.
    pub(super) fn found_bound(&mut self) {
        let is_outcome_unknown = matches!(self.state, ClaimState::Background(_));
        self.advance(ClaimState::found_bound);
        self.close(is_outcome_unknown);
    }

    /// If the state became `Done` while the outcome of the call was unknown, keeps the request in
    /// order to report it.
    pub(super) fn close(&mut self, is_outcome_unknown: bool) {
        if is_outcome_unknown && self.state == ClaimState::Done {
            self.superseded = self.request.take();
        }
    }

    /// Whether the claim needs no PersistentVolume beside `volume`, which is for it. One that an
    /// admin made says nothing about the volume that an open call may have made.
    pub(super) fn is_served_by(&self, volume: &Volume) -> bool {
        let is_recorded = matches!(self.record_status.as_deref(), Some(RecordStatus::Open(_)));
        let may_be_open = self.state.awaits_answer() || is_recorded;
        self.is_made(volume) || !may_be_open
    }

    /// Whether a provisioner has made the PersistentVolume, which is for this claim.
    fn is_made(&self, volume: &Volume) -> bool {
        let is_named = self.volume_name.as_deref() == Some(volume.name());
        is_named || volume.annotation(PROVISIONED_BY).is_some()
    }

    /// The claim's PersistentVolume is gone. Returns whether to queue the claim.
    pub(super) fn pv_deleted(&mut self) -> bool {
        if !mutations::is_on(Mutation::DoneForgotten) {
            self.requires(Verification::VolumeAndClaim);
        }
        self.advance(ClaimState::pv_deleted);
        std::mem::take(&mut self.on_pv_gone) == OnPvGone::Requeue
    }
}
