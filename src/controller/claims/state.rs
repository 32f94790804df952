//! Where a claim stands, and what follows from what happens to it.
//!
//! Owns [`ClaimState`], the one enum that says what is known of a claim's volume, and its
//! transitions, which are pure functions of the state, the news and the time. Promises that a
//! call whose end is unknown is never forgotten (safety rules 2 to 4). Leaves acting on it to
//! `claims` and `pv_store`.

use tokio::time::{Duration, Instant};

use crate::{
    controller::{
        model::unusable_volume::UnusableVolume,
        provisioner::{NotSent, Outcome},
    },
    kube::objects::Volume,
    mutations,
    mutations::Mutation,
};

/// How many final answers in a row say that an open call has left no volume.
const CLOSING_FINALS: u32 = 3;
/// The least time between the first and the last of them.
const CLOSING_TIME: Duration = Duration::from_secs(120);

/// Where one claim stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ClaimState {
    /// No call is open: the claim may be asked for, given up or rescheduled freely.
    #[default]
    Waiting,
    /// The claim carries the record of a call that an earlier process left open, and this process
    /// has not asked for it yet.
    Recorded,
    /// A CreateVolume is under way; `earlier` is the open call it repeats, where there is one.
    InFlight {
        /// What was known of an earlier call whose end was not.
        earlier: Option<Open>,
        /// Whether a PersistentVolume for the claim was seen meanwhile.
        seen: bool,
    },
    /// A CreateVolume was sent and may still run at the driver.
    Background(Open),
    /// The driver has made the volume that its PersistentVolume will name so, which is not saved yet.
    Saving(String),
    /// Another PersistentVolume that had the volume with this handle, or may have, is gone, and the
    /// volume perhaps with it: while somebody wants one the driver is asked, once that is looked up.
    PvGone(String),
    /// The driver has made a volume that cannot be used: it goes before the claim is asked for
    /// again (safety rule 8).
    Unusable(Box<UnusableVolume>),
    /// The driver's volume may be somebody's, so it stays and the claim is never asked for again
    /// (safety rule 14).
    Suspect,
    /// The claim has or had its PersistentVolume: never ask for it again (safety rule 6).
    Done,
}

/// A call whose end is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Open {
    /// The final answers in a row since, if any.
    row: Option<Row>,
    /// Whether enough of them came while the claim was wanted: its node may be given back, and a
    /// changed class counts (safety rule 3).
    loosened: bool,
    /// Whether a record alone tells of it: this process has sent nothing yet.
    recorded: bool,
}

/// Conclusive final answers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    /// Whether the claim was wanted: those of a claim that is being deleted are counted anew.
    demand: Demand,
    finals: u32,
    /// When the first of them came.
    since: Instant,
}

/// Whether anybody still wants the claim's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// The claim stands, unbound.
    Wanted,
    /// The claim is deleted, being deleted, replaced or bound to something else.
    Withdrawn,
}

/// What to do after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Save the PersistentVolume.
    Save,
    /// Remove the volume that cannot be used.
    Discard,
    /// Try again with back-off.
    Retry,
    /// Ask soon how the open call ended.
    Poll,
    /// Rest for the longest interval, or until something changes.
    Rest,
    /// Give the selected node back to the scheduler.
    GiveNodeBack,
    /// The open call is closed by errors: report it, then nothing more until an event comes.
    ClosedByErrors,
    /// Nothing more until an event comes.
    Drop,
}

impl ClaimState {
    /// Whether the driver may be asked now.
    pub fn may_call(&self) -> bool {
        matches!(self, Self::Waiting | Self::Recorded | Self::Background(_) | Self::PvGone(_))
    }

