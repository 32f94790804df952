//! What the users of claims were told.
//!
//! Decides when something that keeps a claim waiting is reported. Nothing is reported twice in a
//! row while its event lasts.

use tokio::time::{Duration, Instant};

use super::{ClaimIndex, entry::Entry};

impl ClaimIndex {
    /// Notes that the claim waits for `what`. Returns whether to report it now: once it has lasted
    /// for `patience`, and again before its event expires.
    pub fn should_report(&self, uid: &str, what: &str, patience: Duration) -> bool {
        let report = |entry: &mut Entry| {
            let mut obstacle = entry.take_obstacle(what);
            let is_due = obstacle.is_due(patience);
            if is_due {
                obstacle.reported = Some(Instant::now());
            }
            entry.obstacle = Some(obstacle);
            is_due
        };
        self.change(uid, report).unwrap_or(false)
    }

    /// Notes that the claim waits for `what`. Returns for how long it has.
    pub fn blocked_for(&self, uid: &str, what: &str) -> Duration {
        let waits_for = |entry: &mut Entry| {
            let obstacle = entry.take_obstacle(what);
            entry.obstacle.insert(obstacle).since.elapsed()
        };
        self.change(uid, waits_for).unwrap_or_default()
    }

    /// Whether to warn the user of this kind of unknown outcome: once while the call is open.
    pub fn should_warn(&self, uid: &str, kind: &'static str) -> bool {
        self.change(uid, |entry| entry.warned.insert(kind)).unwrap_or(true)
    }

    /// Whether the claim waits for something that is not reported yet and for which no report is
    /// scheduled. The caller schedules one, so the next call returns false.
    pub fn take_unreported(&self, uid: &str) -> bool {
        let take = |entry: &mut Entry| {
            let obstacle = entry.obstacle.as_mut().filter(|obstacle| obstacle.reported.is_none());
            obstacle.is_some_and(|obstacle| !std::mem::replace(&mut obstacle.is_scheduled, true))
        };
        self.change(uid, take).unwrap_or(false)
    }
}
