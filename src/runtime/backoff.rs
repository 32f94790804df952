//! Exponential back-off, as a pure rule. Who waits counts the failures, and draws the random numbers.

use std::time::Duration;

/// Delays that double from `start` up to `max`. Users create it by [`Backoff::new`], so that another rule
/// changes no other file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay.
    pub start: Duration,
    /// The longest delay, also if `start` is longer.
    pub max: Duration,
}

impl Backoff {
    /// Delays that double from `start` up to `max`.
    pub const fn new(start: Duration, max: Duration) -> Self {
        Self { start, max }
    }

    /// The delay after `failures` earlier failures: `start * 2^failures`, at most `max`.
    pub fn delay(self, failures: u32) -> Duration {
        if self.start.is_zero() {
            return Duration::ZERO;
        }
        let delay = 2_u32.checked_pow(failures).and_then(|factor| self.start.checked_mul(factor));
        delay.map_or(self.max, |delay| delay.min(self.max))
    }

    /// The delay, lengthened by up to itself as in client-go; `unit` is random, from 0 to 1.
    pub fn jittered(self, failures: u32, unit: f64) -> Duration {
        self.delay(failures).mul_f64(1.0 + unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::new(secs(1), secs(300));
        let delays: Vec<u64> = (0..12).map(|n| backoff.delay(n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(backoff.jittered(2, 0.0), secs(4));
        assert_eq!(backoff.jittered(2, 0.5), secs(6));
    }

    #[test]
    fn edges() {
        for (start, max, failures, delay) in [
            (secs(10), secs(5), 0, secs(5)),
            (Duration::ZERO, secs(5), 40, Duration::ZERO),
            (Duration::from_nanos(1), secs(5), u32::MAX, secs(5)),
            (Duration::MAX, Duration::MAX, 3, Duration::MAX),
        ] {
            assert_eq!(Backoff::new(start, max).delay(failures), delay);
        }
    }

    proptest! {
        #[test]
        fn delays_never_shrink_and_never_exceed_the_maximum(start in 0_u64.., max in 0_u64.., n in 0_u32..2000) {
            let backoff =
                Backoff::new(Duration::from_nanos(start), Duration::from_nanos(max));
            let (one, next) = (backoff.delay(n), backoff.delay(n + 1));
            prop_assert!(one <= next && next <= backoff.max);
        }
    }
}
