use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::controller::claims::state::{
    ClaimState, Demand,
    Demand::{Wanted, Withdrawn},
    Transition,
};

/// The variant's name and whether it is inconclusive.
fn kind(outcome: &Outcome) -> (&'static str, bool) {
    match outcome {
        Outcome::Background(failure) => ("background", failure.is_inconclusive),
        Outcome::Refused(failure, Next::Rest) => ("infeasible", failure.is_inconclusive),
        Outcome::Refused(failure, Next::GiveNodeBack) => ("reschedule", failure.is_inconclusive),
        Outcome::Refused(failure, Next::Retry) => ("final", failure.is_inconclusive),
        other => panic!("{other:?}"),
    }
}

#[test]
fn driver_codes_have_external_provisioners_outcomes() {
    for code in (1..=16).map(Code::from) {
        let expected = match code {
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => {
                ("background", false)
            }
            Code::InvalidArgument => ("infeasible", false),
            Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied => ("final", true),
            _ => ("final", false),
        };
        assert_eq!(
            kind(&create_outcome(&CallError::driver(code, "m"), false)),
            expected,
            "{code:?}"
        );
        let with_node =
            if code == Code::ResourceExhausted { ("reschedule", false) } else { expected };
        assert_eq!(
            kind(&create_outcome(&CallError::driver(code, "m"), true)),
            with_node,
            "{code:?}"
        );
    }
}

#[test]
fn a_call_of_which_nothing_was_sent_opens_nothing() {
    for code in (1..=16).map(Code::from) {
        let outcome = create_outcome(&CallError::local(code, "m").unsent(), true);
        assert!(matches!(outcome, Outcome::Unsent(_)), "{code:?}: {outcome:?}");
    }
}

#[test]
fn local_errors_are_never_final() {
    for code in (1..=16).map(Code::from) {
        assert_eq!(
            kind(&create_outcome(&CallError::local(code, "m"), true)),
            ("background", false),
            "{code:?}"
        );
    }
}

/// A way in which CreateVolume can fail.
#[derive(Debug, Clone, Copy)]
struct Case {
    code: Code,
    /// Whether the driver sent the status; otherwise it is local.
    is_drivers: bool,
    may_reschedule: bool,
    /// Of the claim, when the answer arrives.
    demand: Demand,
    /// Whether the end of an earlier call is unknown.
    repeats: bool,
}

impl Case {
    /// Every code with every combination of the other fields.
    fn all() -> impl Iterator<Item = Self> {
        (1..=16).flat_map(|code| (0..16_u8).map(move |bits| Self::of(Code::from(code), bits)))
    }

    fn of(code: Code, bits: u8) -> Self {
        let bit = |number: u8| bits >> number & 1 == 1;
        let demand = if bit(2) { Withdrawn } else { Wanted };
        Self { code, is_drivers: bit(0), may_reschedule: bit(1), demand, repeats: bit(3) }
    }

    fn outcome(self) -> Outcome {
        let make = if self.is_drivers { CallError::driver } else { CallError::local };
        create_outcome(&make(self.code, "m"), self.may_reschedule)
    }

    /// The state of the claim before its call.
    fn before(self) -> ClaimState {
        if self.repeats { open() } else { ClaimState::Waiting }
    }

    /// The state and next step after the failure.
    fn follows(self) -> (ClaimState, Next) {
        self.before().on(Transition::CallStarted).after(
            &self.outcome(),
            self.demand,
            Instant::now(),
        )
    }

    /// Only the driver's own status says how a call ended, and some codes do not.
    fn tells_the_end(self) -> bool {
        let may_still_run =
            [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::Aborted];
        self.is_drivers && !may_still_run.contains(&self.code)
    }

    /// Whether the code says nothing about a volume of an earlier call.
    fn tells_nothing_of_earlier_calls(self) -> bool {
        [Code::AlreadyExists, Code::Unauthenticated, Code::PermissionDenied].contains(&self.code)
    }

    /// The next step for a claim that is still wanted, after a status of the driver.
    fn next_for_a_wanted_claim(self) -> Next {
        match self.code {
            Code::InvalidArgument => Next::Rest,
            Code::ResourceExhausted if self.may_reschedule && !self.repeats => Next::GiveNodeBack,
            _ => Next::Retry,
        }
    }
}

/// A call whose outcome is unknown, without a terminal error since.
fn open() -> ClaimState {
    ClaimState::Waiting.on(Transition::CallStarted).on(Transition::Interrupted)
}

#[tokio::test(start_paused = true)]
async fn a_call_of_unknown_end_is_always_repeated() {
    for case in Case::all().filter(|case| !case.tells_the_end()) {
        assert_eq!(case.follows(), (open(), Next::Repeat), "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_without_an_earlier_call_frees_the_claim_and_a_withdrawn_one_is_dropped() {
    for case in Case::all().filter(|case| case.tells_the_end() && !case.repeats) {
        let next = match case.demand {
            Wanted => case.next_for_a_wanted_claim(),
            Withdrawn => Next::Drop,
        };
        assert_eq!(case.follows(), (ClaimState::Waiting, next), "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_leaves_an_earlier_call_open_and_no_node_is_given_back() {
    for case in Case::all().filter(|case| case.tells_the_end() && case.repeats) {
        let (state, next) = case.follows();
        let expected = match case.demand {
            Wanted => case.next_for_a_wanted_claim(),
            Withdrawn => Next::Retry,
        };
        assert!(state.awaits_answer() && next == expected, "{case:?}: {state:?}, {next:?}");
        assert_ne!(next, Next::GiveNodeBack);
    }
}

/// Three equal answers to a repeated open call, over two minutes.
#[tokio::test(start_paused = true)]
async fn an_earlier_call_is_closed_by_three_final_answers_once_the_claim_is_deleted() {
    for case in Case::all().filter(|case| case.repeats) {
        let start = Instant::now();
        let mut state = case.before();
        let mut next = Next::Repeat;
        for after in [0, 60, 120].map(Duration::from_secs) {
            assert!(state.is_open(), "{case:?}: closed before {after:?}");
            (state, next) = state.on(Transition::CallStarted).after(
                &case.outcome(),
                case.demand,
                start + after,
            );
        }
        let closes = case.tells_the_end()
            && case.demand == Withdrawn
            && !case.tells_nothing_of_earlier_calls();
        assert_eq!(state == ClaimState::Waiting, closes, "{case:?}: {state:?}");
        assert_eq!(next == Next::ClosedByErrors, closes, "{case:?}: {next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_failure_matters_once_the_claims_volume_was_seen() {
    for case in Case::all() {
        let seen = case.before().on(Transition::CallStarted).on(Transition::PvFound("h"));
        let (state, next) = seen.after(&case.outcome(), case.demand, Instant::now());
        assert_eq!((state, next), (ClaimState::Done, Next::Drop), "{case:?}");
    }
}
