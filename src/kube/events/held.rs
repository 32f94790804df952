//! Events whose last try failed and that wait for the next.
//!
//! Owns when each is due, and the bound on how many wait. Promises that the one due first comes
//! first. Leaves to [`recorder`](super::recorder) how long one waits and how often it is tried.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{AT_ONCE, Event, digest::Digest};

/// So many may wait at once. While the server takes no events at all, no more than these are tried
/// again and again; all others keep their place in the queue.
pub(super) const MOST: usize = 2 * AT_ONCE;

/// An event in the writer's hand.
#[derive(Debug)]
pub(super) struct Attempt {
    /// What it is about.
    pub(super) object: Digest,
    pub(super) event: Event,
    /// It is counted into an event written before.
    pub(super) exists: bool,
    /// How often it was tried.
    pub(super) tried: u32,
}

/// The events that wait. No two are about one object.
#[derive(Debug, Default)]
pub(super) struct Held {
    by_object: BTreeMap<Digest, (Instant, Attempt)>,
}

impl Held {
    /// Keeps an event until `due`.
    pub(super) fn hold(&mut self, attempt: Attempt, due: Instant) {
        self.by_object.insert(attempt.object, (due, attempt));
    }

    /// The event whose time has come, where there is one.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Attempt> {
        let (due, object) = self.first()?;
        if due > now {
            return None;
        }
        self.by_object.remove(&object).map(|(_, attempt)| attempt)
    }

    /// Moves all that are due later to `due`.
    pub(super) fn hurry(&mut self, due: Instant) {
        for (later, _) in self.by_object.values_mut() {
            *later = due.min(*later);
        }
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first().map(|(due, _)| due)
    }

    /// Whether an event about the object waits: what else there is to tell of it waits behind.
    pub(super) fn holds(&self, object: Digest) -> bool {
        self.by_object.contains_key(&object)
    }

    /// Whether no more may wait, where so `many` may be about to.
    pub(super) fn is_full(&self, many: usize) -> bool {
        self.by_object.len() + many >= MOST
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
        Attempt { object: (object, 0), event, exists: false, tried: 1 }
    }

    #[test]
    fn events_come_when_they_are_due_and_the_first_due_comes_first() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut held = Held::default();
        held.hold(attempt(1), at(20));
        held.hold(attempt(2), at(10));
        assert!(held.take_due(at(9)).is_none());
        assert_eq!(held.next_due(), Some(at(10)));
        assert_eq!(held.take_due(at(30)).map(|due| due.object), Some((2, 0)));
        assert!(held.holds((1, 0)) && !held.holds((2, 0)));
        held.hurry(at(12));
        held.hurry(at(15));
        assert_eq!(held.next_due(), Some(at(12)));
    }

    #[test]
    fn so_many_objects_fill_it() {
        let mut held = Held::default();
        for object in 0..MOST as u64 {
            assert!(!held.is_full(0));
            held.hold(attempt(object), Instant::now());
        }
        assert!(held.is_full(0));
    }
}
