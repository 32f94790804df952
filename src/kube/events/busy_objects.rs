//! Objects with an event that is being written or waits for another attempt; the object's other events
//! stay in the queue.
//!
//! [`recorder`](super::recorder) decides how long an event waits and how often it is retried.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{Event, lru_map::Digest};
use crate::kube::client::MAX_CONCURRENT_WRITES;

/// The most busy objects. While the server accepts no events, only theirs are retried.
pub(super) const MAX_BUSY: usize = 2 * MAX_CONCURRENT_WRITES;

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

/// The busy objects, each with one event.
#[derive(Debug, Default)]
pub(super) struct BusyObjects {
    /// When the event is due, and the event; none while it is being written.
    by_object: BTreeMap<Digest, Option<(Instant, Attempt)>>,
}

impl BusyObjects {
    /// An event about `object` is being written.
    pub(super) fn begin(&mut self, object: Digest) {
        self.by_object.insert(object, None);
    }

    /// An event is to be written again at `due`.
    pub(super) fn retry(&mut self, attempt: Attempt, due: Instant) {
        self.by_object.insert(attempt.object, Some((due, attempt)));
    }

    /// The event about `object` is written or given up.
    pub(super) fn end(&mut self, object: Digest) {
        self.by_object.remove(&object);
    }

    /// Takes the event that is due first, if it is due by `now`, to be written.
    pub(super) fn begin_due(&mut self, now: Instant) -> Option<Attempt> {
        let (due, object) = self.first()?;
        if due > now {
            return None;
        }
        let (_, attempt) = self.by_object.get_mut(&object)?.take()?;
        Some(attempt)
    }

    /// Makes events that are due after `due` due at `due`.
    pub(super) fn advance(&mut self, due: Instant) {
        for (later, _) in self.by_object.values_mut().flatten() {
            *later = due.min(*later);
        }
    }

    /// When the first event is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first().map(|(due, _)| due)
    }

    /// Whether `object` is busy.
    pub(super) fn contains(&self, object: Digest) -> bool {
        self.by_object.contains_key(&object)
    }

    /// Whether the limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.by_object.len() >= MAX_BUSY
    }

    fn first(&self) -> Option<(Instant, Digest)> {
        let waiting = self.by_object.iter().filter_map(|(object, it)| Some((object, it.as_ref()?)));
        waiting.map(|(object, (due, _))| (*due, *object)).min()
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
    fn the_event_that_is_due_first_is_written_first() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut busy = BusyObjects::default();
        busy.retry(attempt(1), at(20));
        busy.retry(attempt(2), at(10));
        assert!(busy.begin_due(at(9)).is_none());
        assert_eq!(busy.next_due(), Some(at(10)));
        assert_eq!(busy.begin_due(at(30)).map(|due| due.object), Some((2, 0)));
        assert!(busy.contains((1, 0)) && busy.contains((2, 0)), "it is being written");
        busy.end((2, 0));
        assert!(!busy.contains((2, 0)));
        busy.advance(at(12));
        busy.advance(at(15));
        assert_eq!(busy.next_due(), Some(at(12)));
    }

    #[test]
    fn the_number_of_busy_objects_is_limited() {
        let mut busy = BusyObjects::default();
        for object in 0..MAX_BUSY as u64 {
            assert!(!busy.is_full());
            busy.begin((object, 0));
            if object % 2 == 0 {
                busy.retry(attempt(object), Instant::now());
            }
        }
        assert!(busy.is_full());
    }
}
