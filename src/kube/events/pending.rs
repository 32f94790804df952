//! Events that wait to be written.
//!
//! Owns the order and the bounds. Promises that events about one object keep their order; that
//! beyond [`SOFT`] events only those go in that are the first of their object to wait, or its last
//! word, each taking the place of a waiting repeat where there is one; and that beyond [`HARD`]
//! nothing goes in.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Event, Importance,
    digest::{Digest, digest},
};

/// client-go's bound on waiting events.
const SOFT: usize = 1000;
/// Room for the first events and last words of ten times as many objects: some ten megabytes.
const HARD: usize = 10 * SOFT;
/// Places that are kept when none waits; what a burst needed is given back.
const KEPT: usize = 64;

/// The queue of the writer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: VecDeque<Waiting>,
    /// How many wait about each object.
    by_object: BTreeMap<Digest, usize>,
}

#[derive(Debug)]
struct Waiting {
    object: Digest,
    /// Something about the object waited before, and this may be left out.
    repeat: bool,
    event: Event,
}

/// How an event went in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// There was room.
    Taken,
    /// It went in and a waiting repeat went out.
    TookAPlace,
    /// It was left out.
    Refused,
}

impl Pending {
    /// Takes an event in.
    pub(super) fn push(&mut self, event: Event) -> Entry {
        let object = digest(&[
            &event.about.kind,
            &event.about.namespace,
            &event.about.name,
            &event.about.uid,
        ]);
        let repeat =
            event.importance == Importance::Repeatable && self.by_object.contains_key(&object);
        let full = self.waiting.len() >= SOFT;
        if full && repeat || self.waiting.len() >= HARD {
            return Entry::Refused;
        }
        let shed = full && self.shed();
        *self.by_object.entry(object).or_insert(0) += 1;
        self.waiting.push_back(Waiting { object, repeat, event });
        if shed { Entry::TookAPlace } else { Entry::Taken }
    }

    /// The next event to write, but for those about objects that are `held` up.
    pub(super) fn pop(&mut self, held: impl Fn(Digest) -> bool) -> Option<(Digest, Event)> {
        let place = self.waiting.iter().position(|waiting| !held(waiting.object))?;
        let next = self.waiting.remove(place)?;
        if self.waiting.is_empty() {
            self.waiting.shrink_to(KEPT);
        }
        self.forget(next.object);
        Some((next.object, next.event))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Leaves out the oldest repeat; whether there was one.
    fn shed(&mut self) -> bool {
        let oldest = self.waiting.iter().position(|waiting| waiting.repeat);
        let shed = oldest.and_then(|place| self.waiting.remove(place));
        shed.map(|waiting| self.forget(waiting.object)).is_some()
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

    fn last_word(object: &str) -> Event {
        Event { importance: Importance::LastWord, ..repeatable(object, "last") }
    }

    fn names(pending: &mut Pending) -> Vec<(String, String)> {
        std::iter::from_fn(|| pending.pop(|_| false))
            .map(|(_, event)| (event.about.name.clone(), event.message.as_str().to_owned()))
            .collect()
    }

    #[test]
    fn events_come_out_as_they_went_in() {
        let mut pending = Pending::default();
        for (object, message) in [("a", "1"), ("b", "2"), ("a", "3")] {
            assert_eq!(pending.push(repeatable(object, message)), Entry::Taken);
        }
        let order = [("a", "1"), ("b", "2"), ("a", "3")].map(|(o, m)| (o.to_owned(), m.to_owned()));
        assert_eq!(names(&mut pending), order);
        assert!(pending.by_object.is_empty());
    }

    #[test]
    fn events_about_objects_that_are_held_up_keep_their_place() {
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
    fn a_full_queue_takes_first_events_and_last_words_in_place_of_repeats() {
        let mut pending = Pending::default();
        for n in 0..SOFT {
            // Every second one repeats.
            pending.push(repeatable(&format!("o{}", n / 2), &n.to_string()));
        }
        assert_eq!(pending.push(repeatable("o0", "once more")), Entry::Refused);
        assert_eq!(pending.push(repeatable("new", "first")), Entry::TookAPlace);
        assert_eq!(pending.push(last_word("o1")), Entry::TookAPlace);
        assert_eq!(pending.len(), SOFT);
        let left = names(&mut pending);
        let has =
            |object: &str, message: &str| left.contains(&(object.to_owned(), message.to_owned()));
        assert!(has("o0", "0") && !has("o0", "1"), "the oldest repeat went");
        assert!(has("new", "first") && has("o1", "2") && has("o1", "last"));
    }

    #[test]
    fn without_repeats_the_queue_grows_up_to_its_hard_bound() {
        let mut pending = Pending::default();
        for n in 0..HARD {
            assert_eq!(pending.push(repeatable(&format!("o{n}"), "first")), Entry::Taken);
        }
        assert_eq!(pending.push(last_word("o1")), Entry::Refused);
        assert_eq!(pending.len(), HARD);
        while pending.pop(|_| false).is_some() {}
        assert!(pending.waiting.capacity() <= KEPT, "its room is given back");
    }
}
