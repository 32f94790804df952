//! A map that evicts the entries that were not used for longest, keyed by digests of texts.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher as _};

use indexmap::IndexMap;

/// A hash of a list of texts, of 128 bits. On a collision one event would be counted as another.
pub(super) type Digest = (u64, u64);

/// The digest of `parts`.
pub(super) fn digest(parts: &[&str]) -> Digest {
    digest_of_both(parts, &[])
}

/// The digest of `parts` and then `more`, as one list.
pub(super) fn digest_of_both(parts: &[&str], more: &[&str]) -> Digest {
    let hash = |salt: u8| {
        // Not seeded, so that simulations are reproducible.
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        (parts.len() + more.len()).hash(&mut hasher);
        parts.iter().chain(more).for_each(|part| part.hash(&mut hasher));
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// Keeps at least the `capacity` entries that were used last, and at most an eighth more; evicts many
/// at once. All entries are in two blocks of memory: they outlive everything else of a burst, and
/// separate allocations would keep a page each. The blocks are allocated once, because by growing they
/// would become nearly twice as large; untouched parts of them cost no memory.
#[derive(Debug)]
pub(super) struct LruMap<V> {
    capacity: usize,
    max_len: usize,
    /// The number of uses so far.
    uses: u64,
    entries: IndexMap<Digest, Entry<V>, BuildHasherDefault<DefaultHasher>>,
}

#[derive(Debug)]
struct Entry<V> {
    /// The number of its last use.
    used: u64,
    value: V,
}

impl<V> LruMap<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let max_len = capacity + capacity / 8;
        let entries = IndexMap::with_capacity_and_hasher(max_len, BuildHasherDefault::default());
        Self { capacity, max_len, uses: 0, entries }
    }

    /// Returns the entry and counts that as a use.
    pub(super) fn get(&mut self, key: Digest) -> Option<&mut V> {
        self.uses += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// All entries, of which none counts as used.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|entry| &mut entry.value)
    }

    /// Inserts or replaces an entry.
    pub(super) fn put(&mut self, key: Digest, value: V) -> &mut V {
        self.uses += 1;
        let used = self.uses;
        if self.entries.len() >= self.max_len {
            self.evict();
        }
        let entry = self.entries.entry(key).insert_entry(Entry { used, value });
        &mut entry.into_mut().value
    }

    /// Removes all but `capacity` entries.
    fn evict(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let excess = uses.len().saturating_sub(self.capacity);
        let (_, oldest_kept, _) = uses.select_nth_unstable(excess);
        let oldest_kept = *oldest_kept;
        self.entries.retain(|_, entry| entry.used >= oldest_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entries_are_evicted() {
        let key = |n: u8| digest(&[&n.to_string()]);
        let mut map = LruMap::new(16);
        for n in 1..=18 {
            map.put(key(n), n);
        }
        *map.get(key(1)).unwrap() += 100;
        map.put(key(19), 19);
        let left = (1..=19).filter_map(|n| map.get(key(n)).copied());
        assert_eq!(left.collect::<Vec<u8>>(), [&[101][..], &(4..=19).collect::<Vec<_>>()].concat());
    }

    #[test]
    fn the_capacity_never_grows() {
        let mut map = LruMap::new(4096);
        let capacity = map.entries.capacity();
        (0..20_000_u32).for_each(|n| *map.put(digest(&[&n.to_string()]), 0) += n);
        assert_eq!(map.entries.capacity(), capacity);
        assert!((4096..=4608).contains(&map.entries.len()) && capacity < 4700, "{capacity}");
    }

    #[test]
    fn digests_depend_on_the_borders_of_parts() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
        assert_eq!(digest(&["ab", "c"]), digest_of_both(&["ab"], &["c"]));
    }
}
