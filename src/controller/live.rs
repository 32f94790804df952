//! The maximum age of a live read on which a volume is deleted (safety rules 8 and 10): an answer may
//! have been under way for long, or may have waited in a process that was suspended.

use std::time::Duration;

use crate::runtime::Clock;

/// A read whose request was sent longer ago is not used.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Whether a read whose request was sent at `time`, a [`Clock::boot`] time, is recent enough.
pub(super) fn is_recent(clock: &dyn Clock, time: Duration) -> bool {
    clock.boot() < time + MAX_AGE
}
