//! What `/healthz/leader-election` says.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::runtime::Clock;

/// How long after the Lease's end a holder that still believes in it is called unhealthy.
const TOLERANCE: Duration = Duration::from_secs(20);

/// Whether the election itself is alive. Clones share their knowledge.
#[derive(Clone)]
pub struct Health {
    clock: Arc<dyn Clock>,
    /// Until when this process, leading, is healthy, on [`Clock::boot`].
    until: Arc<Mutex<Option<Duration>>>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("until", &*self.until.lock()).finish_non_exhaustive()
    }
}

/// This process believes that it leads, but has not renewed the Lease for far too long. The
/// original's text; the Lease's name is empty there too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed election to renew leadership on lease ")]
pub struct Unhealthy;

impl Health {
    /// The health of an election that has not begun.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, until: Arc::default() }
    }

    /// Says whether the election is alive. A candidate that does not lead always is.
    ///
    /// # Errors
    /// [`Unhealthy`].
    pub fn check(&self) -> Result<(), Unhealthy> {
        match *self.until.lock() {
            Some(until) if self.clock.boot() > until => Err(Unhealthy),
            _ => Ok(()),
        }
    }

    pub(super) fn renewed(&self, at: Duration, lease_duration: Duration) {
        *self.until.lock() = Some(at.saturating_add(lease_duration).saturating_add(TOLERANCE));
    }

    pub(super) fn leads_no_more(&self) {
        *self.until.lock() = None;
    }
}
