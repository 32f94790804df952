//! Where a claim stands, and what follows from what happens to it.
//!
//! Owns [`ClaimState`], the one enum that says what is known of a claim's volume, and its
//! transitions, which are pure functions of the state, the news and the time. Promises that a
//! call whose end is unknown is never forgotten (safety rules 2 to 4). Leaves acting on it to
//! `claims` and `pv_store`.

use tokio::time::{Duration, Instant};

use super::{
    leftover::Leftover,
    provisioner::{NotAsked, Outcome},
};
use crate::{
    kube_api::views::Volume,
    mutations::{self, Mutation},
};

/// How many final answers in a row close the open call of a claim that is going away.
const CLOSING_FINALS: u32 = 3;
/// The least time between the first and the last of them.
const CLOSING_TIME: Duration = Duration::from_secs(120);

/// Where one claim stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ClaimState {
    /// No call is open: the claim may be asked for, given up or rescheduled freely.
    #[default]
    Waiting,
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
    Bared(String),
    /// The driver has made a volume that cannot be used: it goes before the claim is asked for
    /// again (safety rule 8).
    Unusable(Box<Leftover>),
    /// The driver's volume may be somebody's, so it stays and the claim is never asked for again
    /// (safety rule 14).
    Suspect,
    /// The claim has or had its PersistentVolume: never ask for it again (safety rule 6).
    Done,
}

/// A call whose end is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Open {
    /// Conclusive final answers in a row since.
    finals: u32,
    /// When the first of them came.
    first_final: Option<Instant>,
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
    /// Nothing more until an event comes.
    Drop,
}

impl ClaimState {
    /// Whether the driver may be asked now.
    pub fn may_call(&self) -> bool {
        matches!(self, Self::Waiting | Self::Background(_) | Self::Bared(_))
    }

    /// Whether the claim must be followed even when nobody wants it any more.
    pub fn is_open(&self) -> bool {
        matches!(
            self,
            Self::InFlight { .. }
                | Self::Background(_)
                | Self::Saving(_)
                | Self::Bared(_)
                | Self::Unusable(_)
        )
    }

    /// Whether a call was sent whose end is not known.
    pub fn awaits_answer(&self) -> bool {
        matches!(self, Self::InFlight { .. } | Self::Background(_))
    }

    /// A call starts: `Waiting | Background | Bared => InFlight`; other states stay, as nobody may call.
    #[must_use]
    pub fn called(self) -> Self {
        match self {
            Self::Waiting => Self::InFlight { earlier: None, seen: false },
            Self::Background(open) => Self::InFlight { earlier: Some(open), seen: false },
            // Where the driver still has the volume, it is that of an earlier call.
            Self::Bared(_) => Self::InFlight { earlier: Some(Open::default()), seen: false },
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
            Outcome::Final(failure) => {
                Self::ended(earlier, demand, failure.is_inconclusive(), Next::Retry, now)
            }
            Outcome::Infeasible(failure) => {
                Self::ended(earlier, demand, failure.is_inconclusive(), Next::Rest, now)
            }
            // A node is given back only when no call can still make a volume for it (rule 4).
            Outcome::Reschedule(failure) => {
                let closed = earlier.is_none() || mutations::is_on(Mutation::NodeGivenBackOpen);
                let next = if closed { Next::GiveNodeBack } else { Next::Retry };
                Self::ended(earlier, demand, failure.is_inconclusive(), next, now)
            }
        }
    }

