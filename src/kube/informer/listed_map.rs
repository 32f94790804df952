//! The objects that a list and the events after it have shown, as small keys and values.
//!
//! An object that is known stays in the map until a complete list does not show it. While a list runs, the
//! map has what was known before and what the list has shown.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    iter,
    ops::RangeBounds,
};

/// A map of objects that are listed from time to time.
#[derive(Debug)]
pub(crate) struct ListedMap<K, V = ()> {
    known: BTreeMap<K, V>,
    /// The list in progress.
    listing: Option<BTreeMap<K, V>>,
}

impl<K, V> Default for ListedMap<K, V> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listing: None }
    }
}

impl<K: Copy + Ord, V: Clone> ListedMap<K, V> {
    /// Begins a new list. What an unfinished one has shown is kept as known.
    pub(crate) fn begin_list(&mut self) {
        self.known.extend(self.listing.replace(BTreeMap::new()).unwrap_or_default());
    }

    /// Completes the list: forgets the objects that it has not shown.
    pub(crate) fn finish_list(&mut self) {
        if let Some(listed) = self.listing.take() {
            // Collected in order, a map is packed more densely than as it has grown.
            self.known = listed.into_iter().collect();
        }
    }

    /// Keeps known objects in the list in progress, which has shown something that cannot be read.
    pub(crate) fn keep_known(&mut self, is_kept: impl Fn(&K) -> bool) {
        if let Some(listed) = &mut self.listing {
            let kept = self.known.iter().filter(|(key, _)| is_kept(key));
            listed.extend(kept.map(|(key, value)| (*key, value.clone())));
        }
    }

    /// Adds an object.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.listing.as_mut().unwrap_or(&mut self.known).insert(key, value);
    }

    /// Removes an object. Returns what was kept of it.
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let listed = self.listing.as_mut().and_then(|listed| listed.remove(&key));
        self.known.remove(&key).or(listed)
    }

    /// Whether the object is in the map.
    pub(crate) fn contains(&self, key: K) -> bool {
        self.range(key..=key).next().is_some()
    }

    /// The objects within `keys`, in any order, some of them twice.
    pub(crate) fn range(&self, keys: impl RangeBounds<K> + Clone) -> impl Iterator<Item = (K, &V)> {
        iter::once(&self.known)
            .chain(&self.listing)
            .flat_map(move |objects| objects.range(keys.clone()))
            .map(|(key, value)| (*key, value))
    }

    /// The number of objects that are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// A small value for an object. It does not depend on the process, so that tests are reproducible. Nor is it
/// keyed: a deliberate collision only costs a needless read.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
