//! How long a reflector waits after an error.
//!
//! Promises client-go's numbers: 800 ms, doubled up to 30 s, each lengthened by up to its own
//! length by chance, and from the start again after two minutes without an error.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(800);
const LAST: Duration = Duration::from_secs(30);
const CALM: Duration = Duration::from_secs(120);

/// The state of one reflector's back-off.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    /// An error happened at `now`: the wait before the next try, `chance` being from 0 to 1.
    pub(super) fn wait(&mut self, now: Instant, chance: f64) -> Duration {
        let base = match self.last {
            Some((before, base)) if now.duration_since(before) < CALM => (base * 2).min(LAST),
            _ => FIRST,
        };
        self.last = Some((now, base));
        base.mul_f64(1.0 + chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute_and_begin_anew_after_two_calm_ones() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let waits: Vec<u128> =
            (0..8).map(|second| backoff.wait(at(second), 0.0).as_millis()).collect();
        assert_eq!(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.wait(at(126), 0.5).as_millis(), 45_000);
        assert_eq!(backoff.wait(at(246), 0.5).as_millis(), 1200);
    }
}
