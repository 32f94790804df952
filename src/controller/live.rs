//! The maximum age of a live read on which a volume is deleted (safety rules 8 and 10): an answer may
//! have been under way for long, or may have waited in a process that was suspended.

use std::{sync::Arc, time::Duration};

use crate::runtime::Clock;

/// A read whose request was sent longer ago is not used.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Measures the age of live reads. Clones share the clock.
#[derive(Clone)]
pub struct Live {
    /// Its boot time includes suspension.
    clock: Arc<dyn Clock>,
}

impl Live {
    /// Measures by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }

    /// Returns the current [`Clock::boot`] time.
    pub fn now(&self) -> Duration {
        self.clock.boot()
    }

    /// Whether a read whose request was sent at `time`, a [`Clock::boot`] time, is recent enough.
    pub fn is_recent(&self, time: Duration) -> bool {
        self.clock.boot() < time + MAX_AGE
    }
}
