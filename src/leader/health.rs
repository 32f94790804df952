//! The health check `/healthz/leader-election`.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::runtime::Clock;

/// How long after the expiry of its Lease a process that still leads becomes unhealthy.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The health of the election. Clones share it.
#[derive(Clone)]
pub struct Health {
    clock: Arc<dyn Clock>,
    /// Until which [`Clock::boot`] time this process is healthy, while it leads.
    until: Arc<Mutex<Option<Duration>>>,
}

/// This process leads, but has not renewed the Lease for too long. The text is external-provisioner's,
/// where the Lease's name is empty as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed election to renew leadership on lease ")]
pub struct Unhealthy;

impl Health {
    /// Creates the health of an election that has not begun.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, until: Arc::default() }
    }

    /// Checks the health. A candidate that does not lead is always healthy.
    ///
    /// # Errors
    /// [`Unhealthy`] if this process leads and has not renewed the Lease for too long.
    pub fn check(&self) -> Result<(), Unhealthy> {
        match *self.until.lock() {
            Some(until) if self.clock.boot() > until => Err(Unhealthy),
            _ => Ok(()),
        }
    }

    /// Records that the Lease was renewed at `at`.
    pub(super) fn on_renewed(&self, at: Duration, lease_duration: Duration) {
        *self.until.lock() = Some(at.saturating_add(lease_duration).saturating_add(TOLERANCE));
    }

    /// Records that this process does not lead any more.
    pub(super) fn on_stopped_leading(&self) {
        *self.until.lock() = None;
    }
}
