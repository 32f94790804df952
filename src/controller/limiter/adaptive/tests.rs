//! Examples of the limit's rules, and a property that holds after any history.

use proptest::prelude::*;

use super::*;

/// A limit and the number of calls begun.
struct Calls {
    limit: AdaptiveLimit,
    begun: u64,
}

impl Calls {
    fn new(max: usize) -> Self {
        Self { limit: AdaptiveLimit::new(max), begun: 0 }
    }

    /// Runs `count` concurrent calls, of which the last ones fail.
    fn round(&mut self, count: usize, failing: usize, served: usize) {
        let first = self.begun;
        self.begun += count as u64;
        for _ in failing..count {
            self.limit.on_success(false);
        }
        for rank in count - failing + 1..=count {
            let (number, begun) = (first + rank as u64, self.begun);
            self.limit.on_failure(FailedCall { number, rank, served, begun }, Instant::now());
        }
    }

    /// Runs rounds of as many calls as the limit allows. Returns the limit after each round.
    fn rounds(&mut self, count: usize, fail: bool) -> Vec<usize> {
        let run = |_| {
            let calls = self.limit.limit();
            self.round(calls, if fail { calls } else { 0 }, 0);
            self.limit.limit()
        };
        (0..count).map(run).collect()
    }

    /// Lowers the limit to 1.
    fn fall(&mut self) {
        while self.limit.limit() > 1 {
            self.rounds(1, true);
        }
    }

