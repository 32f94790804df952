//! What is known of one claim, and what follows from it: pure functions.
//!
//! The index keeps a [`KnownClaim`] of each claim, and gives workers copies of it, which are cheap: a plan is made
//! of one, while events go on changing the index.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::{
    controller::{
        claims::{
            record_status::RecordStatus,
            state::{ClaimState, Demand, Transition},
        },
        model::{record::Record, unsaved_volume::UnsavedVolume, unusable_volume::UnusableVolume},
        provisioner::{Next, Outcome, ProvisionRequest},
    },
    kube::objects::{Claim, View as _, Volume},
    metrics::Census,
};

/// What the index knows of one claim.
#[derive(Debug, Clone, Default)]
pub struct KnownClaim {
    /// The newest version of the claim. It is kept after the claim is gone while a call is open.
    pub claim: Arc<Claim>,
    /// Whether the claim is gone. One that only our own finalizer keeps counts as gone.
    pub is_gone: bool,
    /// Why the claim is kept.
    pub interest: Interest,
    /// The name of the claim's PersistentVolume. `None`: no name can be made of its UID.
    pub volume_name: Option<Arc<str>>,
    /// The state of the claim's volume.
    pub state: ClaimState,
    /// The request of the call that this process has open, which is repeated unchanged (safety rule
    /// 4).
    pub request: Option<Arc<ProvisionRequest>>,
    /// The request of a call of unknown outcome that another volume of the claim has closed. To be
    /// reported.
    pub superseded: Option<Arc<ProvisionRequest>>,
    /// The live reads that are required, apart from those that the name requires
    /// ([`KnownClaim::must_verify`]).
    pub required: Required,
    /// What the finalizer and the record on the claim mean. `None`: there are none, or not ours.
    pub record_status: Option<Arc<RecordStatus>>,
    /// Whether this process has written the record on the claim, has tried to, or follows it. If not, another
    /// process has written the record.
    pub is_record_known: bool,
    /// When this process first saw that the claim is being deleted.
    pub terminating_since: Option<Instant>,
    /// When the claim was added to the index.
    pub known_since: Option<Instant>,
}

/// Why a claim that exists is kept in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interest {
    /// It is not: it is bound, not ours, or gone.
    #[default]
    None,
    /// It is bound or not ours, and carries our finalizer.
    Protected,
    /// It is unbound and ours.
    Unbound,
}

/// How often live reads were required before the next call for a claim (safety rule 6): of whether it has a
/// PersistentVolume already, and whether it is still unbound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Required {
    /// How often something required them.
    asked: u32,
    /// The value of `asked` when the latest finished reads began.
    done: u32,
}

impl Required {
    /// Requires live reads. Those from before this do not count.
    pub(super) fn require(&mut self) {
        self.asked = self.asked.wrapping_add(1);
    }

    /// The live reads that were required at the time of `then` are done. Returns false if others are
    /// required since.
    pub(super) fn satisfy(&mut self, then: Self) -> bool {
        self.done = then.asked;
        !self.is_due()
    }

    fn is_due(self) -> bool {
        self.asked != self.done
    }
}

impl KnownClaim {
    /// The key of the lock under which one worker at a time works for the claim: the name of its
    /// PersistentVolume, or its UID if no name can be made of it.
    pub fn key(&self) -> &str {
        self.volume_name.as_deref().unwrap_or_else(|| self.claim.uid())
    }

    /// Whether anybody still wants the claim's volume.
    pub fn demand(&self) -> Demand {
        if self.is_wanted() { Demand::Wanted } else { Demand::Withdrawn }
    }

    /// Whether the claim is unbound, not being deleted, and ours.
    pub fn is_wanted(&self) -> bool {
        self.interest == Interest::Unbound && !self.claim.is_terminating()
    }

    /// Whether the claim is being deleted or gone, so that nobody can use its volume.
    pub fn is_gone_or_terminating(&self) -> bool {
        self.is_gone || self.claim.is_terminating()
    }

    /// Whether the claim is deleted or bound.
    pub fn is_gone_or_bound(&self) -> bool {
        self.is_gone || !self.claim.is_unbound()
    }

    /// Whether the claim must be verified by live reads before the next call. A name that holds only a part of
    /// the UID may be another claim's as well, and that claim may have got its volume since the last attempt.
    /// So such a claim is verified before each call, except before a repeat of an open call.
    pub fn must_verify(&self) -> bool {
        let is_whole =
            self.volume_name.as_ref().is_some_and(|name| name.contains(self.claim.uid()));
        let is_first = matches!(self.state, ClaimState::Waiting | ClaimState::Recorded);
        self.required.is_due() || is_first && !is_whole
    }

    /// Whether a call may start now: nothing must be verified first, and the claim is wanted or the
    /// call repeats an open one.
    pub(super) fn may_start_call(&self) -> bool {
        let is_due = self.is_wanted() || self.state.is_open();
        self.state.may_call() && !self.required.is_due() && is_due
    }

