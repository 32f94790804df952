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
        let with_node =
            if code == Code::ResourceExhausted { ("reschedule", false) } else { expected };
        let got =
            [false, true].map(|may| kind(&create_outcome(&CallError::driver(code, "m"), may)));
        assert_eq!(got, [expected, with_node], "{code:?}");
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
        let outcome = create_outcome(&CallError::local(code, "m"), true);
        assert_eq!(kind(&outcome), ("background", false), "{code:?}");
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
}

impl Case {
    /// Every code with every combination of the other fields.
    fn all() -> impl Iterator<Item = Self> {
        (1..=16).flat_map(|code| (0..8_u8).map(move |bits| Self::of(Code::from(code), bits)))
    }

    fn of(code: Code, bits: u8) -> Self {
        let bit = |number: u8| bits >> number & 1 == 1;
        let demand = if bit(2) { Withdrawn } else { Wanted };
        Self { code, is_drivers: bit(0), may_reschedule: bit(1), demand }
    }

    /// The state and next step after the failure of a call at this time.
    fn follows(self, before: ClaimState, now: Instant) -> (ClaimState, Next) {
        let make = if self.is_drivers { CallError::driver } else { CallError::local };
        let outcome = create_outcome(&make(self.code, "m"), self.may_reschedule);
        before.on(Transition::CallStarted).after(&outcome, self.demand, now)
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
}

/// A call whose outcome is unknown, without a terminal error since.
fn open() -> ClaimState {
    ClaimState::Waiting.on(Transition::CallStarted).on(Transition::Interrupted)
}

#[tokio::test(start_paused = true)]
async fn a_call_of_unknown_end_is_always_repeated() {
    for case in Case::all().filter(|case| !case.tells_the_end()) {
        for before in [open(), ClaimState::Waiting] {
            let follows = case.follows(before, Instant::now());
            assert_eq!(follows, (open(), Next::Repeat), "{case:?}");
        }
    }
}

/// Three equal answers to a repeated open call, over two minutes.
#[tokio::test(start_paused = true)]
async fn an_earlier_call_is_closed_by_three_final_answers_once_the_claim_is_deleted() {
    for case in Case::all() {
        let start = Instant::now();
        let (mut state, mut next) = (open(), Next::Repeat);
        for after in [0, 60, 120].map(Duration::from_secs) {
            assert!(state.is_open(), "{case:?}: closed before {after:?}");
            (state, next) = case.follows(state, start + after);
        }
        let tells = case.tells_the_end() && !case.tells_nothing_of_earlier_calls();
        let closes = tells && case.demand == Withdrawn;
        assert_eq!(state == ClaimState::Waiting, closes, "{case:?}: {state:?}");
        assert_eq!(next == Next::ClosedByErrors, closes, "{case:?}: {next:?}");
    }
}
