use super::*;
use crate::controller::provisioner::{Failure, ProvisionedVolume};
use Demand::{Wanted, Withdrawn};
use Transition::{
    CallStarted, Discarded, FoundBound, GivenUp, Interrupted, LeakSuspected, NodeGivenBack,
    PvDeleted, PvFound, PvGone, PvRefused, RecordDropped, RecordFound, Saved,
};

fn failure() -> Failure {
    Failure::new("why")
}

/// No call was open before.
const FRESH: Option<OpenCall> = None;
/// A call was open before.
const OPEN: Option<OpenCall> =
    Some(OpenCall { errors: None, accepts_changes: false, is_only_recorded: false });

fn errors(demand: Demand, count: u32, since: Instant) -> ClaimState {
    let errors = Some(TerminalErrors { demand, count, since });
    ClaimState::Background(OpenCall { errors, accepts_changes: false, is_only_recorded: false })
}

fn background() -> ClaimState {
    ClaimState::Background(OpenCall::default())
}

/// Every outcome, with and without an open call before it, wanted and withdrawn.
#[tokio::test(start_paused = true)]
async fn the_table_of_outcomes_and_next_states() {
    let now = Instant::now();
    let waiting = || ClaimState::Waiting;
    let finished = || Outcome::Refused(failure(), Next::Retry);
    let once = |demand| errors(demand, 1, now);
    let unsent = || Outcome::Unsent(failure());
    let table = [
        (FRESH, Outcome::Background(failure()), Wanted, background(), Next::Repeat),
        (FRESH, Outcome::Background(failure()), Withdrawn, background(), Next::Repeat),
        (OPEN, Outcome::Background(failure()), Withdrawn, background(), Next::Repeat),
        (FRESH, finished(), Wanted, waiting(), Next::Retry),
        (FRESH, finished(), Withdrawn, waiting(), Next::Drop),
        (FRESH, unsent(), Wanted, waiting(), Next::Repeat),
        (FRESH, unsent(), Withdrawn, waiting(), Next::Drop),
        (OPEN, unsent(), Wanted, background(), Next::Repeat),
        (OPEN, unsent(), Withdrawn, background(), Next::Repeat),
        (OPEN, finished(), Wanted, once(Wanted), Next::Retry),
        (OPEN, finished(), Withdrawn, once(Withdrawn), Next::Retry),
        (
            OPEN,
            Outcome::Refused(failure().inconclusive(), Next::Retry),
            Withdrawn,
            background(),
            Next::Retry,
        ),
        (FRESH, Outcome::Refused(failure(), Next::Rest), Wanted, waiting(), Next::Rest),
        (OPEN, Outcome::Refused(failure(), Next::Rest), Wanted, once(Wanted), Next::Rest),
        (OPEN, Outcome::Refused(failure(), Next::Rest), Withdrawn, once(Withdrawn), Next::Retry),
        (
            FRESH,
            Outcome::Refused(failure(), Next::GiveNodeBack),
            Wanted,
            waiting(),
            Next::GiveNodeBack,
        ),
        (FRESH, Outcome::Refused(failure(), Next::GiveNodeBack), Withdrawn, waiting(), Next::Drop),
        (OPEN, Outcome::Refused(failure(), Next::GiveNodeBack), Wanted, once(Wanted), Next::Retry),
    ];
    for (earlier, outcome, demand, state, next) in table {
        let got = ClaimState::InFlight { earlier, has_pv: false }.after(&outcome, demand, now);
        assert_eq!(got, (state, next), "{earlier:?} {outcome:?} {demand:?}");
    }
}

