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
