//! The state of a claim's volume and its transitions.
//!
//! [`ClaimState`] says what is known of a claim's volume. Its transitions are pure functions of the
//! state, of what has happened and of the time. A call of unknown outcome is never forgotten
//! (safety rules 2 to 4). The index keeps the states, and [`sync`](super::sync) and
//! [`save`](super::save) act on them.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::controller::{
    model::{
        overview::Stage,
        unsaved_volume::{Seen, UnsavedVolume},
        unusable_volume::UnusableVolume,
    },
    provisioner::{Failure, Next, NotPrepared, Outcome},
};

/// How many terminal errors in a row show that an open call has left no volume.
const CLOSING_ERRORS: u32 = 3;
/// The least time between the first and the last of those errors.
const CLOSING_TIME: Duration = Duration::from_secs(120);

/// The state of one claim's volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ClaimState {
    /// No call is open.
    #[default]
    Waiting,
    /// The claim carries the record of a call that an earlier process left open, and this process
    /// has not repeated the call yet.
    Recorded,
    /// A CreateVolume call is running.
    InFlight {
        /// The open call that this one repeats, if there is one.
        earlier: Option<OpenCall>,
        /// Whether a PersistentVolume for the claim was seen since the call started.
        has_pv: bool,
    },
    /// A CreateVolume call was sent, its outcome is unknown, and the driver may still work on it.
    Background(OpenCall),
    /// The driver has made the volume, and its PersistentVolume is not saved yet, or the worker that saves it
    /// does not know.
    Saving(Arc<UnsavedVolume>),
    /// The PersistentVolume that had, or may have had, the volume with this handle is gone, and
    /// perhaps the volume with it. While the claim is wanted, the driver is asked again after a
    /// live look-up.
    PvGone(String),
    /// The driver has made a volume that cannot be used. It is removed before the next call (safety
    /// rule 8).
    Unusable(Box<UnusableVolume>),
    /// The driver's volume may be somebody's. It is not deleted, and no call is made for the claim
    /// any more (safety rule 14).
    SuspectedLeak,
    /// The claim has or had its PersistentVolume: no call is made for it any more (safety rule 6).
    Done,
}

/// What happens to the state of a claim, beside the end of a call.
#[derive(Debug)]
pub enum Transition<'a> {
    /// A call starts.
    CallStarted,
    /// The task that worked on the claim has panicked.
    Interrupted,
    /// The claim carries the record of a call that an earlier process left open.
    RecordFound,
    /// The record has become void or is gone.
    RecordDropped,
    /// The open call is no longer followed.
    GivenUp,
    /// The node of the open call is given back, and with it the driver that was asked: the call is left to it, and
    /// reported. Whichever node is selected next, the claim is provisioned anew there.
    NodeGivenBack,
    /// A PersistentVolume for the claim was seen, whose volume has this ID.
    PvFound(&'a str),
    /// The claim was found bound to its own volume, which may be gone by now.
    FoundBound,
    /// The claim's PersistentVolume is gone. A live look-up comes before the next call.
    PvDeleted,
    /// The claim's PersistentVolume is gone, and the volume with this handle is at the driver: this process let go
    /// of it before the claim was bound.
    PvLetGo(&'a str),
    /// Saving the volume is finished.
    Saved,
    /// Another PersistentVolume, which may have had the volume with this handle, is gone, and
    /// perhaps the volume with it. A live look-up comes before the next call.
    PvGone(&'a str),
    /// The API server refuses the PersistentVolume, and nobody wants the volume.
    PvRefused(Box<UnusableVolume>),
    /// The unusable volume is removed, and with it whatever its calls made.
    Discarded,
    /// The unusable volume may be somebody's, or nobody wants the volume that may be gone.
    LeakSuspected,
}

/// A call of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenCall {
    /// The terminal errors in a row since the call, if any.
    errors: Option<TerminalErrors>,
    /// Whether enough terminal errors came while the claim was wanted: its node may be given back,
    /// and a changed class is accepted (safety rule 3).
    accepts_changes: bool,
    /// Whether only a record shows the call: this process has sent nothing yet.
    is_only_recorded: bool,
}

/// Conclusive terminal errors in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TerminalErrors {
    /// Whether the claim was wanted. The count starts anew when the claim is deleted.
    demand: Demand,
    count: u32,
    /// When the first of them came.
    since: Instant,
}

/// Whether the claim's volume is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// The claim exists and is unbound.
    Wanted,
    /// The claim is deleted, being deleted, replaced, or bound to something else.
    Withdrawn,
}

