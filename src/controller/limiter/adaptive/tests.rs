//! Examples of the limit's rules, and a property that holds after any history.

use proptest::prelude::*;

use super::*;
use Congestion::{Bearable, Locked, Overload, Unknown};

/// Runs `count` concurrent calls that all end with this congestion; none is a repeat.
fn round(limit: &mut AdaptiveLimit, count: usize, congestion: Congestion) {
    let calls: Vec<_> = (0..count).map(|_| limit.begin()).collect();
    for call in calls {
        limit.end(call, congestion, false, Instant::now());
    }
}

/// Runs rounds of as many calls as the limit allows. Returns the limit after each round.
fn rounds(limit: &mut AdaptiveLimit, count: usize, congestion: Congestion) -> Vec<usize> {
    let run = |_| {
        round(limit, limit.limit(), congestion);
        limit.limit()
    };
    (0..count).map(run).collect()
}

/// The number of successful single calls until the limit is at its maximum.
fn recovery(limit: &mut AdaptiveLimit) -> usize {
    let mut calls = 0;
    while limit.limit() < limit.max && calls < 1_000_000 {
        round(limit, 1, Bearable);
        calls += 1;
    }
    calls
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_answers_gets_all_calls() {
    let mut limit = AdaptiveLimit::new(100);
    assert_eq!(rounds(&mut limit, 3, Bearable), [100, 100, 100]);
    assert!(limit.is_reset());
}

#[tokio::test(start_paused = true)]
async fn each_round_of_overload_halves_the_limit_down_to_one() {
    for congestion in [Overload, Locked] {
        let mut limit = AdaptiveLimit::new(100);
        assert_eq!(
            rounds(&mut limit, 8, congestion),
            [50, 25, 12, 6, 3, 1, 1, 1],
            "{congestion:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_began_before_the_fall_ended_are_no_signals() {
    let mut limit = AdaptiveLimit::new(8);
    let calls: Vec<_> = (0..8).map(|_| limit.begin()).collect();
    for call in calls.into_iter().rev() {
        limit.end(call, Overload, false, Instant::now());
    }
    assert_eq!(limit.limit(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_lone_claim_that_hangs_does_not_lower_the_limit() {
    let mut limit = AdaptiveLimit::new(100);
    for _ in 0..1000 {
        round(&mut limit, 1, Overload);
    }
    assert_eq!(limit.limit(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_that_finds_its_volume_locked_does_not_lower_the_limit() {
    let mut limit = AdaptiveLimit::new(10);
    for _ in 0..100 {
        let calls: Vec<_> = (0..10).map(|_| limit.begin()).collect();
        for call in calls {
            assert!(!limit.end(call, Locked, true, Instant::now()));
        }
    }
    assert_eq!(limit.limit(), 10);
}

#[tokio::test(start_paused = true)]
async fn after_a_fall_a_locked_repeat_beyond_the_proven_concurrency_is_a_signal() {
    let mut limit = AdaptiveLimit::new(8);
    round(&mut limit, 8, Overload);
    round(&mut limit, 2, Bearable);
    let calls: Vec<_> = (0..3).map(|_| limit.begin()).collect();
    let signals = calls.into_iter().map(|call| limit.end(call, Locked, true, Instant::now()));
    assert_eq!(signals.collect::<Vec<_>>(), [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_rises_to_below_its_ceiling_and_tries_the_ceiling_later() {
    let mut limit = AdaptiveLimit::new(100);
    rounds(&mut limit, 3, Overload);
    assert_eq!((limit.limit(), limit.ceiling), (12, Some(25)));
    let climbed = rounds(&mut limit, 14, Bearable);
    assert_eq!(climbed, [13, 15, 19, 24, 24, 24, 24, 24, 24, 24, 24, 25, 26, 28]);
    assert_eq!(limit.ceiling, None, "passed");
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_single_calls_are_made_after_growing_rests() {
    let mut limit = AdaptiveLimit::new(2);
    round(&mut limit, 2, Overload);
    let mut rests = Vec::new();
    for _ in 0..5 {
        round(&mut limit, 1, Overload);
        let until = limit.rests_until().unwrap();
        assert!(!limit.admits(Instant::now()));
        rests.push(until.duration_since(Instant::now()).as_secs());
        tokio::time::advance(until.duration_since(Instant::now())).await;
        assert!(limit.admits(Instant::now()));
    }
    assert_eq!(rests, [1, 2, 4, 5, 5]);
    let probe = limit.begin();
    assert!(!limit.admits(Instant::now()), "one at a time");
    limit.end(probe, Bearable, true, Instant::now());
    assert_eq!(limit.limit(), 2);
    assert!(limit.is_reset());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_limit_doubles_each_round() {
    let mut limit = AdaptiveLimit::new(100);
    rounds(&mut limit, 8, Overload);
    assert_eq!(rounds(&mut limit, 7, Bearable), [2, 4, 8, 16, 32, 64, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_class_without_signals_for_long_starts_over() {
    let mut limit = AdaptiveLimit::new(100);
    rounds(&mut limit, 8, Overload);
    tokio::time::advance(SIGNAL_LIFETIME.saturating_sub(Duration::from_secs(1))).await;
    limit.expire_signals(Instant::now());
    assert_eq!(limit.limit(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    limit.expire_signals(Instant::now());
    assert!(limit.is_reset());
}

fn congestion() -> impl Strategy<Value = Congestion> {
    prop_oneof![Just(Unknown), Just(Bearable), Just(Locked), Just(Overload)]
}

proptest! {
    #[test]
    fn after_any_history_the_limit_is_in_bounds_and_recovers(
        max in 0_usize..40,
        history in prop::collection::vec((0_usize..8, congestion(), any::<bool>(), 0_u64..3000), 0..400),
    ) {
        let mut limit = AdaptiveLimit::new(max);
        let (mut now, mut calls) = (Instant::now(), Vec::new());
        for (which, congestion, repeats, wait) in history {
            now += Duration::from_millis(wait);
            if limit.admits(now) {
                calls.push(limit.begin());
            }
            if which < calls.len() {
                limit.end(calls.remove(which), congestion, repeats, now);
            }
            prop_assert!((1..=max.max(1)).contains(&limit.limit()));
            prop_assert_eq!(limit.running(), calls.len());
            prop_assert!(calls.len() <= max.max(1));
        }
        for call in calls {
            limit.end(call, Unknown, false, now);
        }
        prop_assert!(limit.admits(now + REST.1), "it always admits a call in the end");
        let bound = 16 * limit.max + 16;
        let calls = recovery(&mut limit);
        prop_assert!(calls <= bound, "{} calls", calls);
    }
}