    /// An attempt ended before its call, which leaves the state as it was: what to do next.
    pub fn not_asked(&self, why: &NotAsked, demand: Demand) -> Next {
        match (self, why, demand) {
            (Self::Waiting, NotAsked::Failed(_), Demand::Wanted)
            // A node is given back only when no call can still make a volume for it (rule 4).
            | (Self::Background(_) | Self::Bared(_), NotAsked::Failed(_) | NotAsked::Reschedule(_), _) => {
                Next::Retry
            }
            (Self::Waiting, NotAsked::Reschedule(_), Demand::Wanted) => Next::GiveNodeBack,
            // What is left to others is followed only where a call is open.
            (Self::Background(_) | Self::Bared(_), NotAsked::Ignored { .. }, _) => Next::Poll,
            _ => Next::Drop,
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
        match (earlier, demand) {
            (None, Demand::Wanted) => (Self::Waiting, next),
            (None, Demand::Withdrawn) => (Self::Waiting, Next::Drop),
            // A final code after an open call says nothing about that call (safety fact 2).
            (Some(open), Demand::Wanted) => (Self::Background(open), next),
            (Some(open), Demand::Withdrawn) if inconclusive => {
                (Self::Background(open), Next::Retry)
            }
            (Some(open), Demand::Withdrawn) => {
                let open = open.one_more_final(now);
                if open.is_closed(now) {
                    (Self::Waiting, Next::Drop)
                } else {
                    (Self::Background(open), Next::Retry)
                }
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

    /// The claim was found bound to its own volume, though that may be gone by now: `Waiting | Background
    /// => Done`.
    #[must_use]
    pub fn had_volume(self) -> Self {
        match self {
            Self::Waiting | Self::Background(_) => Self::Done,
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
    /// it: `Saving => Bared`, where a live read comes before the next call.
    #[must_use]
    pub fn bared(self, handle: &str) -> Self {
        match self {
            Self::Saving(_) => Self::Bared(handle.to_owned()),
            other => other,
        }
    }

    /// The API server refuses the PersistentVolume, and nobody wants it: `Saving => Unusable`.
    #[must_use]
    pub fn refused(self, leftover: Leftover) -> Self {
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
    /// stays and the claim is not asked for again: `Unusable | Bared => Suspect`.
    #[must_use]
    pub fn suspected(self) -> Self {
        match self {
            Self::Unusable(_) | Self::Bared(_) => Self::Suspect,
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
    /// Background`. A call under way repeats it.
    #[must_use]
    pub fn recorded(self) -> Self {
        match self {
            Self::Waiting => Self::Background(Open::default()),
            Self::InFlight { earlier: None, seen } => {
                Self::InFlight { earlier: Some(Open::default()), seen }
            }
            other => other,
        }
    }

    /// Whether it is not known what came of the open call, or whether its volume is still there.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Background(_) | Self::Bared(_))
    }

    /// Nobody follows the open call any longer: `Background | Bared => Suspect`. What is in memory and
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
    fn one_more_final(self, now: Instant) -> Self {
        Self { finals: self.finals.saturating_add(1), first_final: self.first_final.or(Some(now)) }
    }

    fn is_closed(self, now: Instant) -> bool {
        self.finals >= CLOSING_FINALS
            && self
                .first_final
                .is_some_and(|first| now.saturating_duration_since(first) >= CLOSING_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::provisioner::{Failure, Made},
        *,
    };
    use Demand::{Wanted, Withdrawn};

    fn failure() -> Failure {
        Failure::new("why")
    }

    /// No call was open before.
    const FRESH: Option<Open> = None;
    /// One was.
    const OPEN: Option<Open> = Some(Open { finals: 0, first_final: None });

    fn background() -> ClaimState {
        ClaimState::Background(Open::default())
    }

    /// Every outcome, with and without an open call before it, wanted and withdrawn.
    #[tokio::test(start_paused = true)]
    async fn answers_lead_where_the_table_says() {
        let now = Instant::now();
        let waiting = || ClaimState::Waiting;
        let finished = || Outcome::Final(failure());
        let once = || ClaimState::Background(Open { finals: 1, first_final: Some(now) });
        let table = [
            (FRESH, Outcome::Background(failure()), Wanted, background(), Next::Poll),
            (FRESH, Outcome::Background(failure()), Withdrawn, background(), Next::Poll),
            (OPEN, Outcome::Background(failure()), Withdrawn, background(), Next::Poll),
            (FRESH, finished(), Wanted, waiting(), Next::Retry),
            (FRESH, finished(), Withdrawn, waiting(), Next::Drop),
            (OPEN, finished(), Wanted, background(), Next::Retry),
            (OPEN, finished(), Withdrawn, once(), Next::Retry),
            (OPEN, Outcome::Final(failure().inconclusive()), Withdrawn, background(), Next::Retry),
            (FRESH, Outcome::Infeasible(failure()), Wanted, waiting(), Next::Rest),
            (OPEN, Outcome::Infeasible(failure()), Wanted, background(), Next::Rest),
            (OPEN, Outcome::Infeasible(failure()), Withdrawn, once(), Next::Retry),
            (FRESH, Outcome::Reschedule(failure()), Wanted, waiting(), Next::GiveNodeBack),
            (FRESH, Outcome::Reschedule(failure()), Withdrawn, waiting(), Next::Drop),
            (OPEN, Outcome::Reschedule(failure()), Wanted, background(), Next::Retry),
        ];
        for (earlier, outcome, demand, state, next) in table {
            let got = ClaimState::InFlight { earlier, seen: false }.answered(&outcome, demand, now);
            assert_eq!(got, (state, next), "{earlier:?} {outcome:?} {demand:?}");
        }
    }

    #[test]
    fn what_fails_before_the_call_is_tried_again_while_somebody_waits_for_its_end() {
        let waiting = || ClaimState::Waiting;
        let ignored = || NotAsked::Ignored { reason: "r".into() };
        let failed = || NotAsked::Failed(failure());
        let reschedule = || NotAsked::Reschedule(failure());
        let table = [
            (waiting(), ignored(), Wanted, Next::Drop),
            (waiting(), failed(), Wanted, Next::Retry),
            (waiting(), failed(), Withdrawn, Next::Drop),
            (background(), ignored(), Wanted, Next::Poll),
            (background(), failed(), Wanted, Next::Retry),
            (background(), failed(), Withdrawn, Next::Retry),
            (ClaimState::Done, failed(), Wanted, Next::Drop),
            (saving("h"), failed(), Wanted, Next::Drop),
            (waiting(), reschedule(), Wanted, Next::GiveNodeBack),
            (waiting(), reschedule(), Withdrawn, Next::Drop),
            (background(), reschedule(), Wanted, Next::Retry),
        ];
        for (state, why, demand, next) in table {
            assert_eq!(state.not_asked(&why, demand), next, "{state:?} {why:?} {demand:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_is_saved_whoever_wants_it() {
        for demand in [Wanted, Withdrawn] {
            let volume = serde_json::json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}});
            let volume = serde_json::from_value(volume).unwrap();
            let made = Outcome::Provisioned(Box::new(Made { volume, ..Made::default() }));
            let (state, next) =
                ClaimState::Waiting.called().answered(&made, demand, Instant::now());
            assert_eq!((state, next), (saving("h"), Next::Save));
        }
    }

    fn leftover() -> Leftover {
        Leftover {
            handle: "h".into(),
            credentials: crate::controller::leftover::Credentials::default(),
            defect: failure(),
            orphaned: failure(),
        }
    }

    fn unusable() -> ClaimState {
        ClaimState::Unusable(Box::new(leftover()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_that_cannot_be_used_goes_before_anything_else() {
        for (demand, seen) in [(Wanted, false), (Withdrawn, false), (Wanted, true)] {
            let in_flight = ClaimState::InFlight { earlier: OPEN, seen };
            let (state, next) = in_flight.answered(
                &Outcome::Unusable(Box::new(leftover())),
                demand,
                Instant::now(),
            );
            assert_eq!((&state, next), (&unusable(), Next::Discard));
            assert!(state.is_open() && !state.may_call());
            // Nothing but its end ends it.
            for other in [
                state.clone().called(),
                state.clone().volume_seen("h"),
                state.clone().volume_gone(),
                state.clone().interrupted(),
                state.clone().saved(),
            ] {
                assert_eq!(other, state);
            }
            assert_eq!(state.clone().discarded(), ClaimState::Waiting);
            let suspect = state.suspected();
            assert!(
                !suspect.is_open()
                    && !suspect.may_call()
                    && suspect.clone().volume_gone() == suspect
            );
        }
    }

    #[test]
    fn only_a_volume_that_cannot_be_used_is_discarded_or_suspected() {
        assert_eq!(saving("h").refused(leftover()), unusable());
        for state in [ClaimState::Waiting, background(), ClaimState::Done] {
            assert_eq!(state.clone().refused(leftover()), state);
        }
        for state in [ClaimState::Waiting, background(), saving("h"), ClaimState::Done] {
            assert_eq!(state.clone().discarded(), state);
            assert_eq!(state.clone().suspected(), state);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawn_claim_is_closed_by_three_finals_over_two_minutes() {
        let mut state = background();
        let mut step = |after: u64| {
            let now = Instant::now() + Duration::from_secs(after);
            let (next_state, next) = std::mem::take(&mut state).called().answered(
                &Outcome::Final(failure()),
                Withdrawn,
                now,
            );
            state = next_state;
            (state.clone(), next)
        };
        for after in [0, 10, 20, 119] {
            let (state, next) = step(after);
            assert!(state.is_open() && next == Next::Retry, "after {after} s: {state:?}");
        }
        assert_eq!(step(120), (ClaimState::Waiting, Next::Drop));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_end_starts_the_count_of_finals_again() {
        let counted = ClaimState::Background(Open { finals: 2, first_final: Some(Instant::now()) });
        let (state, _) =
            counted.called().answered(&Outcome::Background(failure()), Withdrawn, Instant::now());
        assert_eq!(state, background());
    }

    #[test]
    fn other_news_moves_only_the_states_it_concerns() {
        let in_flight = ClaimState::Waiting.called();
        assert_eq!(in_flight.clone().called(), in_flight);
        assert_eq!(in_flight.clone().volume_seen("h").volume_gone(), in_flight);
        assert_eq!(in_flight.interrupted(), background());
        assert_eq!(background().volume_seen("h"), ClaimState::Done);
        assert_eq!(ClaimState::Done.volume_gone(), ClaimState::Waiting);
        assert_eq!(background().volume_gone(), background());
        assert_eq!(ClaimState::Done.called(), ClaimState::Done);
        assert!(
            !ClaimState::Done.may_call()
                && background().may_call()
                && ClaimState::Waiting.may_call()
        );
    }

    #[test]
    fn a_record_opens_what_waits_and_giving_up_ends_what_is_only_asked_after() {
        let others = || [saving("h"), unusable(), ClaimState::Suspect, ClaimState::Done];
        assert_eq!(ClaimState::Waiting.recorded(), background());
        assert_eq!(ClaimState::Waiting.called().recorded(), background().called());
        assert_eq!(background().given_up(), ClaimState::Suspect);
        for state in others() {
            assert_eq!(
                (state.clone().recorded(), state.clone().given_up()),
                (state.clone(), state)
            );
        }
        assert_eq!(ClaimState::Waiting.given_up(), ClaimState::Waiting);
        let counted = ClaimState::Background(Open { finals: 2, first_final: None });
        assert_eq!(counted.clone().recorded(), counted, "its finals still count");
    }

    fn saving(handle: &str) -> ClaimState {
        ClaimState::Saving(handle.to_owned())
    }

    #[test]
    fn a_volume_being_saved_is_saved_by_its_own_persistent_volume_only() {
        assert_eq!(saving("h").volume_seen("h"), ClaimState::Done);
        assert_eq!(saving("h").volume_seen("other"), saving("h"));
        assert_eq!(saving("h").interrupted(), saving("h"));
        assert_eq!(saving("h").saved(), ClaimState::Done);
        assert_eq!(saving("h").bared("h"), bared());
        assert_eq!(ClaimState::Done.bared("h"), ClaimState::Done);
        let seen_and_gone = saving("h").volume_seen("h").volume_gone();
        assert_eq!(seen_and_gone.saved(), ClaimState::Waiting, "a late answer to the POST");
    }

    fn bared() -> ClaimState {
        ClaimState::Bared("h".into())
    }

    /// It may still be there: what asks for it follows an open call.
    #[tokio::test(start_paused = true)]
    async fn a_volume_that_may_have_gone_is_asked_after_or_suspected() {
        assert!(bared().may_call() && bared().is_open());
        assert_eq!(bared().volume_seen("h"), ClaimState::Done);
        assert_eq!(bared().had_volume(), bared(), "which may not be that one");
        for state in [ClaimState::Waiting, background()] {
            assert_eq!(state.had_volume(), ClaimState::Done);
        }
        assert_eq!(bared().suspected(), ClaimState::Suspect);
        assert_eq!(bared().given_up(), ClaimState::Suspect);
        for other in [bared().volume_gone(), bared().recorded(), bared().interrupted()] {
            assert_eq!(other, bared());
        }
        let reschedule = NotAsked::Reschedule(failure());
        assert_eq!(bared().not_asked(&reschedule, Wanted), Next::Retry);
        let refused = Outcome::Final(failure());
        let ended = bared().called().answered(&refused, Wanted, Instant::now());
        assert_eq!(ended, (background(), Next::Retry));
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_seen_in_mid_call_ends_the_claim_once_the_call_has_ended() {
        for outcome in [
            Outcome::Background(failure()),
            Outcome::Final(failure()),
            Outcome::Reschedule(failure()),
        ] {
            let seen = background().called().volume_seen("h");
            let ended = seen.answered(&outcome, Wanted, Instant::now());
            assert_eq!(ended, (ClaimState::Done, Next::Drop), "{outcome:?}");
        }
        let seen = ClaimState::Waiting.called().volume_seen("h");
        assert_eq!(seen.clone().interrupted(), ClaimState::Done);
        let made = Outcome::Provisioned(Box::default());
        assert_eq!(seen.answered(&made, Wanted, Instant::now()).1, Next::Save);
    }
}
