//! How often changes of a claim, or of the nodes that it waits for, queue it.
//!
//! Each change of a claim may be what it waited for, so it queues the claim at once, whatever its back-off.
//! A user can change a claim as often as the API server takes it, and each attempt costs requests, calls and
//! lines of the log. So of changes without a pause only the first few do; after them the claim is queued
//! once in [`INTERVAL`].

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::Key;
use crate::workqueue::Queue;

/// How many changes without a pause queue a claim at once. A claim that is provisioned and bound has fewer.
const AT_ONCE: u32 = 20;

/// After them, changes queue it no more often than this.
const INTERVAL: Duration = Duration::from_secs(15);

/// The claims that have changed not long ago, whether they need work now or not.
#[derive(Debug, Default)]
pub(super) struct Changes {
    recent: BTreeMap<Key, Recent>,
    /// When those that were not recent any more were dropped last.
    pruned: Option<Instant>,
}

#[derive(Debug)]
struct Recent {
    changes: u32,
    last: Instant,
}

impl Changes {
    /// Queues the claim, which has changed or waits for what has changed.
    pub(super) fn queue(&mut self, claims: &Queue<Key>, uid: Key) {
        match self.delay_of(&uid) {
            Duration::ZERO => claims.add(uid),
            delay => claims.add_after(uid, delay),
        }
    }

    /// Notes a change. Returns how long the claim waits before it is queued for that.
    fn delay_of(&mut self, uid: &Key) -> Duration {
        let now = Instant::now();
        if now.duration_since(*self.pruned.get_or_insert(now)) >= INTERVAL {
            self.recent.retain(|_, recent| now.duration_since(recent.last) < INTERVAL);
            self.pruned = Some(now);
        }
        let recent = self.recent.entry(uid.clone()).or_insert(Recent { changes: 0, last: now });
        if now.duration_since(recent.last) >= INTERVAL {
            recent.changes = 0;
        }
        recent.last = now;
        recent.changes = recent.changes.saturating_add(1);
        if recent.changes > AT_ONCE { INTERVAL } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_first_changes_without_a_pause_queue_a_claim_at_once() {
        let mut changes = Changes::default();
        let (busy, other) = (Key::from("busy"), Key::from("other"));
        for _ in 0..AT_ONCE {
            assert_eq!(changes.delay_of(&busy), Duration::ZERO);
        }
        for _ in 0..100 {
            advance(Duration::from_secs(1)).await;
            assert_eq!(changes.delay_of(&busy), INTERVAL);
        }
        assert_eq!(changes.delay_of(&other), Duration::ZERO);
        advance(INTERVAL).await;
        assert_eq!(changes.delay_of(&busy), Duration::ZERO, "after a pause");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_stays_of_the_changes_of_a_burst() {
        let mut changes = Changes::default();
        for number in 0..1000 {
            changes.delay_of(&number.to_string().into());
        }
        for _ in 0..2 {
            advance(INTERVAL).await;
            changes.delay_of(&"next".into());
        }
        assert_eq!(changes.recent.len(), 1);
    }
}
