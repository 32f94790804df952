//! What is kept of the objects that a reflector shows: those of interest, as little as possible.
//!
//! Owns the store and the difference between two sightings. Promises that entering, leaving and
//! vanishing are each told once and never mixed up: what has *left* still exists but is of no
//! interest any more; what is *gone* does not exist. A relist that swallowed deletions tells them
//! at its end. Leaves to its caller what is of interest, what is kept of it (`T`), and the key: a
//! key by name takes an object re-created under its name for the same one ([`Change::Updated`]).

use std::collections::{BTreeMap, btree_map};

/// What a sighting changed.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Change<'a, T> {
    /// The object is of interest and was not before.
    Entered(&'a T),
    /// The object was and is of interest.
    Updated {
        /// What was kept of it.
        old: T,
        /// What is kept of it now.
        new: &'a T,
    },
    /// The object still exists, but is of no interest any more.
    Left(T),
    /// The object does not exist any more.
    Gone(T),
    /// Nothing that is kept has changed.
    Nothing,
}

/// A store of what is of interest, by key.
#[derive(Debug)]
pub struct Cache<T> {
    entries: BTreeMap<Box<str>, Entry<T>>,
    /// Counts lists; an entry older than the list that has just ended was not in it.
    generation: u64,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u64,
    item: T,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), generation: 0 }
    }
}

impl<T> Cache<T> {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new list begins. Everything stays until it is [`complete`](Self::complete).
    pub fn restarted(&mut self) {
        self.generation += 1;
    }

    /// The object `key` exists, and `item` is what is kept of it, if it is of interest.
    pub fn seen(&mut self, key: &str, item: Option<T>) -> Change<'_, T> {
        match item {
            Some(item) => self.keep(key, item),
            None => {
                self.entries.remove(key).map_or(Change::Nothing, |entry| Change::Left(entry.item))
            }
        }
    }

    fn keep(&mut self, key: &str, item: T) -> Change<'_, T> {
        let fresh = Entry { generation: self.generation, item };
        match self.entries.entry(key.into()) {
            btree_map::Entry::Vacant(place) => Change::Entered(&place.insert(fresh).item),
            btree_map::Entry::Occupied(place) => {
                let entry = place.into_mut();
                let old = std::mem::replace(entry, fresh).item;
                Change::Updated { old, new: &entry.item }
            }
        }
    }

    /// The object `key` exists, but cannot be read: what is kept of it stays as it is.
    pub fn unreadable(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.generation = self.generation;
        }
    }

    /// The object `key` does not exist any more.
    pub fn deleted(&mut self, key: &str) -> Change<'_, T> {
        self.entries.remove(key).map_or(Change::Nothing, |entry| Change::Gone(entry.item))
    }

    /// The list is whole: gives what was kept and is not in it, which has vanished meanwhile.
    #[must_use]
    pub fn complete(&mut self) -> Vec<T> {
        let current = self.generation;
        self.entries
            .extract_if(.., |_, entry| entry.generation != current)
            .map(|(_, entry)| entry.item)
            .collect()
    }

    /// What is kept of the object `key`.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.item)
    }

    /// All that is kept, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.entries.iter().map(|(key, entry)| (&**key, &entry.item))
    }

    /// How many objects something is kept of.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
