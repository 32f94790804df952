//! The queue of events that wait to be written.
//!
//! Events about one object keep their order: while one of them is being written or waits for another attempt,
//! the object is busy, and its other events stay in the queue. From [`SOFT_LIMIT`] events on, the queue accepts
//! only final events; from [`HARD_LIMIT`] events on it accepts none.

use std::collections::{BTreeSet, VecDeque};

use super::{
    Event, Importance,
    lru_map::{Digest, digest},
};
use crate::kube::client::MAX_CONCURRENT_WRITES;

/// More than events that give way to objects fill (see `recorder`); client-go has 1000.
const SOFT_LIMIT: usize = 5000;
/// Enough for final events of as many objects as the soft limit has events: some ten megabytes.
const HARD_LIMIT: usize = 2 * SOFT_LIMIT;
/// The most busy objects. While the server accepts no events, only theirs are retried.
pub(super) const MAX_BUSY: usize = 2 * MAX_CONCURRENT_WRITES;
/// The capacity that an empty queue keeps; the memory for a burst is freed.
const MIN_CAPACITY: usize = 64;

/// The queue of the writer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Each with the digest of its object.
    events: VecDeque<(Digest, Event)>,
    /// The objects of the events that were taken and are neither written nor given up.
    busy: BTreeSet<Digest>,
}

impl Pending {
    /// Adds an event; returns whether there was room for it.
    pub(super) fn push(&mut self, event: Event) -> bool {
        let limit = match event.importance {
            Importance::Repeatable => SOFT_LIMIT,
            Importance::Final => HARD_LIMIT,
        };
        let has_room = self.waiting() < limit;
        if has_room {
            let about = &event.about;
            let object = digest(&[&about.kind, &about.namespace, &about.name, &about.uid]);
            self.events.push_back((object, event));
        }
        has_room
    }

    /// Takes the first event whose object is not busy, and makes that object busy. `None` if there is none, or
    /// while [`MAX_BUSY`] objects are busy.
    pub(super) fn take(&mut self) -> Option<(Digest, Event)> {
        if self.busy.len() >= MAX_BUSY {
            return None;
        }
        let first = self.events.iter().position(|(object, _)| !self.busy.contains(object))?;
        let (object, event) = self.events.remove(first)?;
        if self.events.is_empty() {
            self.events.shrink_to(MIN_CAPACITY);
        }
        self.busy.insert(object);
        Some((object, event))
    }

    /// The event about `object` that was taken is written or given up.
    pub(super) fn finish(&mut self, object: Digest) {
        self.busy.remove(&object);
    }

    /// The number of waiting events.
    pub(super) fn waiting(&self) -> usize {
        self.events.len()
    }

    /// The number of events that are neither written nor given up.
    pub(super) fn unwritten(&self) -> usize {
        self.events.len() + self.busy.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::events::tests::event;

    fn repeatable(object: &str, message: &str) -> Event {
        event(object, "Reason", message, 0)
    }

    fn messages(pending: &mut Pending) -> Vec<String> {
        let next = || {
            let (object, event) = pending.take()?;
            pending.finish(object);
            Some(event.message)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn events_keep_their_order_and_those_about_busy_objects_stay() {
        let mut pending = Pending::default();
        for (object, message) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
            assert!(pending.push(repeatable(object, message)));
        }
        let [(a, _), (b, third)] = [(); 2].map(|()| pending.take().unwrap());
        assert_eq!((third.message.as_str(), pending.waiting(), pending.unwritten()), ("3", 2, 4));
        pending.finish(b);
        assert_eq!(messages(&mut pending), ["4"]);
        pending.finish(a);
        assert_eq!(messages(&mut pending), ["2"]);
        assert!(pending.take().is_none() && pending.unwritten() == 0);
    }

    #[test]
    fn the_number_of_busy_objects_is_limited() {
        let mut pending = Pending::default();
        for object in 0..=MAX_BUSY {
            assert!(pending.push(repeatable(&object.to_string(), "m")));
        }
        let taken: Vec<_> = std::iter::from_fn(|| pending.take()).collect();
        assert_eq!((taken.len(), pending.waiting()), (MAX_BUSY, 1));
        pending.finish(taken[0].0);
        assert!(pending.take().is_some());
    }

    #[test]
    fn a_full_queue_takes_final_events_up_to_its_hard_limit() {
        let mut pending = Pending::default();
        for n in 0..SOFT_LIMIT {
            assert!(pending.push(repeatable(&format!("o{n}"), "first")));
        }
        assert!(!pending.push(repeatable("o0", "again")));
        assert!(!pending.push(repeatable("new", "first")));
        let last = || Event { importance: Importance::Final, ..repeatable("o", "last") };
        for _ in SOFT_LIMIT..HARD_LIMIT {
            assert!(pending.push(last()));
        }
        assert!(!pending.push(last()));
        assert_eq!(messages(&mut pending).len(), HARD_LIMIT);
        assert!(pending.events.capacity() <= MIN_CAPACITY, "its memory is freed");
    }
}
