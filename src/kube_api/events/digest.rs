//! Short keys for long texts, and a map that forgets what was not used for longest.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Stands for a list of texts. Two lists have the same digest only by an accident of 128 bits,
/// which would count one event as another.
pub(super) type Digest = (u64, u64);

/// The digest of `parts`.
pub(super) fn digest(parts: &[&str]) -> Digest {
    let hash = |salt: u8| {
        // Always starts from the same state, so that a run repeats itself.
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        parts.hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// At most `capacity` entries; the one not used for longest makes room.
#[derive(Debug)]
pub(super) struct Lru<V> {
    capacity: usize,
    uses: u64,
    entries: BTreeMap<Digest, (u64, V)>,
    by_use: BTreeMap<u64, Digest>,
}

impl<V> Lru<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, entries: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// Takes an entry out, to be put back with [`Lru::put`].
    pub(super) fn take(&mut self, key: Digest) -> Option<V> {
        let (used, value) = self.entries.remove(&key)?;
        self.by_use.remove(&used);
        Some(value)
    }

    /// Puts an entry in as the one used last.
    pub(super) fn put(&mut self, key: Digest, value: V) {
        self.take(key);
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > self.capacity {
            if let Some((_, oldest)) = self.by_use.pop_first() {
                self.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let key = |n: &str| digest(&[n]);
        let mut lru = Lru::new(2);
        lru.put(key("a"), 1);
        lru.put(key("b"), 2);
        let a = lru.take(key("a")).unwrap();
        lru.put(key("a"), a + 10);
        lru.put(key("c"), 3);
        assert_eq!(
            (lru.take(key("a")), lru.take(key("b")), lru.take(key("c"))),
            (Some(11), None, Some(3))
        );
        assert!(lru.by_use.is_empty() && lru.entries.is_empty());
    }

    #[test]
    fn digests_tell_the_parts_apart() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
    }
}
