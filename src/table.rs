//! A map for many things that come and go in bursts: claims, volumes, pieces of work.
//!
//! Promises that finding one costs the same among ten thousand as among ten (a sorted map of texts
//! compares a dozen of them, each somewhere else in memory), that what a burst has needed is given
//! back with it, in one piece, and that the order is the same in every run with the same history, which
//! a simulation needs. That order means nothing otherwise.

use std::{
    borrow::Borrow,
    hash::{BuildHasherDefault, DefaultHasher, Hash},
};

use indexmap::{Equivalent, IndexMap};

/// So much room is kept whatever is in it: there are many tables, and most are empty most of the time.
const KEPT: usize = 8;

/// A map without an order of its own.
#[derive(Debug, Clone)]
pub(crate) struct Table<K, V>(IndexMap<K, V, BuildHasherDefault<DefaultHasher>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(IndexMap::default())
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// What is kept under the key.
    pub(crate) fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.0.get(key)
    }

    /// The same, to change it.
    pub(crate) fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Whether anything is kept under the key.
    pub(crate) fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.0.contains_key(key)
    }

    /// Keeps this under the key; what was kept there before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// What is kept under the key, which is a `V` as it is made where there is nothing yet.
    pub(crate) fn get_or_default<Q>(&mut self, key: &Q) -> &mut V
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
        V: Default,
    {
        self.0.entry(key.to_owned()).or_default()
    }

    /// Lets go of what is kept under the key, and gives it.
    pub(crate) fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        let removed = self.0.swap_remove(key)?;
        let left = self.0.len();
        if self.0.capacity() > KEPT.max(4 * left) {
            self.0.shrink_to(KEPT.max(2 * left));
        }
        Some(removed)
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All that is kept, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    /// The same, to change it.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut()
    }

    /// All keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// All that is kept.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    /// The same, to change it.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_keeps_what_a_sorted_map_keeps(steps in prop::collection::vec((0_u8..3, 0_u8..200), 0..600)) {
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            for (number, (step, key)) in steps.into_iter().enumerate() {
                let (kept, expected) = match step {
                    0 => (table.remove(&key), model.remove(&key)),
                    _ => (table.insert(key, number), model.insert(key, number)),
                };
                prop_assert_eq!(kept, expected);
                prop_assert_eq!(table.get(&key), model.get(&key));
                prop_assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
            }
            let kept: BTreeMap<u8, usize> = table.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(kept, model);
        }
    }

    #[test]
    fn what_a_burst_needed_is_given_back_with_it() {
        let mut table = Table::default();
        for key in 0..20_000 {
            table.insert(key, ());
        }
        for key in 0..20_000 {
            table.remove(&key);
            let (left, room) = (table.len(), table.0.capacity());
            assert!(room <= KEPT.max(4 * left), "room for {room} of {left}");
        }
    }

    #[test]
    fn its_order_is_that_of_its_history() {
        let history = || {
            let mut table = Table::default();
            for key in 0..100 {
                table.insert(key.to_string(), key);
            }
            (0..100).step_by(3).for_each(|key| _ = table.remove(key.to_string().as_str()));
            table.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(history(), history());
    }
}
