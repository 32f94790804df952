//! The queue of events that wait to be written.
//!
//! Events about one object keep their order. From [`SOFT_LIMIT`] events on, the queue accepts only the
//! first event of an object to wait, and final events; each replaces a waiting repeat if there is one.
//! From [`HARD_LIMIT`] events on it accepts none.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Event, Importance,
    lru_map::{Digest, digest},
};

/// client-go's limit.
const SOFT_LIMIT: usize = 1000;
/// Enough for first and final events of ten times as many objects: some ten megabytes.
const HARD_LIMIT: usize = 10 * SOFT_LIMIT;
/// The capacity that an empty queue keeps; the memory for a burst is freed.
const MIN_CAPACITY: usize = 64;

/// The queue of the writer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: VecDeque<Waiting>,
    /// The number of waiting events per object.
    by_object: BTreeMap<Digest, usize>,
}

#[derive(Debug)]
struct Waiting {
    object: Digest,
    /// Another event about the object waited before it, and it may be dropped.
    repeat: bool,
    event: Event,
}

/// The result of adding an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It was added.
    Added,
    /// It was added, and a waiting repeat was dropped.
    ReplacedRepeat,
    /// It was dropped.
    Dropped,
}

impl Pending {
    /// Adds an event.
    pub(super) fn push(&mut self, event: Event) -> Pushed {
        let object = digest(&[
            &event.about.kind,
            &event.about.namespace,
            &event.about.name,
            &event.about.uid,
        ]);
        let repeat =
            event.importance == Importance::Repeatable && self.by_object.contains_key(&object);
        let full = self.waiting.len() >= SOFT_LIMIT;
        if full && repeat || self.waiting.len() >= HARD_LIMIT {
            return Pushed::Dropped;
        }
        let dropped = full && self.drop_repeat();
        *self.by_object.entry(object).or_insert(0) += 1;
        self.waiting.push_back(Waiting { object, repeat, event });
        if dropped { Pushed::ReplacedRepeat } else { Pushed::Added }
    }

    /// Removes and returns the first event whose object is not `busy`.
    pub(super) fn pop(&mut self, busy: impl Fn(Digest) -> bool) -> Option<(Digest, Event)> {
        let index = self.waiting.iter().position(|waiting| !busy(waiting.object))?;
        let next = self.waiting.remove(index)?;
        if self.waiting.is_empty() {
            self.waiting.shrink_to(MIN_CAPACITY);
        }
        self.forget(next.object);
        Some((next.object, next.event))
    }

    /// The number of waiting events.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Drops the oldest repeat; returns whether there was one.
    fn drop_repeat(&mut self) -> bool {
        let oldest = self.waiting.iter().position(|waiting| waiting.repeat);
        let dropped = oldest.and_then(|index| self.waiting.remove(index));
        dropped.map(|waiting| self.forget(waiting.object)).is_some()
    }

    fn forget(&mut self, object: Digest) {
        if let Some(count) = self.by_object.get_mut(&object) {
            *count -= 1;
            if *count == 0 {
                self.by_object.remove(&object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::events::tests::event;

    fn repeatable(object: &str, message: &str) -> Event {
        event(object, "Reason", message, 0)
    }

    fn final_event(object: &str) -> Event {
        Event { importance: Importance::Final, ..repeatable(object, "last") }
    }

    fn names(pending: &mut Pending) -> Vec<(String, String)> {
        std::iter::from_fn(|| pending.pop(|_| false))
            .map(|(_, event)| (event.about.name.clone(), event.message.as_str().to_owned()))
            .collect()
    }

    #[test]
    fn events_keep_their_order() {
        let mut pending = Pending::default();
        for (object, message) in [("a", "1"), ("b", "2"), ("a", "3")] {
            assert_eq!(pending.push(repeatable(object, message)), Pushed::Added);
        }
        let order = [("a", "1"), ("b", "2"), ("a", "3")].map(|(o, m)| (o.to_owned(), m.to_owned()));
        assert_eq!(names(&mut pending), order);
        assert!(pending.by_object.is_empty());
    }

    #[test]
    fn events_about_busy_objects_stay_in_the_queue() {
        let mut pending = Pending::default();
        for (object, message) in [("a", "1"), ("a", "2"), ("b", "3")] {
            pending.push(repeatable(object, message));
        }
        let (a, _) = pending.pop(|_| false).unwrap();
        assert_eq!(pending.pop(|object| object == a).unwrap().1.message.as_str(), "3");
        assert!(pending.pop(|object| object == a).is_none());
        assert_eq!(names(&mut pending), [("a".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn in_a_full_queue_first_and_final_events_replace_repeats() {
        let mut pending = Pending::default();
        for n in 0..SOFT_LIMIT {
            // Every second one repeats.
            pending.push(repeatable(&format!("o{}", n / 2), &n.to_string()));
        }
        assert_eq!(pending.push(repeatable("o0", "once more")), Pushed::Dropped);
        assert_eq!(pending.push(repeatable("new", "first")), Pushed::ReplacedRepeat);
        assert_eq!(pending.push(final_event("o1")), Pushed::ReplacedRepeat);
        assert_eq!(pending.len(), SOFT_LIMIT);
        let left = names(&mut pending);
        let has =
            |object: &str, message: &str| left.contains(&(object.to_owned(), message.to_owned()));
        assert!(has("o0", "0") && !has("o0", "1"), "the oldest repeat is dropped");
        assert!(has("new", "first") && has("o1", "2") && has("o1", "last"));
    }

    #[test]
    fn without_repeats_the_queue_grows_up_to_its_hard_limit() {
        let mut pending = Pending::default();
        for n in 0..HARD_LIMIT {
            assert_eq!(pending.push(repeatable(&format!("o{n}"), "first")), Pushed::Added);
        }
        assert_eq!(pending.push(final_event("o1")), Pushed::Dropped);
        assert_eq!(pending.len(), HARD_LIMIT);
        while pending.pop(|_| false).is_some() {}
        assert!(pending.waiting.capacity() <= MIN_CAPACITY, "its memory is freed");
    }
}
