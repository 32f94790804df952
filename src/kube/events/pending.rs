//! The queue of events that wait to be written.
//!
//! Events about one object keep their order. Objects with a waiting warning come before the others: a
//! failure is worth more to its reader than a success. From [`SOFT_LIMIT`] events on, the queue accepts
//! only the first event of an object to wait, and final events; each replaces a waiting repeat if there
//! is one. From [`HARD_LIMIT`] events on it accepts none.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Event, Importance, Severity,
    lru_map::{Digest, digest},
};

/// More than events that give way to objects fill (see `recorder`); client-go has 1000.
const SOFT_LIMIT: usize = 5000;
/// Enough for first and final events of as many objects as the soft limit has events: some ten megabytes.
const HARD_LIMIT: usize = 2 * SOFT_LIMIT;
/// The capacity that an empty queue keeps; the memory for a burst is freed.
const MIN_CAPACITY: usize = 64;

/// The queue of the writer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The events of objects with a waiting warning.
    urgent: VecDeque<Waiting>,
    /// All other events.
    normal: VecDeque<Waiting>,
    objects: BTreeMap<Digest, ObjectEvents>,
}

/// The waiting events of one object.
#[derive(Debug, Default)]
struct ObjectEvents {
    count: usize,
    /// Whether they are in the urgent queue.
    is_urgent: bool,
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
        let about = &event.about;
        let object = digest(&[&about.kind, &about.namespace, &about.name, &about.uid]);
        let repeat =
            event.importance == Importance::Repeatable && self.objects.contains_key(&object);
        let full = self.len() >= SOFT_LIMIT;
        if full && repeat || self.len() >= HARD_LIMIT {
            return Pushed::Dropped;
        }
        let dropped = full && self.drop_repeat();
        self.add(Waiting { object, repeat, event });
        if dropped { Pushed::ReplacedRepeat } else { Pushed::Added }
    }

    fn add(&mut self, waiting: Waiting) {
        let events = self.objects.entry(waiting.object).or_default();
        let becomes_urgent = waiting.event.severity == Severity::Warning && !events.is_urgent;
        let has_earlier = events.count > 0;
        events.count += 1;
        events.is_urgent |= becomes_urgent;
        if !events.is_urgent {
            return self.normal.push_back(waiting);
        }
        if becomes_urgent && has_earlier {
            self.make_urgent(waiting.object);
        }
        self.urgent.push_back(waiting);
    }

    /// Moves the waiting events of an object to the urgent queue.
    fn make_urgent(&mut self, object: Digest) {
        let is_about = |waiting: &Waiting| waiting.object == object;
        let (moved, rest) = std::mem::take(&mut self.normal).into_iter().partition(is_about);
        self.normal = rest;
        self.urgent.extend::<VecDeque<_>>(moved);
    }

    /// Removes and returns the first event whose object is not `busy`.
    pub(super) fn pop(&mut self, busy: impl Fn(Digest) -> bool) -> Option<(Digest, Event)> {
        let next = remove_first(&mut self.urgent, |waiting| !busy(waiting.object))
            .or_else(|| remove_first(&mut self.normal, |waiting| !busy(waiting.object)))?;
        self.forget(next.object);
        Some((next.object, next.event))
    }

    /// The number of waiting events.
    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.normal.len()
    }

    /// Drops the oldest repeat, preferably of an object without a warning; returns whether there was
    /// one.
    fn drop_repeat(&mut self) -> bool {
        let dropped = remove_first(&mut self.normal, |waiting| waiting.repeat)
            .or_else(|| remove_first(&mut self.urgent, |waiting| waiting.repeat));
        dropped.map(|waiting| self.forget(waiting.object)).is_some()
    }

    fn forget(&mut self, object: Digest) {
        if let Some(events) = self.objects.get_mut(&object) {
            events.count -= 1;
            if events.count == 0 {
                self.objects.remove(&object);
            }
        }
    }
}

/// Removes the first event of the queue that is `wanted`.
fn remove_first(
    queue: &mut VecDeque<Waiting>,
    wanted: impl Fn(&Waiting) -> bool,
) -> Option<Waiting> {
    let index = queue.iter().position(wanted)?;
    let removed = queue.remove(index);
    if queue.is_empty() {
        queue.shrink_to(MIN_CAPACITY);
    }
    removed
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
        assert!(pending.objects.is_empty());
    }

    #[test]
    fn objects_with_a_warning_come_first_and_keep_their_order() {
        let mut pending = Pending::default();
        for (object, message) in [("a", "1"), ("b", "2"), ("c", "3"), ("b", "4")] {
            pending.push(repeatable(object, message));
        }
        let warning =
            |object, message| Event { severity: Severity::Warning, ..repeatable(object, message) };
        pending.push(warning("b", "5"));
        pending.push(repeatable("b", "6"));
        pending.push(warning("d", "7"));
        let order: Vec<_> = names(&mut pending).into_iter().map(|(_, message)| message).collect();
        assert_eq!(order, ["2", "4", "5", "6", "7", "1", "3"]);
        assert!(pending.objects.is_empty());
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
        assert!(pending.normal.capacity() <= MIN_CAPACITY, "its memory is freed");
    }
}
