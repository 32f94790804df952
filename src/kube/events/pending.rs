//! The queue of events that wait to be written.
//!
//! Events about one object keep their order. From [`SOFT_LIMIT`] events on, the queue accepts only final
//! events; from [`HARD_LIMIT`] events on it accepts none.

use std::collections::VecDeque;

use super::{
    Event, Importance,
    lru_map::{Digest, digest},
};

/// More than events that give way to objects fill (see `recorder`); client-go has 1000.
const SOFT_LIMIT: usize = 5000;
/// Enough for final events of as many objects as the soft limit has events: some ten megabytes.
const HARD_LIMIT: usize = 2 * SOFT_LIMIT;
/// The capacity that an empty queue keeps; the memory for a burst is freed.
const MIN_CAPACITY: usize = 64;

/// The queue of the writer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Each with the digest of its object.
    events: VecDeque<(Digest, Event)>,
}

impl Pending {
    /// Adds an event; returns whether there was room for it.
    pub(super) fn push(&mut self, event: Event) -> bool {
        let limit = match event.importance {
            Importance::Repeatable => SOFT_LIMIT,
            Importance::Final => HARD_LIMIT,
        };
        let has_room = self.len() < limit;
        if has_room {
            let about = &event.about;
            let object = digest(&[&about.kind, &about.namespace, &about.name, &about.uid]);
            self.events.push_back((object, event));
        }
        has_room
    }

    /// Removes and returns the first event whose object is not `busy`.
    pub(super) fn pop(&mut self, busy: impl Fn(Digest) -> bool) -> Option<(Digest, Event)> {
        let first = self.events.iter().position(|(object, _)| !busy(*object))?;
        let popped = self.events.remove(first);
        if self.events.is_empty() {
            self.events.shrink_to(MIN_CAPACITY);
        }
        popped
    }

    /// The number of waiting events.
    pub(super) fn len(&self) -> usize {
        self.events.len()
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
        let popped = std::iter::from_fn(|| pending.pop(|_| false));
        popped.map(|(_, event)| event.message.as_str().to_owned()).collect()
    }

    #[test]
    fn events_keep_their_order_and_those_about_busy_objects_stay() {
        let mut pending = Pending::default();
        for (object, message) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
            assert!(pending.push(repeatable(object, message)));
        }
        let (a, _) = pending.pop(|_| false).unwrap();
        assert_eq!(pending.pop(|object| object == a).unwrap().1.message.as_str(), "3");
        assert_eq!(messages(&mut pending), ["2", "4"]);
        assert!(pending.pop(|_| false).is_none());
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
