//! A hash map for many entries that come and go in bursts: claims, volumes, queue keys.
//!
//! Lookups take constant time, unlike in a sorted map, which compares a dozen strings scattered in memory.
//! The memory that a burst needed is freed after it. The iteration order is the same in every run with the
//! same history, which a simulation needs, and otherwise arbitrary.

use std::{
    borrow::Borrow,
    hash::{BuildHasherDefault, DefaultHasher, Hash},
};

use indexmap::{Equivalent, IndexMap};

/// The capacity that is always kept. Small, as there are many tables, most of them usually empty.
const KEPT: usize = 8;

/// A hash map with a deterministic iteration order.
#[derive(Debug, Clone)]
pub(crate) struct Table<K, V>(IndexMap<K, V, BuildHasherDefault<DefaultHasher>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(IndexMap::default())
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// Returns the value of the key.
    pub(crate) fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.0.get(key)
    }

    /// Returns the value of the key, mutably.
    pub(crate) fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Returns the key that is kept.
    pub(crate) fn kept_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&K> {
        self.0.get_key_value(key).map(|(kept, _)| kept)
    }

    /// Whether the key has a value.
    pub(crate) fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.0.contains_key(key)
    }

    /// Sets the value of the key. Returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.make_room();
        self.0.insert(key, value)
    }

    /// Returns the value of the key, after inserting the default if there is none.
    pub(crate) fn get_or_default<Q>(&mut self, key: &Q) -> &mut V
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        K: Borrow<Q>,
        V: Default,
    {
        self.make_room();
        self.0.entry(key.to_owned()).or_default()
    }

    /// Makes room for an entry: a full table grows by an eighth, not to twice its size.
    fn make_room(&mut self) {
        let full = self.0.len();
        if full == self.0.capacity() {
            self.0.reserve_exact(KEPT.max(full / 8));
        }
    }

    /// Removes the key, and returns its value.
    pub(crate) fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        let removed = self.0.swap_remove(key)?;
        let left = self.0.len();
        if self.0.capacity() > KEPT.max(4 * left) {
            self.0.shrink_to(KEPT.max(2 * left));
        }
        Some(removed)
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns all entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    /// Returns all entries, with mutable values.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut()
    }

    /// Returns all values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    /// Returns all values, mutably.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
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
        fn it_behaves_as_a_btree_map(steps in prop::collection::vec((0_u8..3, 0_u8..200), 0..600)) {
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
    fn removing_entries_frees_their_memory() {
        let mut table = Table::default();
        for key in 0..20_000 {
            table.insert(key, ());
        }
        for key in 0..20_000 {
            table.remove(&key);
            let left = table.len();
            let capacity = table.0.capacity();
            assert!(capacity <= KEPT.max(4 * left), "capacity {capacity} for {left}");
        }
    }

    #[test]
    fn the_order_depends_only_on_the_history() {
        let history = || {
            let mut table = Table::default();
            for key in 0..100 {
                table.insert(key.to_string(), key);
            }
            (0..100).step_by(3).for_each(|key| _ = table.remove(key.to_string().as_str()));
            table.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(history(), history());
    }
}
