use super::*;
use crate::controller::provisioner::{Failure, ProvisionedVolume};
use Demand::{Wanted, Withdrawn};
use Transition::{
    CallStarted, Discarded, FoundBound, GivenUp, Interrupted, LeakSuspected, NodeGivenBack,
    PvDeleted, PvFound, PvGone, PvLetGo, PvRefused, RecordDropped, RecordFound, Saved,
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

#[tokio::test(start_paused = true)]
async fn the_table_of_outcomes_and_next_states() {
    let now = Instant::now();
    let waiting = || ClaimState::Waiting;
    let refused = |next| Outcome::Refused(failure(), next);
    let finished = || refused(Next::Retry);
    let inconclusive = || Outcome::Refused(failure().inconclusive(), Next::Retry);
    let once = |demand| errors(demand, 1, now);
    let unsent = || Outcome::Unsent(failure());
    let unknown = || Outcome::Background(failure());
    let made = || Outcome::Provisioned(Box::new(provisioned("h")));
    let full = || refused(Next::GiveNodeBack);
    let table = [
        (FRESH, made(), Wanted, saving("h"), Next::Save),
        (FRESH, made(), Withdrawn, saving("h"), Next::Save),
        (FRESH, unknown(), Wanted, background(), Next::Repeat),
        (FRESH, unknown(), Withdrawn, background(), Next::Repeat),
        (OPEN, unknown(), Withdrawn, background(), Next::Repeat),
        (FRESH, finished(), Wanted, waiting(), Next::Retry),
        (FRESH, finished(), Withdrawn, waiting(), Next::Drop),
        (FRESH, unsent(), Wanted, waiting(), Next::Repeat),
        (FRESH, unsent(), Withdrawn, waiting(), Next::Drop),
        (OPEN, unsent(), Wanted, background(), Next::Repeat),
        (OPEN, unsent(), Withdrawn, background(), Next::Repeat),
        (OPEN, finished(), Wanted, once(Wanted), Next::Retry),
        (OPEN, finished(), Withdrawn, once(Withdrawn), Next::Retry),
        (OPEN, inconclusive(), Withdrawn, background(), Next::Retry),
        (FRESH, refused(Next::Rest), Wanted, waiting(), Next::Rest),
        (OPEN, refused(Next::Rest), Wanted, once(Wanted), Next::Rest),
        (OPEN, refused(Next::Rest), Withdrawn, once(Withdrawn), Next::Retry),
        (FRESH, full(), Wanted, waiting(), Next::GiveNodeBack),
        (FRESH, full(), Withdrawn, waiting(), Next::Drop),
        (OPEN, full(), Wanted, once(Wanted), Next::Retry),
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
        let ended = state.after(&Outcome::NotPrepared(why), demand, Instant::now());
        assert_eq!(ended, (same, next), "{what}");
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
        let outcome = Outcome::Unusable(Box::new(unusable_volume()));
        let (state, next) = in_flight.after(&outcome, demand, Instant::now());
        assert_eq!((&state, next), (&unusable(), Next::Discard));
        assert!(state.is_open() && !state.may_call());
    }
    for other in [CallStarted, PvFound("h"), PvDeleted, Interrupted, Saved, RecordFound, GivenUp] {
        assert_eq!(unusable().on(other), unusable());
    }
    assert_eq!(unusable().on(Discarded), ClaimState::Waiting);
    assert_eq!(unusable().on(LeakSuspected), ClaimState::SuspectedLeak);
    assert!(!ClaimState::SuspectedLeak.is_open() && !ClaimState::SuspectedLeak.may_call());
}

#[tokio::test(start_paused = true)]
async fn three_final_answers_over_two_minutes_close_the_call_of_a_withdrawn_claim() {
    let start = Instant::now();
    let mut state = background();
    for after in [0, 10, 20, 119, 120] {
        let refused = Outcome::Refused(failure(), Next::Retry);
        let now = start + Duration::from_secs(after);
        let (then, next) = state.on(CallStarted).after(&refused, Withdrawn, now);
        let expected = if after == 120 { Next::ClosedByErrors } else { Next::Retry };
        assert_eq!((next, then.is_open()), (expected, after != 120), "after {after} s");
        state = then;
    }
    assert_eq!(state, ClaimState::Waiting);
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

#[tokio::test(start_paused = true)]
async fn transitions_change_only_the_states_they_concern() {
    use ClaimState::{Done, Recorded, SuspectedLeak, Waiting};
    let in_flight = || Waiting.on(CallStarted);
    let seen = || saving("h").on(PvFound("h"));
    let counted = || errors(Withdrawn, 2, Instant::now());
    let refused = || PvRefused(Box::new(unusable_volume()));
    let changes = [
        (in_flight(), Interrupted, background()),
        (in_flight().on(PvFound("h")), PvDeleted, in_flight()),
        (in_flight().on(PvFound("h")), Interrupted, Done),
        (in_flight(), RecordFound, background().on(CallStarted)),
        (background(), PvFound("h"), Done),
        (background(), FoundBound, Done),
        (background(), GivenUp, SuspectedLeak),
        // Any node may be asked anew.
        (background(), NodeGivenBack, Waiting),
        (Done, PvDeleted, Waiting),
        (Done, PvLetGo("h"), pv_gone()),
        (Waiting, FoundBound, Done),
        (Waiting, RecordFound, Recorded),
        (Recorded, RecordDropped, Waiting),
        (Recorded, GivenUp, SuspectedLeak),
        (saving("h"), Saved, Done),
        (seen(), Saved, Done),
        // A late answer to the POST.
        (seen().on(PvDeleted), Saved, Waiting),
        (saving("h"), PvGone("h"), pv_gone()),
        (saving("h"), refused(), unusable()),
        (pv_gone(), PvFound("h"), Done),
        (pv_gone(), LeakSuspected, SuspectedLeak),
        (pv_gone(), GivenUp, SuspectedLeak),
    ];
    for (state, transition, expected) in changes {
        let what = format!("{state:?} {transition:?}");
        assert_eq!(state.on(transition), expected, "{what}");
    }
    let none: [(ClaimState, Vec<Transition<'_>>); 9] = [
        (in_flight(), vec![CallStarted]),
        (
            background(),
            vec![PvDeleted, PvLetGo("h"), RecordDropped, refused(), Discarded, LeakSuspected],
        ),
        (counted(), vec![RecordFound]),
        (Waiting, vec![GivenUp, refused(), Discarded, LeakSuspected]),
        (SuspectedLeak, vec![PvDeleted, RecordFound, GivenUp]),
        (Done, vec![CallStarted, PvGone("h"), RecordFound, GivenUp, Discarded, LeakSuspected]),
        (Done, vec![refused()]),
        (
            saving("h"),
            vec![PvFound("other"), Interrupted, RecordFound, GivenUp, Discarded, LeakSuspected],
        ),
        // Which may be bound to another volume.
        (pv_gone(), vec![FoundBound, PvDeleted, PvLetGo("o"), RecordFound, Interrupted]),
    ];
    for (state, transitions) in none {
        for transition in transitions {
            let what = format!("{state:?} {transition:?}");
            assert_eq!(state.clone().on(transition), state, "{what}");
        }
    }
    for (state, may_call) in [(Done, false), (background(), true), (Waiting, true)] {
        assert_eq!(state.may_call(), may_call, "{state:?}");
    }
}

/// This process has made the call once something was sent.
#[test]
fn a_repeat_of_a_recorded_call_is_open_here() {
    assert!(ClaimState::Recorded.is_open() && ClaimState::Recorded.may_call());
    let inconclusive = Outcome::Refused(failure().inconclusive(), Next::Retry);
    for (outcome, expected) in [
        (Outcome::Unsent(failure()), ClaimState::Recorded),
        (Outcome::Background(failure()), background()),
        (inconclusive, background()),
    ] {
        let in_flight = ClaimState::Recorded.on(CallStarted);
        assert_eq!(in_flight.after(&outcome, Wanted, Instant::now()).0, expected);
    }
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

fn pv_gone() -> ClaimState {
    ClaimState::PvGone("h".into())
}

/// The volume may still exist, so its call counts as a repeat of an open one.
#[tokio::test(start_paused = true)]
async fn a_volume_that_may_be_gone_is_requested_again() {
    assert!(pv_gone().may_call() && pv_gone().is_open());
    let not_prepared = Outcome::NotPrepared(NotPrepared::Reschedule(failure()));
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
    let provisioned = Outcome::Provisioned(Box::default());
    assert_eq!(seen.after(&provisioned, Wanted, Instant::now()).1, Next::Save);
}
