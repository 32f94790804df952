//! What is known of one claim in work.

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

/// One claim in work.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not the states of one thing
pub(super) struct Entry {
    /// As last seen; kept when the claim is gone, for as long as something is open.
    pub(super) claim: Arc<Claim>,
    /// Whether the claim is still of interest.
    pub(super) interest: Interest,
    /// The mark of an open call that it carries; boxed, as most carry none.
    pub(super) mark: Option<Box<RecordStatus>>,
    /// Whether a mark that is seen on it is known: this process has put one on it, or tried to, or has
    /// taken up the record of another's call.
    pub(super) mark_is_known: bool,
    /// The API server has confirmed the record of an open call to this process, and none of its later
    /// writes may have taken that off.
    pub(super) record_is_confirmed: bool,
    /// The node that is gone, whose call for it is followed here.
    pub(super) adopted: Option<Box<str>>,
    /// Whether a PersistentVolume that a provisioner has made for it was seen: its call is closed.
    pub(super) made_is_seen: bool,
    /// Whether it was reported that its record is not followed.
    pub(super) void_is_reported: bool,
    /// Whether it was reported that the claim was let go, or may have been.
    pub(super) letting_go_is_reported: bool,
    /// Since when what its record says cannot be asked for.
    pub(super) unrepeatable: Option<Instant>,
    /// When it was first seen to be deleted.
    pub(super) deleted: Option<Instant>,
    pub(super) state: ClaimState,
    /// The name of its PersistentVolume.
    pub(super) volume_name: Option<String>,
    /// What is to be read live, beside what its name asks for.
    pub(super) verification: Verification,
    /// How often something has put it in doubt: what was looked up before tells nothing of that.
    pub(super) doubted: u32,
    /// What was asked for, while a call is open: it is asked for again (safety rule 4). Boxed
    /// like the mark.
    pub(super) order: Option<Box<ProvisionRequest>>,
    /// What was asked for in a call that another volume of the claim's has closed: to be reported.
    pub(super) superseded: Option<Box<ProvisionRequest>>,
    /// How often in a row the open call was asked after.
    pub(super) polls: u32,
    /// Of which kinds of unknown end its user was warned since then.
    pub(super) warned: BTreeSet<&'static str>,
    /// What it waits for beside the driver.
    pub(super) obstacle: Option<Obstacle>,
    /// Whether the newest list of PersistentVolumes, or what came after it, showed the claim's.
    pub(super) shown: bool,
    pub(super) existence: Existence,
    /// What the end of its PersistentVolume asks for.
    pub(super) once_gone: OnceGone,
    /// When the claim was first seen.
    pub(super) since: Option<Instant>,
    /// Whether the audit queued it when nothing else had.
    pub(super) resynced: bool,
}

/// What becomes of a claim when its PersistentVolume is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OnceGone {
    /// Its next event or the audit brings it back, as in the original.
    #[default]
    Rests,
    /// It asks anew: the PersistentVolume was let go of for that.
    Returns,
}

/// Why a claim that is there is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Interest {
    /// It is not, or it is gone.
    #[default]
    None,
    /// It is bound or not ours, but carries our mark of an open call.
    Marked,
    /// It is unbound and ours to provision for.
    Unbound,
}

/// What keeps a claim from its volume.
#[derive(Debug)]
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) since: Instant,
    /// When the claim's user was last told.
    pub(super) told: Option<Instant>,
    /// Whether somebody sees to it that it is told in time.
    pub(super) in_time: bool,
}

impl Obstacle {
    pub(super) fn new(what: &str) -> Self {
        Self { what: what.to_owned(), since: Instant::now(), told: None, in_time: false }
    }

    /// Whether to tell it now: once it has stood for `patience`, and again before its event is
    /// forgotten.
    pub(super) fn is_news(&self, patience: Duration) -> bool {
        match self.told {
            None => self.since.elapsed() >= patience,
            Some(told) => told.elapsed() >= EVENT_LASTS,
        }
    }
}

impl Entry {
    /// What stands in the claim's way, if that is this; else this from now on.
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

    /// What must be read live before the next call. A name that does not hold the whole UID may be
    /// another claim's as well, which may have got its volume since the last attempt: it is looked
    /// up before each, but not before it is asked how an open call ended.
    pub(super) fn verification(&self) -> Verification {
        let whole = self.volume_name.as_ref().is_some_and(|name| name.contains(self.claim.uid()));
        let is_first = matches!(self.state, ClaimState::Waiting | ClaimState::Recorded);
        if is_first && !whole {
            self.verification.max(Verification::Volume)
        } else {
            self.verification
        }
    }

    /// Something has put this in doubt, of which no earlier look tells.
    pub(super) fn requires(&mut self, verification: Verification) {
        self.verification = self.verification.max(verification);
        self.doubted = self.doubted.wrapping_add(1);
    }

    /// An attempt ended: what comes next, and how often the open call was asked after in a row.
    pub(super) fn goes_on(&mut self, next: Next) -> (Next, u32) {
        if next == Next::Poll {
            self.polls = self.polls.saturating_add(1);
        } else {
            self.polls = 0;
            self.warned.clear();
            self.obstacle = None;
        }
        (next, self.polls)
    }

