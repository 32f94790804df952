//! What is known of one claim in work.

use std::{collections::BTreeSet, sync::Arc};

use tokio::time::{Duration, Instant};

use super::{
    super::{
        claim_state::{ClaimState, Demand, Next},
        open_calls::Record,
        ownership::PROVISIONED_BY,
        provisioner::Order,
    },
    Doubt, Existence, FirstLook,
    first_lists::FirstLists,
};
use crate::{
    kube_api::views::{Claim, View as _, Volume},
    mutations::{self, Mutation},
};

/// How long an event counts as told: it leaves the API server after an hour, and a claim that
/// still waits must not be left without one.
pub(super) const TOLD: Duration = Duration::from_secs(15 * 60);

/// One claim in work.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// As last seen; kept when the claim is gone, for as long as something is open.
    pub(super) claim: Arc<Claim>,
    /// Whether the claim is still of interest.
    pub(super) interest: Interest,
    /// The record of an open call that it carries; boxed, as most carry none.
    pub(super) mark: Option<Box<Record>>,
    /// Whether a mark that is seen on it is known: this process has put one on it, or tried to, or has
    /// taken up the record of another's call.
    pub(super) mark_is_known: bool,
    /// When it was first seen to be deleted.
    pub(super) deleted: Option<Instant>,
    pub(super) state: ClaimState,
    /// The name of its PersistentVolume.
    pub(super) volume_name: Option<String>,
    /// What is to be read live, beside what its name asks for.
    pub(super) doubt: Doubt,
    /// What the first lists have told of that.
    pub(super) look: FirstLook,
    /// How often something has put it in doubt: what was looked up before tells nothing of that.
    pub(super) doubted: u32,
    /// What was asked for, while a call is open: it is asked for again (safety rule 4). Boxed
    /// like the mark.
    pub(super) order: Option<Box<Order>>,
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
    pub(super) audited: bool,
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
            Some(told) => told.elapsed() >= TOLD,
        }
    }
}

impl Entry {
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
    pub(super) fn doubt(&self) -> Doubt {
        let shared = !self.is_name_unique(self.claim.uid()) && self.state == ClaimState::Waiting;
        if shared { self.doubt.max(Doubt::Volume) } else { self.doubt }
    }

    /// Something has put this in doubt, of which no earlier look tells.
    pub(super) fn doubts(&mut self, doubt: Doubt) {
        (self.doubt, self.look) = (self.doubt.max(doubt), FirstLook::default());
        self.doubted = self.doubted.wrapping_add(1);
    }

    /// Whether the claim `uid`, which is this one, is compared with all PersistentVolumes listed so far. A
    /// name that another claim may have as well must be looked up.
    pub(super) fn is_compared(&self, uid: &str, lists: &FirstLists) -> bool {
        let name = self.volume_name.as_deref().unwrap_or_default();
        self.is_name_unique(uid) && lists.has_compared(uid, name)
    }

    /// Whether the name of its PersistentVolume holds the whole UID.
    fn is_name_unique(&self, uid: &str) -> bool {
        self.volume_name.as_ref().is_some_and(|name| name.contains(uid))
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
        self.state.may_call() && self.doubt == Doubt::None && asked_for
    }

    /// Whether what the volume is made from is still needed: a call is open or will be made, or
    /// what it made could still be lost. A mark is of an open call, also before that is followed.
    pub(super) fn needs_source(&self) -> bool {
        match self.state {
            ClaimState::Waiting => self.demand() == Demand::Wanted || self.mark.is_some(),
            ClaimState::Suspect | ClaimState::Done => false,
            _ => true,
        }
    }

    /// The record of the open call, while nothing else is known of it; an empty one where even
    /// that was taken off.
    pub(super) fn recorded(&self) -> Option<Record> {
        let unknown = self.order.is_none() && self.state.is_open();
        unknown.then(|| self.mark.as_deref().cloned().unwrap_or_default())
    }

    /// Whether this mark is of a call that another process made and nobody here follows yet.
    pub(super) fn is_anothers(&self, mark: Option<&Record>) -> bool {
        mark.is_some() && !self.mark_is_known
    }

    /// The call that an earlier process recorded is open, unless the claim is bound to that very
    /// volume: then it was saved, even if it is gone by now (safety rule 6).
    pub(super) fn take_up_record(&mut self) {
        let saved = !self.claim.is_unbound() && self.claim.spec.volume_name == self.volume_name;
        self.mark_is_known |= self.mark.is_some();
        if self.mark.is_some() && !saved {
            self.advance(ClaimState::recorded);
        }
    }

    pub(super) fn advance(&mut self, transition: impl FnOnce(ClaimState) -> ClaimState) {
        self.state = transition(std::mem::take(&mut self.state));
    }

    pub(super) fn volume_seen(&mut self, volume: &Volume) {
        self.shown = true;
        if self.is_served_by(volume) {
            self.advance(|state| state.volume_seen(volume.source_id()));
        }
    }

    /// Whether the claim needs no other PersistentVolume than this, which is for it. One made by hand
    /// says nothing of the volume that an open call may have made.
    pub(super) fn is_served_by(&self, volume: &Volume) -> bool {
        let made = volume.annotation(PROVISIONED_BY).is_some()
            || self.volume_name.as_deref() == Some(volume.name());
        let may_be_open = self.state.awaits_answer() || self.mark.is_some();
        made || !may_be_open
    }

    /// Its PersistentVolume is gone: whether the claim is to be looked at for that.
    pub(super) fn volume_gone(&mut self) -> bool {
        if !mutations::is_on(Mutation::DoneForgotten) {
            self.doubts(Doubt::VolumeAndClaim);
        }
        self.advance(ClaimState::volume_gone);
        std::mem::take(&mut self.once_gone) == OnceGone::Returns
    }
}
