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
        matches!(self, Self::Waiting | Self::Recorded | Self::Background(_) | Self::Bared(_))
    }

    /// Whether the claim must be followed even when nobody wants it any more.
    pub fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Recorded
                | Self::InFlight { .. }
                | Self::Background(_)
                | Self::Saving(_)
                | Self::Bared(_)
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

    /// A call starts: `Waiting | Recorded | Background | Bared => InFlight`; other states stay, as
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
    pub fn not_asked(&self, why: &NotAsked, demand: Demand) -> Next {
        let open = matches!(self, Self::Recorded | Self::Background(_) | Self::Bared(_));
        match (self, why, demand) {
            // What is left to others is followed only where a call is open.
            (_, NotAsked::Ignored { .. }, _) => {
                if open {
                    Next::Poll
                } else {
                    Next::Drop
                }
            }
            (Self::Waiting, NotAsked::Reschedule(_), Demand::Wanted) => Next::GiveNodeBack,
            (state, NotAsked::Reschedule(_), Demand::Wanted) if state.is_loosened() => {
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
        matches!(self, Self::Recorded | Self::Background(_) | Self::Bared(_))
    }

    /// Nobody follows the open call any longer: `Recorded | Background | Bared => Suspect`. What is in memory and
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
    const OPEN: Option<Open> = Some(Open { row: None, loosened: false, recorded: false });

    fn finals(demand: Demand, finals: u32, since: Instant) -> ClaimState {
        let row = Some(Row { demand, finals, since });
        ClaimState::Background(Open { row, loosened: false, recorded: false })
    }

    fn background() -> ClaimState {
        ClaimState::Background(Open::default())
    }

    /// Every outcome, with and without an open call before it, wanted and withdrawn.
    #[tokio::test(start_paused = true)]
    async fn answers_lead_where_the_table_says() {
        let now = Instant::now();
        let waiting = || ClaimState::Waiting;
        let finished = || Outcome::Final(failure());
        let once = |demand| finals(demand, 1, now);
        let unsent = || Outcome::Unsent(failure());
        let table = [
            (FRESH, Outcome::Background(failure()), Wanted, background(), Next::Poll),
            (FRESH, Outcome::Background(failure()), Withdrawn, background(), Next::Poll),
            (OPEN, Outcome::Background(failure()), Withdrawn, background(), Next::Poll),
            (FRESH, finished(), Wanted, waiting(), Next::Retry),
            (FRESH, finished(), Withdrawn, waiting(), Next::Drop),
            (FRESH, unsent(), Wanted, waiting(), Next::Poll),
            (FRESH, unsent(), Withdrawn, waiting(), Next::Drop),
            (OPEN, unsent(), Wanted, background(), Next::Poll),
            (OPEN, unsent(), Withdrawn, background(), Next::Poll),
            (OPEN, finished(), Wanted, once(Wanted), Next::Retry),
            (OPEN, finished(), Withdrawn, once(Withdrawn), Next::Retry),
            (OPEN, Outcome::Final(failure().inconclusive()), Withdrawn, background(), Next::Retry),
            (FRESH, Outcome::Infeasible(failure()), Wanted, waiting(), Next::Rest),
            (OPEN, Outcome::Infeasible(failure()), Wanted, once(Wanted), Next::Rest),
            (OPEN, Outcome::Infeasible(failure()), Withdrawn, once(Withdrawn), Next::Retry),
            (FRESH, Outcome::Reschedule(failure()), Wanted, waiting(), Next::GiveNodeBack),
            (FRESH, Outcome::Reschedule(failure()), Withdrawn, waiting(), Next::Drop),
            (OPEN, Outcome::Reschedule(failure()), Wanted, once(Wanted), Next::Retry),
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
            (loosened(), reschedule(), Wanted, Next::GiveNodeBack),
            (loosened(), reschedule(), Withdrawn, Next::Retry),
            (ClaimState::Recorded, ignored(), Wanted, Next::Poll),
            (ClaimState::Recorded, failed(), Withdrawn, Next::Retry),
            (ClaimState::Recorded, reschedule(), Wanted, Next::Retry),
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
        assert_eq!(step(120), (ClaimState::Waiting, Next::ClosedByErrors));
    }

    fn loosened() -> ClaimState {
        ClaimState::Background(Open { row: None, loosened: true, recorded: false })
    }

    /// Three finals over two minutes let the node of a wanted claim go; its call stays open.
    #[tokio::test(start_paused = true)]
    async fn a_wanted_claims_call_stays_open_and_its_node_may_be_given_back() {
        let start = Instant::now();
        let mut state = background();
        let answers = [(0, Next::Retry), (60, Next::Retry), (120, Next::GiveNodeBack)];
        for (after, expected) in answers {
            let now = start + Duration::from_secs(after);
            let outcome = Outcome::Reschedule(failure());
            let (after_answer, next) = state.called().answered(&outcome, Wanted, now);
            assert_eq!((next, after_answer.is_loosened()), (expected, after == 120));
            assert!(after_answer.is_open());
            state = after_answer;
        }
        let interrupted = Outcome::Background(failure());
        let (state, _) = state.called().answered(&interrupted, Wanted, start);
        assert!(!state.is_loosened(), "the next call is open in its turn");
    }

    /// What a live claim was answered does not count once it is deleted.
    #[tokio::test(start_paused = true)]
    async fn finals_are_counted_from_the_deletion_on() {
        let start = Instant::now();
        let later = start + Duration::from_secs(3600);
        let refused = || Outcome::Final(failure());
        let state = finals(Wanted, 7, start);
        let (state, next) = state.called().answered(&refused(), Withdrawn, later);
        assert_eq!((state, next), (finals(Withdrawn, 1, later), Next::Retry));
    }

    #[tokio::test(start_paused = true)]
    async fn codes_that_say_nothing_neither_count_nor_break_a_row() {
        let start = Instant::now();
        let two = || finals(Withdrawn, 2, start);
        let silent = Outcome::Final(failure().inconclusive());
        let late = start + CLOSING_TIME;
        assert_eq!(two().called().answered(&silent, Withdrawn, late), (two(), Next::Retry));
        let third = two().called().answered(&Outcome::Final(failure()), Withdrawn, late);
        assert_eq!(third, (ClaimState::Waiting, Next::ClosedByErrors));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_end_starts_the_count_of_finals_again() {
        let counted = finals(Withdrawn, 2, Instant::now());
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

    #[tokio::test(start_paused = true)]
    async fn a_record_opens_what_waits_and_giving_up_ends_what_is_only_asked_after() {
        let others = || [saving("h"), unusable(), ClaimState::Suspect, ClaimState::Done];
        let recorded = || ClaimState::Waiting.recorded();
        assert_eq!(recorded(), ClaimState::Recorded);
        assert!(recorded().is_open() && recorded().may_call());
        assert_eq!(recorded().unrecorded(), ClaimState::Waiting, "the record is gone");
        assert_eq!(ClaimState::Waiting.called().recorded(), background().called());
        assert_eq!(background().unrecorded(), background(), "asked for by this process");
        let ended = |outcome| recorded().called().answered(&outcome, Wanted, Instant::now()).0;
        assert_eq!(ended(Outcome::Unsent(failure())), recorded(), "nothing was sent");
        let inconclusive = Outcome::Final(failure().inconclusive());
        for outcome in [Outcome::Background(failure()), inconclusive] {
            assert_eq!(ended(outcome), background(), "this process has asked for it now");
        }
        for state in [recorded(), background()] {
            assert_eq!(state.given_up(), ClaimState::Suspect);
        }
        for state in others() {
            let [again, given_up] = [state.clone().recorded(), state.clone().given_up()];
            assert_eq!((again, given_up), (state.clone(), state));
        }
        assert_eq!(ClaimState::Waiting.given_up(), ClaimState::Waiting);
        let counted = finals(Withdrawn, 2, Instant::now());
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
        assert_eq!(ended, (finals(Wanted, 1, Instant::now()), Next::Retry));
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