    /// The number of successful calls until the limit is at its maximum.
    fn recovery(&mut self) -> usize {
        let mut calls = 0;
        while self.limit.limit() < self.limit.max && calls < 1_000_000 {
            self.limit.on_success(false);
            calls += 1;
        }
        calls
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_answers_gets_all_calls() {
    let mut calls = Calls::new(100);
    assert_eq!(calls.rounds(3, false), [100, 100, 100]);
    assert!(!calls.limit.is_lowered());
}

#[tokio::test(start_paused = true)]
async fn without_a_success_the_limit_falls_slowly_down_to_one() {
    let mut calls = Calls::new(16);
    let falls = calls.rounds(24, true);
    assert_eq!(falls[..3], [16, 16, 16], "the claims may be bad");
    assert!(falls.windows(2).all(|pair| pair[1] >= pair[0] - (pair[0] / 4).max(1)), "{falls:?}");
    assert_eq!(falls.last(), Some(&1), "{falls:?}");
}

#[tokio::test(start_paused = true)]
async fn beside_successes_the_limit_falls_at_once_to_what_was_served() {
    for (served, limit, ceiling) in [(20, 20, 40), (1, 3, 6), (50, 75, 100), (0, 75, 100)] {
        let mut calls = Calls::new(100);
        calls.round(100, 90, served);
        assert_eq!((calls.limit.limit(), calls.limit.ceiling), (limit, Some(ceiling)), "{served}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_failures_beside_successes_do_not_lower_the_limit() {
    for (failing, expected) in [(12, 100), (13, 75)] {
        let mut calls = Calls::new(100);
        calls.round(100, failing, 75);
        assert_eq!(calls.limit.limit(), expected, "{failing}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_began_before_the_fall_do_not_count() {
    let mut calls = Calls::new(100);
    calls.round(100, 60, 60);
    assert_eq!(calls.limit.limit(), 75);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_succeeds_takes_back_a_failure() {
    let mut calls = Calls::new(16);
    calls.round(16, 1, 15);
    for (is_repeat, failures) in [(false, 1), (true, 0), (true, 0)] {
        calls.limit.successes = 1;
        calls.limit.on_success(is_repeat);
        assert_eq!(calls.limit.failures, failures);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_claim_that_hangs_does_not_lower_the_limit() {
    let mut calls = Calls::new(100);
    for _ in 0..1000 {
        calls.round(1, 1, 0);
    }
    assert_eq!(calls.limit.limit(), 100);
}

#[tokio::test(start_paused = true)]
async fn the_limit_rises_to_below_its_ceiling_and_probes_the_ceiling_later() {
    let mut calls = Calls::new(100);
    calls.round(100, 90, 12);
    assert_eq!((calls.limit.limit(), calls.limit.ceiling), (12, Some(24)));
    let climbed = calls.rounds(14, false);
    assert_eq!(climbed, [13, 15, 19, 23, 23, 23, 23, 23, 23, 23, 23, 24, 25, 27]);
    assert_eq!(calls.limit.ceiling, None, "passed");
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_returns_to_the_limit_before() {
    let mut calls = Calls::new(100);
    calls.round(100, 90, 12);
    calls.rounds(12, false);
    assert!(calls.limit.is_probing());
    calls.round(24, 1, 3);
    assert_eq!((calls.limit.limit(), calls.limit.ceiling), (23, Some(24)));
}

#[tokio::test(start_paused = true)]
async fn the_limit_falls_to_what_the_driver_accepts() {
    let mut calls = Calls::new(100);
    assert!(calls.limit.lower_to(4, 0, Instant::now()));
    assert_eq!((calls.limit.limit(), calls.limit.ceiling), (4, Some(5)));
    assert!(!calls.limit.lower_to(4, 0, Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_single_calls_are_made_after_growing_rests() {
    let mut calls = Calls::new(2);
    calls.fall();
    let mut rests = Vec::new();
    for _ in 0..5 {
        calls.round(1, 1, 0);
        let until = calls.limit.rests_until().unwrap();
        assert!(!calls.limit.admits(0, Instant::now()));
        rests.push(until.duration_since(Instant::now()).as_secs());
        tokio::time::advance(until.duration_since(Instant::now())).await;
        assert!(calls.limit.admits(0, Instant::now()));
    }
    assert_eq!(rests, [1, 2, 4, 5, 5]);
    assert!(!calls.limit.admits(1, Instant::now()), "one at a time");
    calls.round(1, 0, 0);
    assert_eq!(calls.limit.limit(), 2);
    assert!(!calls.limit.is_lowered());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_limit_doubles_each_round() {
    let mut calls = Calls::new(100);
    calls.fall();
    calls.rounds(2, true);
    assert_eq!(calls.rounds(7, false), [2, 4, 8, 16, 32, 64, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_without_signals_for_long_starts_over() {
    let mut calls = Calls::new(100);
    calls.fall();
    tokio::time::advance(SIGNAL_LIFETIME.saturating_sub(Duration::from_secs(1))).await;
    calls.limit.expire_signals(Instant::now());
    assert_eq!(calls.limit.limit(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    calls.limit.expire_signals(Instant::now());
    assert!(!calls.limit.is_lowered());
}

#[tokio::test(start_paused = true)]
async fn a_limit_at_its_maximum_follows_the_maximum() {
    let mut calls = Calls::new(8);
    for (max, expected) in [(4, 4), (6, 6), (8, 8)] {
        calls.limit.set_max(max);
        assert_eq!((calls.limit.limit(), calls.limit.is_lowered()), (expected, false));
    }
    calls.round(8, 4, 4);
    assert_eq!(calls.limit.limit(), 6);
    calls.limit.set_max(7);
    assert_eq!(calls.limit.limit(), 6, "a lowered one stays");
}

proptest! {
    #[test]
    fn after_any_history_the_limit_is_in_bounds_and_recovers(
        max in 0_usize..40,
        history in prop::collection::vec((1_usize..45, any::<bool>(), 0_usize..60), 0..400),
    ) {
        let mut calls = Calls::new(max);
        for (rank, fails, served) in history {
            calls.round(rank, usize::from(fails), served);
            prop_assert!((1..=max.max(1)).contains(&calls.limit.limit()));
        }
        let later = Instant::now() + REST.1;
        prop_assert!(calls.limit.admits(0, later), "it always admits a call in the end");
        let bound = 40 * calls.limit.max + 16;
        let needed = calls.recovery();
        prop_assert!(needed <= bound, "{} calls", needed);
    }
}