    /// Whether the claim must be followed even when nobody wants it any more.
    pub fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Recorded
                | Self::InFlight { .. }
                | Self::Background(_)
                | Self::Saving(_)
                | Self::PvGone(_)
                | Self::Unusable(_)
        )
    }

    /// Whether a call was sent whose end is not known.
    pub fn awaits_answer(&self) -> bool {
        matches!(self, Self::Recorded | Self::InFlight { .. } | Self::Background(_))
    }

    /// Whether enough final answers came for a wanted claim to let its node and class change.
    pub fn is_loosened(&self) -> bool {
        let loosened = Open::is_loosened;
        match self {
            Self::Background(open) => loosened(open),
            Self::InFlight { earlier, .. } => earlier.as_ref().is_some_and(loosened),
            _ => false,
        }
    }

    /// A call starts: `Waiting | Recorded | Background | PvGone => InFlight`; other states stay, as
    /// nobody may call.
    #[must_use]
    pub fn called(self) -> Self {
        match self {
            Self::Waiting => Self::InFlight { earlier: None, seen: false },
            Self::Background(open) => Self::InFlight { earlier: Some(open), seen: false },
            Self::Recorded => {
                let open = Open { recorded: true, ..Open::default() };
                Self::InFlight { earlier: Some(open), seen: false }
            }
            // Where the driver still has the volume, it is that of an earlier call.
            Self::PvGone(_) => Self::InFlight { earlier: Some(Open::default()), seen: false },
            other => other,
        }
    }

    /// The call under way ended with `outcome`: `InFlight => Waiting | Background | Saving |
    /// Unusable | Done`. An answer in any other state changes nothing.
    pub fn answered(self, outcome: &Outcome, demand: Demand, now: Instant) -> (Self, Next) {
        let Self::InFlight { earlier, seen } = self else {
            return (self, Next::Drop);
        };
        match outcome {
            // Even where a PersistentVolume was seen: saving tells whether it is of this volume.
            Outcome::Provisioned(made) => {
                (Self::Saving(Volume::source_id_of(&made.volume)), Next::Save)
            }
            // The same: whether it may be removed is found out live.
            Outcome::Unusable(leftover) => (Self::Unusable(leftover.clone()), Next::Discard),
            // Another's PersistentVolume closes the call (rule 3); the claim is not asked for again.
            _ if seen => (Self::Done, Next::Drop),
            Outcome::Background(_) => (Self::Background(Open::default()), Next::Poll),
            Outcome::Unsent(_) => Self::unsent(earlier, demand),
            Outcome::Final(failure) => {
                Self::ended(earlier, demand, failure.is_inconclusive(), Next::Retry, now)
            }
            Outcome::Infeasible(failure) => {
                Self::ended(earlier, demand, failure.is_inconclusive(), Next::Rest, now)
            }
            Outcome::Reschedule(failure) => {
                Self::ended(earlier, demand, failure.is_inconclusive(), Next::GiveNodeBack, now)
            }
        }
    }

    /// Nothing was sent: what was open is open, and nothing else is (rule 3).
    fn unsent(earlier: Option<Open>, demand: Demand) -> (Self, Next) {
        match (earlier, demand) {
            (Some(open), _) if open.recorded => (Self::Recorded, Next::Poll),
            (Some(open), _) => (Self::Background(open), Next::Poll),
            (None, Demand::Wanted) => (Self::Waiting, Next::Poll),
            (None, Demand::Withdrawn) => (Self::Waiting, Next::Drop),
        }
    }

    /// Whether the call under way leaves open what it may have made, should it end with `outcome`
    /// after a PersistentVolume for the claim was seen.
    pub fn leaves_unknown(&self, outcome: &Outcome) -> bool {
        match self {
            Self::InFlight { earlier, seen: true } => {
                earlier.is_some() || matches!(outcome, Outcome::Background(_))
            }
            _ => false,
        }
    }

    /// An attempt ended before its call, which leaves the state as it was: what to do next.
    pub fn not_asked(&self, why: &NotSent, demand: Demand) -> Next {
        let open = matches!(self, Self::Recorded | Self::Background(_) | Self::PvGone(_));
        match (self, why, demand) {
            // What is left to others is followed only where a call is open.
            (_, NotSent::Ignored { .. }, _) => {
                if open {
                    Next::Poll
                } else {
                    Next::Drop
                }
            }
            (Self::Waiting, NotSent::Reschedule(_), Demand::Wanted) => Next::GiveNodeBack,
            (state, NotSent::Reschedule(_), Demand::Wanted) if state.is_loosened() => {
                Next::GiveNodeBack
            }
            (Self::Waiting, _, Demand::Wanted) => Next::Retry,
            // A node is given back only when no call can still make a volume for it (rule 4).
            _ => {
                if open {
                    Next::Retry
                } else {
                    Next::Drop
                }
            }
        }
    }

    /// The driver gave a final answer (rule 3).
    fn ended(
        earlier: Option<Open>,
        demand: Demand,
        inconclusive: bool,
        next: Next,
        now: Instant,
    ) -> (Self, Next) {
        let earlier = earlier.filter(|_| !mutations::is_on(Mutation::FinalClosesOpenCall));
        // A final code after an open call says nothing about that call (safety fact 2).
        match (earlier, demand) {
            (None, Demand::Wanted) => (Self::Waiting, next),
            (None, Demand::Withdrawn) => (Self::Waiting, Next::Drop),
            (Some(open), _) => {
                let open = Open { recorded: false, ..open };
                let open = if inconclusive { open } else { open.one_more_final(demand, now) };
                open.goes_on(demand, next, now)
            }
        }
    }

    /// A PersistentVolume for this claim was seen, of the volume `source_id`: `Waiting | Background
    /// => Done`. A call under way ends first. A volume that is being saved is saved if this is
    /// it, and stays unsaved if it is another.
    #[must_use]
    pub fn volume_seen(self, source_id: &str) -> Self {
        match self {
            Self::InFlight { earlier, .. } => Self::InFlight { earlier, seen: true },
            Self::Saving(own) if own != source_id => Self::Saving(own),
            // Looked at live before anything is removed.
            Self::Unusable(leftover) => Self::Unusable(leftover),
            _ => Self::Done,
        }
    }

    /// The claim was found bound to its own volume, though that may be gone by now: `Waiting |
    /// Recorded | Background => Done`.
    #[must_use]
    pub fn had_volume(self) -> Self {
        match self {
            Self::Waiting | Self::Recorded | Self::Background(_) => Self::Done,
            other => other,
        }
    }

    /// Saving the volume has come to its end: `Saving => Done`. Where the PersistentVolume was
    /// seen, or seen to go, before the answer to its POST came, that stands.
    #[must_use]
    pub fn saved(self) -> Self {
        match self {
            Self::Saving(_) => Self::Done,
            other => other,
        }
    }

    /// Another PersistentVolume, which may have had the volume, is gone, and the volume perhaps with
    /// it: `Saving => PvGone`, where a live read comes before the next call.
    #[must_use]
    pub fn bared(self, handle: &str) -> Self {
        match self {
            Self::Saving(_) => Self::PvGone(handle.to_owned()),
            other => other,
        }
    }

    /// The API server refuses the PersistentVolume, and nobody wants it: `Saving => Unusable`.
    #[must_use]
    pub fn refused(self, leftover: UnusableVolume) -> Self {
        match self {
            Self::Saving(_) => Self::Unusable(Box::new(leftover)),
            other => other,
        }
    }

    /// The volume that could not be used is gone, and with it every call that led to it:
    /// `Unusable => Waiting`.
    #[must_use]
    pub fn discarded(self) -> Self {
        match self {
            Self::Unusable(_) => Self::Waiting,
            other => other,
        }
    }

    /// The volume that cannot be used may be somebody's, or nobody wants the one that may be gone: it
    /// stays and the claim is not asked for again: `Unusable | PvGone => Suspect`.
    #[must_use]
    pub fn suspected(self) -> Self {
        match self {
            Self::Unusable(_) | Self::PvGone(_) => Self::Suspect,
            other => other,
        }
    }

    /// The claim's PersistentVolume is gone: `Done => Waiting`, where a live read comes before
    /// the next call.
    #[must_use]
    pub fn volume_gone(self) -> Self {
        match self {
            Self::Done if !mutations::is_on(Mutation::DoneForEver) => Self::Waiting,
            Self::InFlight { earlier, .. } => Self::InFlight { earlier, seen: false },
            other => other,
        }
    }

    /// The claim carries the record of a call that an earlier process left open: `Waiting =>
    /// Recorded`. A call under way repeats it.
    #[must_use]
    pub fn recorded(self) -> Self {
        match self {
            Self::Waiting => Self::Recorded,
            Self::InFlight { earlier: None, seen } => {
                Self::InFlight { earlier: Some(Open::default()), seen }
            }
            other => other,
        }
    }

    /// The record counts no longer, or is gone: `Recorded => Waiting`. What this process has asked
    /// for itself it follows without one.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        match self {
            Self::Recorded => Self::Waiting,
            other => other,
        }
    }

    /// Whether it is not known what came of the open call, or whether its volume is still there.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Recorded | Self::Background(_) | Self::PvGone(_))
    }

    /// Nobody follows the open call any longer: `Recorded | Background | PvGone => Suspect`. What is in memory and
    /// can still be saved or removed goes on.
    #[must_use]
    pub fn given_up(self) -> Self {
        if self.is_unknown() { Self::Suspect } else { self }
    }

    /// The task that worked on the claim died at an unknown point: `InFlight => Background`,
    /// or `Done` where the claim's PersistentVolume was seen.
    #[must_use]
    pub fn interrupted(self) -> Self {
        match self {
            Self::InFlight { seen: true, .. } => Self::Done,
            Self::InFlight { seen: false, .. } => Self::Background(Open::default()),
            other => other,
        }
    }
}

