//! A clock for tests in paused time.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Clock;

/// A clock whose boot time follows tokio's paused clock from 100 s on, plus the time suspended.
pub(crate) struct Paused {
    start: Instant,
    pub(crate) suspended: Mutex<Duration>,
}

/// A clock that starts now.
pub(crate) fn paused() -> Arc<Paused> {
    Arc::new(Paused { start: Instant::now(), suspended: Mutex::default() })
}

/// The same as any clock.
pub(crate) fn paused_clock() -> Arc<dyn Clock> {
    paused()
}

impl Clock for Paused {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(100) + self.start.elapsed() + *self.suspended.lock()
    }
}