    /// Whether a call may start now: nothing is in doubt, and it is wanted or asks how an open
    /// one ended.
    pub(super) fn may_call(&self) -> bool {
        let asked_for = self.demand() == Demand::Wanted || self.state.is_open();
        self.state.may_call() && self.verification == Verification::None && asked_for
    }

    /// Whether what the volume is made from is still needed: a call is open or will be made, or
    /// what it made could still be lost. A record is of an open call, also before that is followed.
    pub(super) fn needs_source(&self) -> bool {
        match self.state {
            ClaimState::Waiting => self.demand() == Demand::Wanted || self.may_have_open_call(),
            ClaimState::Suspect | ClaimState::Done => false,
            _ => true,
        }
    }

    /// Whether a call is open, here or by what its record says.
    pub(super) fn may_have_open_call(&self) -> bool {
        let is_recorded = matches!(
            self.mark.as_deref(),
            Some(RecordStatus::Open(_) | RecordStatus::Elsewhere(_))
        );
        self.state.is_open() || is_recorded
    }

    /// The record of an earlier process's call that this one is to follow.
    pub(super) fn recorded(&self) -> Option<Record> {
        match (&self.state, self.mark.as_deref()) {
            (ClaimState::Recorded, Some(RecordStatus::Open(record))) => Some(record.clone()),
            _ => None,
        }
    }

    /// The record of another node's call, while this process has none open itself.
    pub(super) fn elsewhere(&self) -> Option<Record> {
        match self.mark.as_deref() {
            Some(RecordStatus::Elsewhere(record)) if !self.state.is_open() => Some(record.clone()),
            _ => None,
        }
    }

    /// Follows the call that a record is of, unless it is known; and follows none any more that no
    /// record is of. Whether that changes anything.
    pub(super) fn take_up_record(&mut self) -> bool {
        let before = self.state.clone();
        match self.mark.as_deref() {
            Some(RecordStatus::Open(_)) if !self.mark_is_known => {
                self.mark_is_known = true;
                self.requires(Verification::VolumeAndClaim);
                self.advance(ClaimState::recorded);
            }
            Some(RecordStatus::Open(_)) => {}
            _ => {
                self.advance(ClaimState::unrecorded);
                // What was taken up, and is not followed after all, is told like any other.
                self.mark_is_known &= self.state == before;
            }
        }
        self.state != before
    }

    /// Nobody wants the volume here any longer: the gone node's call, of which nothing was asked for here
    /// yet, is left to whoever finds its record.
    pub(super) fn unadopt(&mut self) {
        if self.state == ClaimState::Recorded {
            self.adopted = None;
        }
    }

    /// The record does not count, and that is to be reported once.
    pub(super) fn take_unfollowed(&mut self) -> Option<Record> {
        let Some(RecordStatus::Void(record)) = self.mark.as_deref() else { return None };
        // What this process has put there it knows, and a volume that is saved closes the call.
        let is_news = !self.mark_is_known && !self.void_is_reported && !self.made_is_seen;
        self.void_is_reported |= is_news;
        is_news.then(|| record.clone())
    }

    pub(super) fn advance(&mut self, transition: impl FnOnce(ClaimState) -> ClaimState) {
        self.state = transition(std::mem::take(&mut self.state));
    }

    /// A PersistentVolume for the claim was seen. `is_local`: where each node has a driver of its own,
    /// one that this process has not saved tells nothing of what its own call has made.
    pub(super) fn volume_seen(&mut self, volume: &Volume, is_local: bool) {
        self.shown = true;
        self.made_is_seen |= self.is_made(volume);
        if self.is_served_by(volume) {
            let is_unknown = is_local && matches!(self.state, ClaimState::Background(_));
            self.advance(|state| state.volume_seen(volume.source_id()));
            self.close(is_unknown);
        }
    }

    /// A live read has found the claim bound to its own volume.
    pub(super) fn had_volume(&mut self) {
        let is_unknown = matches!(self.state, ClaimState::Background(_));
        self.advance(ClaimState::had_volume);
        self.close(is_unknown);
    }

    /// Keeps what was asked for to report it, where the call is closed and its end was not known.
    pub(super) fn close(&mut self, is_unknown: bool) {
        if is_unknown && self.state == ClaimState::Done {
            self.superseded = self.order.take();
        }
    }

    /// Whether the claim needs no other PersistentVolume than this, which is for it. One made by hand
    /// says nothing of the volume that an open call may have made.
    pub(super) fn is_served_by(&self, volume: &Volume) -> bool {
        let is_recorded = matches!(self.mark.as_deref(), Some(RecordStatus::Open(_)));
        let may_be_open = self.state.awaits_answer() || is_recorded;
        self.is_made(volume) || !may_be_open
    }

    /// Whether a provisioner has made the PersistentVolume, which is for this claim.
    fn is_made(&self, volume: &Volume) -> bool {
        let is_named = self.volume_name.as_deref() == Some(volume.name());
        is_named || volume.annotation(PROVISIONED_BY).is_some()
    }

    /// Its PersistentVolume is gone: whether the claim is to be looked at for that.
    pub(super) fn volume_gone(&mut self) -> bool {
        if !mutations::is_on(Mutation::DoneForgotten) {
            self.requires(Verification::VolumeAndClaim);
        }
        self.advance(ClaimState::volume_gone);
        std::mem::take(&mut self.once_gone) == OnceGone::Returns
    }
}