impl Open {
    fn is_loosened(&self) -> bool {
        self.loosened
    }

    fn one_more_final(self, demand: Demand, now: Instant) -> Self {
        let row = self.row.filter(|row| row.demand == demand);
        let Row { finals, since, .. } = row.unwrap_or(Row { demand, finals: 0, since: now });
        Self { row: Some(Row { demand, finals: finals.saturating_add(1), since }), ..self }
    }

    /// Whether enough final answers came in a row, over enough time.
    fn is_answered(self, demand: Demand, now: Instant) -> bool {
        self.row.is_some_and(|row| {
            row.demand == demand
                && row.finals >= CLOSING_FINALS
                && now.saturating_duration_since(row.since) >= CLOSING_TIME
        })
    }

    /// What follows from this row: it closes the call of a claim that nobody wants. One that is
    /// wanted stays open, but its node may be given back (rule 3).
    fn goes_on(self, demand: Demand, next: Next, now: Instant) -> (ClaimState, Next) {
        let answered = self.is_answered(demand, now);
        if demand == Demand::Withdrawn {
            return if answered {
                (ClaimState::Waiting, Next::ClosedByErrors)
            } else {
                (ClaimState::Background(self), Next::Retry)
            };
        }
        let loosened = self.loosened || answered;
        let may_give_back = loosened || mutations::is_on(Mutation::NodeGivenBackOpen);
        let next = if next == Next::GiveNodeBack && !may_give_back { Next::Retry } else { next };
        (ClaimState::Background(Self { loosened, ..self }), next)
    }
}

#[cfg(test)]
mod tests;
