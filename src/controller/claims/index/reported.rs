//! What the claims' users were told.
//!
//! Owns when something that keeps a claim waiting is news to its user. Promises that nothing is told
//! twice in a row within a quarter of an hour.

use tokio::time::{Duration, Instant};

use super::{ClaimIndex, entry::Entry};

impl ClaimIndex {
    /// Notes what the claim waits for, and says whether its user is to be told now: not before it
    /// has stood in the way for `patience`, and not when that was told lately.
    pub fn tells(&self, uid: &str, what: &str, patience: Duration) -> bool {
        let tells = |entry: &mut Entry| {
            let mut obstacle = entry.take_obstacle(what);
            let news = obstacle.is_news(patience);
            if news {
                obstacle.told = Some(Instant::now());
            }
            entry.obstacle = Some(obstacle);
            news
        };
        self.change(uid, tells).unwrap_or(false)
    }

    /// Notes what the claim waits for; for how long it has.
    pub fn waits_for(&self, uid: &str, what: &str) -> Duration {
        let waits_for = |entry: &mut Entry| {
            let obstacle = entry.take_obstacle(what);
            entry.obstacle.insert(obstacle).since.elapsed()
        };
        self.change(uid, waits_for).unwrap_or_default()
    }

    /// Whether the claim's user is to be warned that a call had this kind of unknown end: once
    /// while its end is asked after.
    pub fn warns(&self, uid: &str, kind: &'static str) -> bool {
        self.change(uid, |entry| entry.warned.insert(kind)).unwrap_or(true)
    }

    /// Whether the claim waits for something that its user is still to be told of; asked once
    /// for each such thing.
    pub fn take_untold(&self, uid: &str) -> bool {
        let take = |entry: &mut Entry| {
            let obstacle = entry.obstacle.as_mut().filter(|obstacle| obstacle.told.is_none());
            obstacle.is_some_and(|obstacle| !std::mem::replace(&mut obstacle.in_time, true))
        };
        self.change(uid, take).unwrap_or(false)
    }
}