    /// Whether the source of the volume is still needed: a call is open or will be made, or its
    /// volume could still be lost. A record stands for an open call, also before this process
    /// follows it.
    pub fn needs_source(&self) -> bool {
        match self.state {
            ClaimState::Waiting => self.is_wanted() || self.may_have_open_call(),
            ClaimState::SuspectedLeak | ClaimState::Done => false,
            _ => true,
        }
    }

    /// Whether the claim has or had its PersistentVolume.
    pub fn is_served(&self) -> bool {
        self.state == ClaimState::Done
    }

    /// Whether this process has a call open, or a record says that another one has.
    pub fn may_have_open_call(&self) -> bool {
        use RecordStatus::{Elsewhere, Open};
        let is_recorded = matches!(self.record_status.as_deref(), Some(Open(_) | Elsewhere(_)));
        self.state.is_open() || is_recorded
    }

    /// Whether the index keeps the claim: it is ours, or a call is open or to be reported.
    pub(super) fn is_kept(&self) -> bool {
        self.interest != Interest::None || self.superseded.is_some() || self.state.is_open()
    }

    /// Whether the claim carries our finalizer.
    pub fn is_protected(&self) -> bool {
        self.record_status.is_some()
    }

    /// The record of the call that the claim carries, if it counts.
    pub fn open_record(&self) -> Option<&Record> {
        match self.record_status.as_deref() {
            Some(RecordStatus::Open(record)) => Some(record),
            _ => None,
        }
    }

    /// The record on the claim, if it is void.
    pub fn void_record(&self) -> Option<&Record> {
        match self.record_status.as_deref() {
            Some(RecordStatus::Void(record)) => Some(record),
            _ => None,
        }
    }

    /// The record of a call that an earlier process left open and that this process has not
    /// repeated yet.
    pub fn recorded(&self) -> Option<&Record> {
        self.open_record().filter(|_| self.state == ClaimState::Recorded)
    }

    /// The record of a call of another node's process, unless this process has a call open itself.
    pub fn elsewhere(&self) -> Option<&Record> {
        match self.record_status.as_deref() {
            Some(RecordStatus::Elsewhere(record)) if !self.state.is_open() => Some(record),
            _ => None,
        }
    }

    /// The class of the claim is another provisioner's: its record is void.
    pub fn void(&mut self) {
        if let Some(record) = self.open_record() {
            self.record_status = Some(Arc::new(RecordStatus::void(record.clone())));
        }
        self.is_record_known = false;
        self.advance(Transition::RecordDropped);
    }

    pub(super) fn advance(&mut self, transition: Transition<'_>) {
        self.state = std::mem::take(&mut self.state).on(transition);
    }

    /// An attempt ended with `outcome`. Returns what to do next.
    pub(super) fn after(&mut self, outcome: &Outcome) -> Next {
        let demand = self.demand();
        let (state, next) = std::mem::take(&mut self.state).after(outcome, demand, Instant::now());
        self.state = state;
        next
    }

    /// Whether the claim needs no PersistentVolume beside `volume`, which is for it. One that an
    /// admin made, or freed for this claim, says nothing about the volume that an open call may have made, except
    /// under the name of that volume: it may be for the very volume.
    pub fn is_served_by(&self, volume: &Volume) -> bool {
        let may_be_open = self.state.awaits_answer() || self.open_record().is_some();
        let is_named = self.volume_name.as_deref() == Some(volume.name());
        is_named || !may_be_open
    }

    /// The unusable volume that the call made. It must be removed before the next call.
    pub fn unusable(&self) -> Option<&UnusableVolume> {
        match &self.state {
            ClaimState::Unusable(unusable) => Some(unusable),
            _ => None,
        }
    }

    /// The handle of a volume that may have been deleted together with another claim's
    /// PersistentVolume.
    pub fn pv_gone(&self) -> Option<&str> {
        match &self.state {
            ClaimState::PvGone(handle) => Some(handle),
            _ => None,
        }
    }

    /// The volume that waits to be saved.
    pub fn unsaved(&self) -> Option<&UnsavedVolume> {
        match &self.state {
            ClaimState::Saving(unsaved) => Some(unsaved),
            _ => None,
        }
    }

    /// For how long this process has seen the claim being deleted.
    pub fn terminating_for(&self) -> Duration {
        self.terminating_since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// How long ago the claim was added to the index.
    pub fn age(&self) -> Duration {
        self.known_since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Whether the claim has waited too long for its volume. A claim that is being deleted waits for
    /// none.
    pub(super) fn is_overdue(&self) -> bool {
        let is_ending = self.is_gone || self.terminating_since.is_some();
        !is_ending && self.age() > Census::OVERDUE_AFTER
    }
}
