//! A cache of the objects of interest that an informer yields.
//!
//! Each call returns what it changed. An object that has *left* still exists but is of no interest
//! any more; one that is *gone* does not exist. Deletions that no watch showed are found at the end of
//! the next list. The caller decides what is of interest, what is kept of it (`T`), and the key: with
//! the name as key, an object that was created again under its name counts as updated.

use std::collections::{BTreeMap, btree_map};

/// What an event changed.
#[derive(Debug, PartialEq, Eq)]
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

/// What is kept of the objects of interest, by key.
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
    /// A new list begins. Everything is kept until it is [`finish_list`](Self::finish_list).
    pub fn begin_list(&mut self) {
        self.generation += 1;
    }

    /// The object `key` exists; `item` is what is kept of it, or none if it is of no interest.
    pub fn apply(&mut self, key: &str, item: Option<T>) -> Change<'_, T> {
        if let Some(item) = item {
            return self.keep(key.into(), item);
        }
        let left = self.entries.remove(key);
        left.map_or(Change::Nothing, |entry| Change::Left(entry.item))
    }

    fn keep(&mut self, key: Box<str>, item: T) -> Change<'_, T> {
        let fresh = Entry { generation: self.generation, item };
        match self.entries.entry(key) {
            btree_map::Entry::Vacant(place) => Change::Entered(&place.insert(fresh).item),
            btree_map::Entry::Occupied(place) => {
                let entry = place.into_mut();
                let old = std::mem::replace(entry, fresh).item;
                Change::Updated { old, new: &entry.item }
            }
        }
    }

    /// The object `key` exists, and what is kept of it stays as it is: the object cannot be read, or
    /// something else than its content is kept.
    pub fn mark_listed(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.generation = self.generation;
        }
    }

    /// The object `key` does not exist any more.
    pub fn remove(&mut self, key: &str) -> Change<'_, T> {
        self.entries.remove(key).map_or(Change::Nothing, |entry| Change::Gone(entry.item))
    }

    /// The list is complete: removes what is not in it, and returns it.
    #[must_use]
    pub fn finish_list(&mut self) -> Vec<T> {
        self.finish_list_by_key().into_iter().map(|(_, item)| item).collect()
    }

    /// Like [`finish_list`](Self::finish_list), with the keys.
    #[must_use]
    pub fn finish_list_by_key(&mut self) -> Vec<(Box<str>, T)> {
        let vanished = self.entries.iter().filter(|(_, entry)| entry.generation != self.generation);
        let vanished: Vec<_> = vanished.map(|(key, _)| key.clone()).collect();
        vanished
            .into_iter()
            .filter_map(|key| Some((self.entries.remove(&key)?.item, key)))
            .map(|(item, key)| (key, item))
            .collect()
    }

    /// What is kept of the object `key`.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.item)
    }

    /// What is kept of the object `key`, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut T> {
        self.entries.get_mut(key).map(|entry| &mut entry.item)
    }

    /// Iterates over everything, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.entries.iter().map(|(key, entry)| (&**key, &entry.item))
    }

    /// The number of objects of which something is kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn what_a_whole_list_does_not_show_has_vanished() {
        let mut cache = Cache::<_>::default();
        for (key, item) in [("a", 1), ("b", 2), ("c", 3)] {
            let _ = cache.apply(key, Some(item));
        }
        cache.begin_list();
        let _ = cache.apply("a", Some(1));
        // The list breaks off and begins anew: what the first half showed proves nothing.
        cache.begin_list();
        let _ = cache.apply("b", Some(2));
        cache.mark_listed("c");
        assert_eq!((cache.get("a"), cache.len()), (Some(&1), 3));
        assert_eq!(cache.finish_list(), [1]);
        assert!(cache.finish_list().is_empty());
        assert_eq!(cache.iter().collect::<Vec<_>>(), [("b", &2), ("c", &3)]);
    }

    /// What happens on the server: objects are written (odd content is of interest) or deleted.
    #[derive(Debug, Clone)]
    enum Step {
        Write(u8, u8),
        Delete(u8),
        /// The watch is lost for the writes of this gap; then a list follows, after a first try
        /// that breaks off after some objects.
        Gap(Vec<(u8, Option<u8>)>, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let gap = (vec((0..6_u8, proptest::option::of(any::<u8>())), 0..8), 0..6_usize);
        prop_oneof![
            4 => (0..6_u8, any::<u8>()).prop_map(|(key, content)| Step::Write(key, content)),
            2 => (0..6_u8).prop_map(Step::Delete),
            1 => gap.prop_map(|(steps, seen)| Step::Gap(steps, seen)),
        ]
    }

    fn interest(content: u8) -> Option<u8> {
        (content % 2 == 1).then_some(content)
    }

    /// What an observer knows of who is in, fed by changes alone.
    #[derive(Default)]
    struct Known(BTreeMap<String, u8>);

    impl Known {
        fn learn(&mut self, key: &str, change: &Change<'_, u8>, exists: bool) {
            let before = self.0.get(key).copied();
            match change {
                Change::Entered(new) => {
                    assert_eq!(before, None);
                    self.0.insert(key.to_owned(), **new);
                }
                Change::Updated { old, new } => {
                    assert_eq!(before, Some(*old));
                    self.0.insert(key.to_owned(), **new);
                }
                Change::Left(old) | Change::Gone(old) => {
                    assert_eq!(matches!(change, Change::Left(_)), exists);
                    assert_eq!(before, Some(*old));
                    self.0.remove(key);
                }
                Change::Nothing => assert_eq!(before, None),
            }
        }

        fn show(&mut self, cache: &mut Cache<u8>, key: u8, content: u8) {
            let key = key.to_string();
            let change = cache.apply(&key, interest(content));
            self.learn(&key, &change, true);
        }
    }

    proptest! {
        /// Whatever happens, seen or not, after each step the cache holds exactly what exists and
        /// is of interest, and its changes lead an observer to the same.
        #[test]
        fn the_cache_follows_the_server(steps in vec(step(), 0..60)) {
            let (mut server, mut cache, mut known) = (BTreeMap::new(), Cache::default(), Known::default());
            for step in steps {
                match step {
                    Step::Write(key, content) => {
                        server.insert(key, content);
                        known.show(&mut cache, key, content);
                    }
                    Step::Delete(key) => {
                        if server.remove(&key).is_some() {
                            let change = cache.remove(&key.to_string());
                            known.learn(&key.to_string(), &change, false);
                        }
                    }
                    Step::Gap(unseen, first_try) => {
                        cache.begin_list();
                        let old = server.clone();
                        for (key, content) in old.iter().take(first_try) {
                            known.show(&mut cache, *key, *content);
                        }
                        for (key, content) in unseen {
                            match content {
                                Some(content) => drop(server.insert(key, content)),
                                None => drop(server.remove(&key)),
                            }
                        }
                        cache.begin_list();
                        for (key, content) in &server {
                            known.show(&mut cache, *key, *content);
                        }
                        let before = std::mem::take(&mut known.0).into_iter();
                        let (still, vanished): (BTreeMap<_, _>, BTreeMap<_, _>) =
                            before.partition(|(key, _)| server.contains_key(&key.parse().unwrap()));
                        known.0 = still;
                        let vanished: Vec<u8> = vanished.into_values().collect();
                        prop_assert_eq!(cache.finish_list(), vanished);
                    }
                }
                let truth: BTreeMap<String, u8> = server
                    .iter()
                    .filter_map(|(key, content)| Some((key.to_string(), interest(*content)?)))
                    .collect();
                let kept: BTreeMap<String, u8> = cache.iter().map(|(key, item)| (key.to_owned(), *item)).collect();
                prop_assert_eq!(&kept, &truth);
                prop_assert_eq!(&known.0, &truth);
                prop_assert_eq!(cache.len(), truth.len());
            }
        }
    }
}
