//! How long an informer waits after a failure.
//!
//! As in client-go: 800 ms, doubled up to 30 s, each lengthened by a random part of itself, and from
//! the start again after two minutes without a failure.

use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::Backoff;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
const CALM: Duration = Duration::from_secs(120);

/// The back-off of one informer.
#[derive(Debug, Default)]
pub(super) struct InformerBackoff {
    /// When the last failure was, and how many came before it.
    last: Option<(Instant, u32)>,
}

impl InformerBackoff {
    /// Returns how long to wait after a failure at `now`; `chance` is from 0 to 1.
    pub(super) fn wait(&mut self, now: Instant, chance: f64) -> Duration {
        let failures = match self.last {
            Some((before, failures)) if now.duration_since(before) < CALM => {
                failures.saturating_add(1)
            }
            _ => 0,
        };
        self.last = Some((now, failures));
        BACKOFF.jittered(failures, chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute_and_start_over_after_two_minutes() {
        let mut backoff = InformerBackoff::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let waits: Vec<u128> =
            (0..8).map(|second| backoff.wait(at(second), 0.0).as_millis()).collect();
        assert_eq!(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.wait(at(126), 0.5).as_millis(), 45_000);
        assert_eq!(backoff.wait(at(246), 0.5).as_millis(), 1200);
    }
}