#[test]
fn an_attempt_that_fails_before_its_call_is_repeated_while_it_is_needed() {
    let waiting = || ClaimState::Waiting;
    let ignored = || NotPrepared::Ignored { kind: "Book".into(), reason: "r".into() };
    let failed = || NotPrepared::Failed(failure());
    let reschedule = || NotPrepared::Reschedule(failure());
    let table = [
        (waiting(), ignored(), Wanted, Next::Drop),
        (waiting(), failed(), Wanted, Next::Retry),
        (waiting(), failed(), Withdrawn, Next::Drop),
        (background(), ignored(), Wanted, Next::Repeat),
        (background(), failed(), Wanted, Next::Retry),
        (background(), failed(), Withdrawn, Next::Retry),
        (ClaimState::Done, failed(), Wanted, Next::Drop),
        (saving("h"), failed(), Wanted, Next::Drop),
        (waiting(), reschedule(), Wanted, Next::GiveNodeBack),
        (waiting(), reschedule(), Withdrawn, Next::Drop),
        (background(), reschedule(), Wanted, Next::Retry),
        (accepts_changes(), reschedule(), Wanted, Next::GiveNodeBack),
        (accepts_changes(), reschedule(), Withdrawn, Next::Retry),
        (ClaimState::Recorded, ignored(), Wanted, Next::Repeat),
        (ClaimState::Recorded, failed(), Withdrawn, Next::Retry),
        (ClaimState::Recorded, reschedule(), Wanted, Next::Retry),
    ];
    for (state, why, demand, next) in table {
        let what = format!("{state:?} {why:?} {demand:?}");
        let same = state.clone();
        assert_eq!(
            state.after(&Outcome::NotPrepared(why), demand, Instant::now()),
            (same, next),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_saved_even_if_its_claim_is_withdrawn() {
    for demand in [Wanted, Withdrawn] {
        let provisioned = Outcome::Provisioned(Box::new(provisioned("h")));
        let (state, next) =
            ClaimState::Waiting.on(CallStarted).after(&provisioned, demand, Instant::now());
        assert_eq!((state, next), (saving("h"), Next::Save));
    }
}

fn unusable_volume() -> UnusableVolume {
    UnusableVolume {
        handle: "h".into(),
        credentials: crate::controller::model::unusable_volume::Credentials::default(),
        defect: failure(),
        orphaned: failure(),
    }
}

fn unusable() -> ClaimState {
    ClaimState::Unusable(Box::new(unusable_volume()))
}

#[tokio::test(start_paused = true)]
async fn an_unusable_volume_is_removed_before_anything_else() {
    for (demand, has_pv) in [(Wanted, false), (Withdrawn, false), (Wanted, true)] {
        let in_flight = ClaimState::InFlight { earlier: OPEN, has_pv };
        let (state, next) = in_flight.after(
            &Outcome::Unusable(Box::new(unusable_volume())),
            demand,
            Instant::now(),
        );
        assert_eq!((&state, next), (&unusable(), Next::Discard));
        assert!(state.is_open() && !state.may_call());
        // Only its removal or a suspected leak changes the state.
        for other in [
            state.clone().on(CallStarted),
            state.clone().on(PvFound("h")),
            state.clone().on(PvDeleted),
            state.clone().on(Interrupted),
            state.clone().on(Saved),
        ] {
            assert_eq!(other, state);
        }
        assert_eq!(state.clone().on(Discarded), ClaimState::Waiting);
        let suspect = state.on(LeakSuspected);
        assert!(
            !suspect.is_open() && !suspect.may_call() && suspect.clone().on(PvDeleted) == suspect
        );
    }
}

#[test]
fn only_an_unusable_volume_is_discarded_or_suspected() {
    assert_eq!(saving("h").on(PvRefused(Box::new(unusable_volume()))), unusable());
    for state in [ClaimState::Waiting, background(), ClaimState::Done] {
        assert_eq!(state.clone().on(PvRefused(Box::new(unusable_volume()))), state);
    }
    for state in [ClaimState::Waiting, background(), saving("h"), ClaimState::Done] {
        assert_eq!(state.clone().on(Discarded), state);
        assert_eq!(state.clone().on(LeakSuspected), state);
    }
}

#[tokio::test(start_paused = true)]
async fn three_final_answers_over_two_minutes_close_the_call_of_a_withdrawn_claim() {
    let mut state = background();
    let mut step = |after: u64| {
        let now = Instant::now() + Duration::from_secs(after);
        let (next_state, next) = std::mem::take(&mut state).on(CallStarted).after(
            &Outcome::Refused(failure(), Next::Retry),
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

fn accepts_changes() -> ClaimState {
    ClaimState::Background(OpenCall {
        errors: None,
        accepts_changes: true,
        is_only_recorded: false,
    })
}

/// After three terminal errors over two minutes the node of a wanted claim may be given back.
#[tokio::test(start_paused = true)]
async fn the_call_of_a_wanted_claim_stays_open_and_its_node_may_be_given_back() {
    let start = Instant::now();
    let mut state = background();
    let answers = [(0, Next::Retry), (60, Next::Retry), (120, Next::GiveNodeBack)];
    for (after, expected) in answers {
        let now = start + Duration::from_secs(after);
        let outcome = Outcome::Refused(failure(), Next::GiveNodeBack);
        let (after_answer, next) = state.on(CallStarted).after(&outcome, Wanted, now);
        assert_eq!((next, after_answer.accepts_changes()), (expected, after == 120));
        assert!(after_answer.is_open());
        state = after_answer;
    }
    let interrupted = Outcome::Background(failure());
    let (state, _) = state.on(CallStarted).after(&interrupted, Wanted, start);
    assert!(!state.accepts_changes(), "the next call is open in its turn");
}

/// Final answers for a live claim do not count once it is deleted.
#[tokio::test(start_paused = true)]
async fn final_answers_are_counted_from_the_deletion_on() {
    let start = Instant::now();
    let later = start + Duration::from_secs(3600);
    let refused = || Outcome::Refused(failure(), Next::Retry);
    let state = errors(Wanted, 7, start);
    let (state, next) = state.on(CallStarted).after(&refused(), Withdrawn, later);
    assert_eq!((state, next), (errors(Withdrawn, 1, later), Next::Retry));
}

#[tokio::test(start_paused = true)]
async fn inconclusive_codes_neither_count_nor_reset_the_count() {
    let start = Instant::now();
    let two = || errors(Withdrawn, 2, start);
    let silent = Outcome::Refused(failure().inconclusive(), Next::Retry);
    let late = start + CLOSING_TIME;
    assert_eq!(two().on(CallStarted).after(&silent, Withdrawn, late), (two(), Next::Retry));
    let third =
        two().on(CallStarted).after(&Outcome::Refused(failure(), Next::Retry), Withdrawn, late);
    assert_eq!(third, (ClaimState::Waiting, Next::ClosedByErrors));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_resets_the_count_of_final_answers() {
    let counted = errors(Withdrawn, 2, Instant::now());
    let (state, _) =
        counted.on(CallStarted).after(&Outcome::Background(failure()), Withdrawn, Instant::now());
    assert_eq!(state, background());
}

#[test]
fn other_transitions_change_only_the_states_they_concern() {
    let in_flight = ClaimState::Waiting.on(CallStarted);
    assert_eq!(in_flight.clone().on(CallStarted), in_flight);
    assert_eq!(in_flight.clone().on(PvFound("h")).on(PvDeleted), in_flight);
    assert_eq!(in_flight.on(Interrupted), background());
    assert_eq!(background().on(PvFound("h")), ClaimState::Done);
    assert_eq!(ClaimState::Done.on(PvDeleted), ClaimState::Waiting);
    assert_eq!(background().on(PvDeleted), background());
    assert_eq!(ClaimState::Done.on(CallStarted), ClaimState::Done);
    assert!(
        !ClaimState::Done.may_call() && background().may_call() && ClaimState::Waiting.may_call()
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_opens_a_waiting_claim_and_giving_up_ends_an_unknown_call() {
    let others = || [saving("h"), unusable(), ClaimState::SuspectedLeak, ClaimState::Done];
    let recorded = || ClaimState::Waiting.on(RecordFound);
    assert_eq!(recorded(), ClaimState::Recorded);
    assert!(recorded().is_open() && recorded().may_call());
    assert_eq!(recorded().on(RecordDropped), ClaimState::Waiting, "the record is gone");
    assert_eq!(ClaimState::Waiting.on(CallStarted).on(RecordFound), background().on(CallStarted));
    assert_eq!(background().on(RecordDropped), background(), "this process has made the call");
    let ended = |outcome| recorded().on(CallStarted).after(&outcome, Wanted, Instant::now()).0;
    assert_eq!(ended(Outcome::Unsent(failure())), recorded(), "nothing was sent");
    let inconclusive = Outcome::Refused(failure().inconclusive(), Next::Retry);
    for outcome in [Outcome::Background(failure()), inconclusive] {
        assert_eq!(ended(outcome), background(), "this process has made the call now");
    }
    for state in [recorded(), background()] {
        assert_eq!(state.on(GivenUp), ClaimState::SuspectedLeak);
    }
    for state in others() {
        let [again, given_up] = [state.clone().on(RecordFound), state.clone().on(GivenUp)];
        assert_eq!((again, given_up), (state.clone(), state));
    }
    assert_eq!(ClaimState::Waiting.on(GivenUp), ClaimState::Waiting);
    assert_eq!(background().on(NodeGivenBack), ClaimState::Waiting, "any node may be asked anew");
    let counted = errors(Withdrawn, 2, Instant::now());
    assert_eq!(counted.clone().on(RecordFound), counted, "its errors still count");
}

fn provisioned(handle: &str) -> ProvisionedVolume {
    let volume = serde_json::json!({"spec": {"csi": {"driver": "d", "volumeHandle": handle}}});
    let volume = serde_json::from_value(volume).unwrap();
    ProvisionedVolume { volume, ..ProvisionedVolume::default() }
}

/// In paused time all states of this handle are equal.
fn saving(handle: &str) -> ClaimState {
    ClaimState::Saving(Arc::new(UnsavedVolume::new(&provisioned(handle), Instant::now())))
}

#[tokio::test(start_paused = true)]
async fn only_its_own_persistent_volume_saves_a_volume() {
    assert_eq!(saving("h").on(PvFound("h")).on(Saved), ClaimState::Done);
    assert_eq!(saving("h").on(PvFound("other")), saving("h"));
    assert_eq!(saving("h").on(Interrupted), saving("h"));
    assert_eq!(saving("h").on(Saved), ClaimState::Done);
    assert_eq!(saving("h").on(PvGone("h")), pv_gone());
    assert_eq!(ClaimState::Done.on(PvGone("h")), ClaimState::Done);
    let seen_and_gone = saving("h").on(PvFound("h")).on(PvDeleted);
    assert_eq!(seen_and_gone.on(Saved), ClaimState::Waiting, "a late answer to the POST");
}

fn pv_gone() -> ClaimState {
    ClaimState::PvGone("h".into())
}

/// The volume may still exist, so its call counts as a repeat of an open one.
#[tokio::test(start_paused = true)]
async fn a_volume_that_may_be_gone_is_requested_again_or_suspected() {
    assert!(pv_gone().may_call() && pv_gone().is_open());
    assert_eq!(pv_gone().on(PvFound("h")), ClaimState::Done);
    assert_eq!(pv_gone().on(FoundBound), pv_gone(), "which may not be that one");
    for state in [ClaimState::Waiting, background()] {
        assert_eq!(state.on(FoundBound), ClaimState::Done);
    }
    assert_eq!(pv_gone().on(LeakSuspected), ClaimState::SuspectedLeak);
    assert_eq!(pv_gone().on(GivenUp), ClaimState::SuspectedLeak);
    for other in [pv_gone().on(PvDeleted), pv_gone().on(RecordFound), pv_gone().on(Interrupted)] {
        assert_eq!(other, pv_gone());
    }
    let reschedule = NotPrepared::Reschedule(failure());
    let not_prepared = Outcome::NotPrepared(reschedule);
    assert_eq!(pv_gone().after(&not_prepared, Wanted, Instant::now()), (pv_gone(), Next::Retry));
    let refused = Outcome::Refused(failure(), Next::Retry);
    let ended = pv_gone().on(CallStarted).after(&refused, Wanted, Instant::now());
    assert_eq!(ended, (errors(Wanted, 1, Instant::now()), Next::Retry));
}

#[tokio::test(start_paused = true)]
async fn a_persistent_volume_seen_during_a_call_makes_the_claim_done_after_the_call() {
    for outcome in [
        Outcome::Background(failure()),
        Outcome::Refused(failure(), Next::Retry),
        Outcome::Refused(failure(), Next::GiveNodeBack),
    ] {
        let seen = background().on(CallStarted).on(PvFound("h"));
        let ended = seen.after(&outcome, Wanted, Instant::now());
        assert_eq!(ended, (ClaimState::Done, Next::Drop), "{outcome:?}");
    }
    let seen = ClaimState::Waiting.on(CallStarted).on(PvFound("h"));
    assert_eq!(seen.clone().on(Interrupted), ClaimState::Done);
    let provisioned = Outcome::Provisioned(Box::default());
    assert_eq!(seen.after(&provisioned, Wanted, Instant::now()).1, Next::Save);
}