impl ClaimState {
    /// The kind of the state.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Waiting => Stage::Waiting,
            Self::Recorded => Stage::Recorded,
            Self::InFlight { .. } => Stage::InFlight,
            Self::Background(_) => Stage::Background,
            Self::Saving(_) => Stage::Saving,
            Self::PvGone(_) => Stage::PvGone,
            Self::Unusable(_) => Stage::Unusable,
            Self::SuspectedLeak => Stage::SuspectedLeak,
            Self::Done => Stage::Done,
        }
    }

    /// Whether the state allows a call.
    pub fn may_call(&self) -> bool {
        matches!(self, Self::Waiting | Self::Recorded | Self::Background(_) | Self::PvGone(_))
    }

    /// Whether the claim must be followed even if nobody wants its volume any more.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Waiting | Self::SuspectedLeak | Self::Done)
    }

    /// Whether a call of unknown outcome was sent.
    pub fn awaits_answer(&self) -> bool {
        matches!(self, Self::Recorded | Self::InFlight { .. } | Self::Background(_))
    }

    /// Whether enough terminal errors came for a wanted claim to let its node and class change.
    pub fn accepts_changes(&self) -> bool {
        match self {
            Self::Background(open) | Self::InFlight { earlier: Some(open), .. } => {
                open.accepts_changes
            }
            _ => false,
        }
    }

    /// The state after `transition`, which concerns only some states and does not change the others.
    #[must_use]
    pub fn on(self, transition: Transition<'_>) -> Self {
        use Transition as T;
        let open = OpenCall::default();
        match (self, transition) {
            (Self::Waiting, T::CallStarted) => Self::in_flight(None),
            (Self::Background(open), T::CallStarted) => Self::in_flight(Some(open)),
            (Self::Recorded, T::CallStarted) => {
                Self::in_flight(Some(OpenCall { is_only_recorded: true, ..open }))
            }
            // Where the driver still has the volume, it is that of an earlier call.
            (Self::PvGone(_), T::CallStarted) => Self::in_flight(Some(open)),
            (Self::InFlight { has_pv: true, .. }, T::Interrupted) => Self::Done,
            (Self::InFlight { .. }, T::Interrupted) => Self::Background(open),

            (Self::Waiting, T::RecordFound) => Self::Recorded,
            // The running call counts as a repeat of the recorded one.
            (Self::InFlight { earlier: None, has_pv }, T::RecordFound) => {
                Self::InFlight { earlier: Some(open), has_pv }
            }
            // Calls that this process has made are followed without a record.
            (Self::Recorded, T::RecordDropped)
            | (Self::Background(_), T::NodeGivenBack)
            | (Self::Unusable(_), T::Discarded)
            | (Self::Done, T::PvDeleted) => Self::Waiting,
            (Self::Saving(own), T::Saved) if own.seen == Seen::Gone => Self::Waiting,
            // A volume that this process can still save or remove is not given up.
            (state, T::GivenUp) if state.is_outcome_unknown() => Self::SuspectedLeak,

            // A running call ends first.
            (Self::InFlight { earlier, .. }, T::PvFound(_)) => {
                Self::InFlight { earlier, has_pv: true }
            }
            (Self::Saving(own), T::PvFound(found)) if own.source_id() != found => Self::Saving(own),
            // The worker that saves it reports it.
            (Self::Saving(own), T::PvFound(_)) => Self::saving(own, Seen::Exists),
            (Self::Saving(own), T::PvDeleted) if own.seen == Seen::Exists => {
                Self::saving(own, Seen::Gone)
            }
            // Live reads decide whether it may be removed.
            (Self::Unusable(unusable), T::PvFound(_))
            | (Self::Saving(_), T::PvRefused(unusable)) => Self::Unusable(unusable),
            (_, T::PvFound(_))
            | (Self::Waiting | Self::Recorded | Self::Background(_), T::FoundBound)
            | (Self::Saving(_), T::Saved) => Self::Done,
            (Self::InFlight { earlier, .. }, T::PvDeleted) => {
                Self::InFlight { earlier, has_pv: false }
            }

            (Self::Saving(_), T::PvGone(handle)) | (Self::Done, T::PvLetGo(handle)) => {
                Self::PvGone(handle.to_owned())
            }
            (Self::Unusable(_) | Self::PvGone(_), T::LeakSuspected) => Self::SuspectedLeak,
            (state, _) => state,
        }
    }

    fn in_flight(earlier: Option<OpenCall>) -> Self {
        Self::InFlight { earlier, has_pv: false }
    }

    fn saving(mut own: Arc<UnsavedVolume>, seen: Seen) -> Self {
        Arc::make_mut(&mut own).seen = seen;
        Self::Saving(own)
    }

    /// The state after an attempt that ended with `outcome`, and what to do next. A call leads from `InFlight` to
    /// `Waiting | Background | Saving | Unusable | Done`; an attempt that ended before its call does not change
    /// the state.
    pub fn after(self, outcome: &Outcome, demand: Demand, now: Instant) -> (Self, Next) {
        if let Outcome::NotPrepared(why) = outcome {
            let next = self.next_without_call(why, demand);
            return (self, next);
        }
        let Self::InFlight { earlier, has_pv } = self else {
            return (self, Next::Drop);
        };
        match outcome {
            // Even if a PersistentVolume was seen: saving shows whether it is of this volume.
            Outcome::Provisioned(provisioned) => {
                (Self::Saving(Arc::new(UnsavedVolume::new(provisioned, now))), Next::Save)
            }
            // Even if a PersistentVolume was seen: live reads decide whether the volume is removed.
            Outcome::Unusable(unusable) => (Self::Unusable(unusable.clone()), Next::Discard),
            // A PersistentVolume that this process did not save closes the call (safety rule 3).
            _ if has_pv => (Self::Done, Next::Drop),
            Outcome::Background(_) => (Self::Background(OpenCall::default()), Next::Repeat),
            Outcome::Refused(failure, next) => {
                Self::after_refusal(earlier, demand, failure, *next, now)
            }
            Outcome::Unsent(_) | Outcome::NotPrepared(_) => Self::after_unsent(earlier, demand),
        }
    }

    /// Nothing was sent: an open call stays open, and no other is (safety rule 3).
    fn after_unsent(earlier: Option<OpenCall>, demand: Demand) -> (Self, Next) {
        match (earlier, demand) {
            (Some(open), _) if open.is_only_recorded => (Self::Recorded, Next::Repeat),
            (Some(open), _) => (Self::Background(open), Next::Repeat),
            (None, Demand::Wanted) => (Self::Waiting, Next::Repeat),
            (None, Demand::Withdrawn) => (Self::Waiting, Next::Drop),
        }
    }

    /// Whether it is unknown what the running call has made, if it ends with `outcome` after a
    /// PersistentVolume for the claim was seen.
    pub fn is_outcome_unknown_after(&self, outcome: &Outcome) -> bool {
        let Self::InFlight { earlier, has_pv: true } = self else { return false };
        earlier.is_some() || matches!(outcome, Outcome::Background(_))
    }

    /// What to do next after an attempt that ended before its call.
    fn next_without_call(&self, why: &NotPrepared, demand: Demand) -> Next {
        let is_open = self.is_outcome_unknown();
        match (self, why, demand) {
            // A claim that is left to others is followed only while a call is open.
            (_, NotPrepared::Ignored { .. }, _) if is_open => Next::Repeat,
            (_, NotPrepared::Ignored { .. }, _) => Next::Drop,
            (Self::Waiting, NotPrepared::Reschedule(_), Demand::Wanted) => Next::GiveNodeBack,
            // The node is given back only if no call can still make a volume there (safety rule 4).
            (state, NotPrepared::Reschedule(_), Demand::Wanted) if state.accepts_changes() => {
                Next::GiveNodeBack
            }
            (Self::Waiting, _, Demand::Wanted) => Next::Retry,
            _ if is_open => Next::Retry,
            _ => Next::Drop,
        }
    }

    /// The driver refused (safety rule 3).
    fn after_refusal(
        earlier: Option<OpenCall>,
        demand: Demand,
        failure: &Failure,
        next: Next,
        now: Instant,
    ) -> (Self, Next) {
        // A terminal error after an open call says nothing about that call.
        match (earlier, demand) {
            (None, Demand::Wanted) => (Self::Waiting, next),
            (None, Demand::Withdrawn) => (Self::Waiting, Next::Drop),
            (Some(open), _) => {
                let open = OpenCall { is_only_recorded: false, ..open };
                let open =
                    if failure.is_inconclusive { open } else { open.with_error(demand, now) };
                open.after_error(demand, next, now)
            }
        }
    }

    /// Whether a call that no longer runs has an unknown outcome, or its volume may be gone (`PvGone`). Unlike
    /// [`Self::awaits_answer`], not while a call runs.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::Recorded | Self::Background(_) | Self::PvGone(_))
    }
}

