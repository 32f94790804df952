use super::*;
use crate::controller::provisioner::{Failure, ProvisionedVolume};
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
    let ignored = || NotSent::Ignored { reason: "r".into() };
    let failed = || NotSent::Failed(failure());
    let reschedule = || NotSent::Reschedule(failure());
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
        let made = Outcome::Provisioned(Box::new(ProvisionedVolume {
            volume,
            ..ProvisionedVolume::default()
        }));
        let (state, next) = ClaimState::Waiting.called().answered(&made, demand, Instant::now());
        assert_eq!((state, next), (saving("h"), Next::Save));
    }
}

fn leftover() -> UnusableVolume {
    UnusableVolume {
        handle: "h".into(),
        credentials: crate::controller::model::unusable_volume::Credentials::default(),
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
        let (state, next) =
            in_flight.answered(&Outcome::Unusable(Box::new(leftover())), demand, Instant::now());
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
            !suspect.is_open() && !suspect.may_call() && suspect.clone().volume_gone() == suspect
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
        !ClaimState::Done.may_call() && background().may_call() && ClaimState::Waiting.may_call()
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
    ClaimState::PvGone("h".into())
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
    let reschedule = NotSent::Reschedule(failure());
    assert_eq!(bared().not_asked(&reschedule, Wanted), Next::Retry);
    let refused = Outcome::Final(failure());
    let ended = bared().called().answered(&refused, Wanted, Instant::now());
    assert_eq!(ended, (finals(Wanted, 1, Instant::now()), Next::Retry));
}

#[tokio::test(start_paused = true)]
async fn a_volume_seen_in_mid_call_ends_the_claim_once_the_call_has_ended() {
    for outcome in
        [Outcome::Background(failure()), Outcome::Final(failure()), Outcome::Reschedule(failure())]
    {
        let seen = background().called().volume_seen("h");
        let ended = seen.answered(&outcome, Wanted, Instant::now());
        assert_eq!(ended, (ClaimState::Done, Next::Drop), "{outcome:?}");
    }
    let seen = ClaimState::Waiting.called().volume_seen("h");
    assert_eq!(seen.clone().interrupted(), ClaimState::Done);
    let made = Outcome::Provisioned(Box::default());
    assert_eq!(seen.answered(&made, Wanted, Instant::now()).1, Next::Save);
}
