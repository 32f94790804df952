//! Short keys for long texts, and a map that forgets what was not used for longest.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher as _};

use indexmap::IndexMap;

/// Stands for a list of texts. Two lists have the same digest only by an accident of 128 bits,
/// which would count one event as another.
pub(super) type Digest = (u64, u64);

/// The digest of `parts`.
pub(super) fn digest(parts: &[&str]) -> Digest {
    digest_of_both(parts, &[])
}

/// The digest of `parts` and then `more`, as one list.
pub(super) fn digest_of_both(parts: &[&str], more: &[&str]) -> Digest {
    let hash = |salt: u8| {
        // Always starts from the same state, so that a run repeats itself.
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        (parts.len() + more.len()).hash(&mut hasher);
        parts.iter().chain(more).for_each(|part| part.hash(&mut hasher));
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// Remembers at least the `capacity` entries that were used last, and at most an eighth more: those
/// not used for longest make room, many at once. All of them lie in two blocks of memory: of a burst
/// they outlive everything else, and would hold a page each. The blocks have their size from the start,
/// and cost what of them was ever used; if they grew, they would grow to nearly twice that.
#[derive(Debug)]
pub(super) struct Remembered<V> {
    capacity: usize,
    most: usize,
    uses: u64,
    entries: IndexMap<Digest, Entry<V>, BuildHasherDefault<DefaultHasher>>,
}

#[derive(Debug)]
struct Entry<V> {
    used: u64,
    value: V,
}

impl<V> Remembered<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let most = capacity + capacity / 8;
        let entries = IndexMap::with_capacity_and_hasher(most, BuildHasherDefault::default());
        Self { capacity, most, uses: 0, entries }
    }

    /// The entry, which counts as used.
    pub(super) fn get(&mut self, key: Digest) -> Option<&mut V> {
        self.uses += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// Puts an entry in, in place of an earlier one of the key.
    pub(super) fn put(&mut self, key: Digest, value: V) -> &mut V {
        self.uses += 1;
        let used = self.uses;
        if self.entries.len() >= self.most {
            self.make_room();
        }
        let entry = self.entries.entry(key).insert_entry(Entry { used, value });
        &mut entry.into_mut().value
    }

    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let many = uses.len().saturating_sub(self.capacity);
        let (_, kept_from, _) = uses.select_nth_unstable(many);
        let kept_from = *kept_from;
        self.entries.retain(|_, entry| entry.used >= kept_from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let key = |n: u8| digest(&[&n.to_string()]);
        let mut remembered = Remembered::new(16);
        for n in 1..=18 {
            remembered.put(key(n), n);
        }
        *remembered.get(key(1)).unwrap() += 100;
        remembered.put(key(19), 19);
        let left = (1..=19).filter_map(|n| remembered.get(key(n)).copied());
        assert_eq!(left.collect::<Vec<u8>>(), [&[101][..], &(4..=19).collect::<Vec<_>>()].concat());
    }

    #[test]
    fn its_room_never_grows() {
        let mut remembered = Remembered::new(4096);
        let room = remembered.entries.capacity();
        (0..20_000_u32).for_each(|n| *remembered.put(digest(&[&n.to_string()]), 0) += n);
        assert_eq!(remembered.entries.capacity(), room);
        assert!((4096..=4608).contains(&remembered.entries.len()) && room < 4700, "{room}");
    }

    #[test]
    fn an_entry_takes_the_place_of_the_one_before() {
        let mut remembered = Remembered::new(4);
        remembered.put(digest(&["a"]), 1);
        assert_eq!(*remembered.put(digest(&["a"]), 2), 2);
        assert_eq!(remembered.entries.len(), 1);
    }

    #[test]
    fn digests_tell_the_parts_apart() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
        assert_eq!(digest(&["ab", "c"]), digest_of_both(&["ab"], &["c"]));
    }
}