impl OpenCall {
    #[cfg(test)]
    pub(crate) fn accepting(accepts_changes: bool) -> Self {
        Self { accepts_changes, ..Self::default() }
    }

    fn with_error(self, demand: Demand, now: Instant) -> Self {
        let earlier = self.errors.filter(|errors| errors.demand == demand);
        let TerminalErrors { count, since, .. } =
            earlier.unwrap_or(TerminalErrors { demand, count: 0, since: now });
        let errors = TerminalErrors { demand, count: count.saturating_add(1), since };
        Self { errors: Some(errors), ..self }
    }

    /// Whether enough terminal errors came in a row, over enough time.
    fn has_enough_errors(self, demand: Demand, now: Instant) -> bool {
        self.errors.is_some_and(|errors| {
            errors.demand == demand
                && errors.count >= CLOSING_ERRORS
                && now.saturating_duration_since(errors.since) >= CLOSING_TIME
        })
    }

    /// Decides what follows from the terminal errors. Enough of them close the call of a claim that
    /// is not wanted. The call of a wanted claim stays open, but its node may be given back (safety
    /// rule 3).
    fn after_error(self, demand: Demand, next: Next, now: Instant) -> (ClaimState, Next) {
        let has_enough = self.has_enough_errors(demand, now);
        if demand == Demand::Withdrawn {
            return if has_enough {
                (ClaimState::Waiting, Next::ClosedByErrors)
            } else {
                (ClaimState::Background(self), Next::Retry)
            };
        }
        let accepts_changes = self.accepts_changes || has_enough;
        let next = if next == Next::GiveNodeBack && !accepts_changes { Next::Retry } else { next };
        (ClaimState::Background(Self { accepts_changes, ..self }), next)
    }
}

#[cfg(test)]
mod tests;
