//! Which failures are a claim's own, and which show an overload.

use super::*;
use Congestion::{Bearable, Locked, Refused, TimedOut, Unknown};

/// The calls of one class and the time.
struct Calls {
    calls: RunningCalls,
    now: Instant,
}

impl Calls {
    fn new() -> Self {
        Self { calls: RunningCalls::default(), now: Instant::now() }
    }

    fn begin(&mut self, count: usize) -> Vec<Call> {
        (0..count).map(|_| self.calls.begin(Line::First, self.now)).collect()
    }

    fn end(&mut self, call: Call, congestion: Congestion) -> Signal {
        self.calls.end(call, congestion, self.now)
    }

    fn end_all(&mut self, calls: Vec<Call>, congestion: Congestion) {
        for call in calls {
            self.end(call, congestion);
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_others_overtake_is_its_claims_own_trouble() {
    for congestion in [TimedOut, Refused, Locked] {
        let mut calls = Calls::new();
        let bad = calls.begin(1).remove(0);
        let good = calls.begin(4);
        calls.wait(1);
        calls.end_all(good, Bearable);
        calls.wait(9);
        assert_eq!(calls.end(bad, congestion), Signal::OwnTrouble, "{congestion:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_time_out_behind_those_that_are_served_show_an_overload() {
    let mut calls = Calls::new();
    let (served, waiting) = (calls.begin(4), calls.begin(6));
    calls.wait(5);
    calls.end_all(served, Bearable);
    calls.begin(4);
    calls.wait(5);
    assert_eq!(calls.end(waiting[0], TimedOut), Signal::Failure { served: 4 });
}

#[tokio::test(start_paused = true)]
async fn few_that_overtake_many_prove_nothing() {
    for (waiting, expected) in [(8, Signal::OwnTrouble), (9, Signal::Failure { served: 2 })] {
        let mut calls = Calls::new();
        let failing = calls.begin(1).remove(0);
        let lucky = calls.begin(2);
        calls.begin(waiting);
        calls.wait(5);
        calls.end_all(lucky, Bearable);
        calls.wait(5);
        calls.begin(50);
        assert_eq!(calls.end(failing, TimedOut), expected, "{waiting} beside many young ones");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_beside_no_more_calls_than_succeed_is_the_claims_own_trouble() {
    let mut calls = Calls::new();
    let begun = calls.begin(5);
    calls.end(begun[3], Bearable);
    for (call, expected) in [(2, Signal::OwnTrouble), (4, Signal::Failure { served: 0 })] {
        assert_eq!(calls.end(begun[call], Refused), expected, "call {call}");
    }
    // Two rounds later that proves nothing any more.
    for _ in 0..3 {
        let refused = calls.begin(5);
        calls.end_all(refused, Refused);
    }
    let late = calls.begin(1).remove(0);
    assert_eq!(calls.end(late, Refused), Signal::Failure { served: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_refuses_most_shows_how_many_it_accepts() {
    for (refused, expected) in [(15, None), (16, Some(4))] {
        let mut calls = Calls::new();
        let accepted = calls.begin(4);
        let others = calls.begin(refused);
        calls.end_all(others, Refused);
        calls.wait(1);
        let verdicts = accepted.into_iter().map(|call| calls.end(call, Bearable));
        let expected = Signal::Success { accepted: expected };
        assert!(verdicts.into_iter().all(|signal| signal == expected), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_repeats_and_unused_permits_say_nothing() {
    let mut calls = Calls::new();
    let good = calls.begin(1).remove(0);
    for _ in 0..10 {
        let repeat = calls.calls.begin(Line::Repeat, calls.now);
        assert_eq!((calls.calls.running(), calls.calls.repeats()), (2, 1));
        calls.end(repeat, Locked);
        let unused = calls.begin(1).remove(0);
        assert_eq!(calls.end(unused, Unknown), Signal::Unknown);
    }
    calls.wait(1);
    assert_eq!(calls.end(good, Bearable), Signal::Success { accepted: None });
    assert_eq!((calls.calls.running(), calls.calls.repeats()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_answered_at_once_says_nothing_unless_all_are() {
    let mut calls = Calls::new();
    let slow = calls.begin(1).remove(0);
    calls.wait(5);
    assert_eq!(calls.end(slow, Bearable), Signal::Success { accepted: None });
    let waits = calls.begin(9)[0];
    let mut repeat = || {
        let call = calls.calls.begin(Line::Repeat, calls.now);
        calls.now += Duration::from_millis(10);
        calls.end(call, Bearable)
    };
    let quick = (0..100).take_while(|_| repeat() == Signal::AlreadyDone).count();
    assert_eq!(quick, 32, "the usual time is less than eight times as long then");
    assert_eq!(
        calls.end(waits, TimedOut),
        Signal::Failure { served: 1 },
        "one overtakes it, and not 33"
    );
}
