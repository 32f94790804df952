//! How old what was read live is.
//!
//! Owns the limit up to which an answer counts (safety rules 8 and 10): it may have been under way
//! for long, or have waited for a process that stood still.

use std::{sync::Arc, time::Duration};

use crate::runtime::Clock;

/// An answer to a request that was sent longer ago does not count.
const RECENT: Duration = Duration::from_secs(2);

/// How old what was read is. Clones share the clock.
#[derive(Clone)]
pub struct Live {
    /// Counts a suspended machine, during which what was read ages as well.
    clock: Arc<dyn Clock>,
}

impl Live {
    /// By this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }

    /// Now, on [`Clock::boot`].
    pub fn now(&self) -> Duration {
        self.clock.boot()
    }

    /// Whether what was so at `time` or later, on [`Clock::boot`], was so at most two seconds ago.
    pub fn is_recent(&self, time: Duration) -> bool {
        self.clock.boot() < time + RECENT
    }
}
