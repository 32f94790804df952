//! Events that wait for another attempt to write them, with a limit on their number.
//!
//! [`recorder`](super::recorder) decides how long an event waits and how often it is retried.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{Event, MAX_CONCURRENT_WRITES, lru_map::Digest};

/// The most events that wait at once. While the server accepts no events, only these are retried; all
/// others stay in the queue.
pub(super) const MAX_RETRIES: usize = 2 * MAX_CONCURRENT_WRITES;

/// An event that the writer has taken from the queue.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The digest of the event's object.
    pub(super) object: Digest,
    pub(super) event: Event,
    /// Whether an earlier event is to be patched.
    pub(super) exists: bool,
    /// The number of attempts so far.
    pub(super) attempts: u32,
}

/// Events to be written again; at most one per object.
#[derive(Debug, Default)]
pub(super) struct RetryQueue {
    by_object: BTreeMap<Digest, (Instant, Attempt)>,
}

impl RetryQueue {
    /// Adds an event that is due at `due`.
    pub(super) fn push(&mut self, attempt: Attempt, due: Instant) {
        self.by_object.insert(attempt.object, (due, attempt));
    }

    /// Removes and returns the event that is due first, if it is due by `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Attempt> {
        let (due, object) = self.first()?;
        if due > now {
            return None;
        }
        self.by_object.remove(&object).map(|(_, attempt)| attempt)
    }

    /// Makes events that are due after `due` due at `due`.
    pub(super) fn advance(&mut self, due: Instant) {
        for (later, _) in self.by_object.values_mut() {
            *later = due.min(*later);
        }
    }

    /// When the first event is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first().map(|(due, _)| due)
    }

    /// Whether an event about `object` waits.
    pub(super) fn contains(&self, object: Digest) -> bool {
        self.by_object.contains_key(&object)
    }

    /// Whether the limit is reached if `more` events are added.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.by_object.len() + more >= MAX_RETRIES
    }

    fn first(&self) -> Option<(Instant, Digest)> {
        self.by_object.iter().map(|(object, (due, _))| (*due, *object)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kube::events::tests::event;

    fn attempt(object: u64) -> Attempt {
        let event = event(&object.to_string(), "Reason", "m", 0);
        Attempt { object: (object, 0), event, exists: false, attempts: 1 }
    }

    #[test]
    fn the_event_that_is_due_first_is_popped_first() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut retries = RetryQueue::default();
        retries.push(attempt(1), at(20));
        retries.push(attempt(2), at(10));
        assert!(retries.pop_due(at(9)).is_none());
        assert_eq!(retries.next_due(), Some(at(10)));
        assert_eq!(retries.pop_due(at(30)).map(|due| due.object), Some((2, 0)));
        assert!(retries.contains((1, 0)) && !retries.contains((2, 0)));
        retries.advance(at(12));
        retries.advance(at(15));
        assert_eq!(retries.next_due(), Some(at(12)));
    }

    #[test]
    fn the_number_of_events_is_limited() {
        let mut retries = RetryQueue::default();
        for object in 0..MAX_RETRIES as u64 {
            assert!(!retries.is_full(0));
            retries.push(attempt(object), Instant::now());
        }
        assert!(retries.is_full(0));
    }
}
