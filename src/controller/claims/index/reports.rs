//! What was reported to the users of a claim.
//!
//! Decides when something is reported. Nothing is reported twice in a row while its event lasts.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::controller::events::EVENT_LASTS;

/// What was reported about one claim.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// What the claim waits for, apart from the driver.
    obstacle: Option<Box<Obstacle>>,
    /// Whether the void record was reported.
    pub(super) void_record: bool,
    /// Whether it was reported that the record of another driver holds the claim.
    pub(super) other_driver: bool,
    /// Whether the release was reported.
    pub(super) release: bool,
}

/// Something that keeps a claim from getting its volume.
#[derive(Debug)]
pub(super) struct Obstacle {
    /// Claims that wait for the same share it.
    what: Arc<str>,
    since: Instant,
    /// When it was reported last.
    reported: Option<Instant>,
}

impl Reports {
    /// The claim waits for `what`. Returns for how long it has.
    pub(super) fn blocked_for(&mut self, what: &str) -> Duration {
        self.obstacle(what).since.elapsed()
    }

    /// What the claim waits for, and since when.
    pub(super) fn blocked(&self) -> Option<(&str, Instant)> {
        self.obstacle.as_ref().map(|obstacle| (&*obstacle.what, obstacle.since))
    }

    /// The text of what the claim waits for.
    pub(super) fn obstacle_text(&mut self) -> Option<&mut Arc<str>> {
        self.obstacle.as_mut().map(|obstacle| &mut obstacle.what)
    }

    /// Whatever the claim waits for next is reported.
    pub(super) fn forget_obstacle(&mut self) {
        self.obstacle = None;
    }

    /// Returns the present obstacle if it is `what`, else a new one.
    pub(super) fn obstacle(&mut self, what: &str) -> &mut Obstacle {
        let same = self.obstacle.take().filter(|obstacle| *obstacle.what == *what);
        let new =
            || Box::new(Obstacle { what: what.into(), since: Instant::now(), reported: None });
        self.obstacle.insert(same.unwrap_or_else(new))
    }
}

impl Obstacle {
    fn is_due(&self, patience: Duration) -> bool {
        match self.reported {
            None => self.since.elapsed() >= patience,
            Some(last) => last.elapsed() >= EVENT_LASTS,
        }
    }

    pub(super) fn take_report(&mut self, patience: Duration) -> bool {
        let is_due = self.is_due(patience);
        if is_due {
            self.reported = Some(Instant::now());
        }
        is_due
    }
}
