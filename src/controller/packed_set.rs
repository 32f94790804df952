//! A sorted set of small values in a few large chunks of memory.
//!
//! Chunks shrink with their content, and the values that remain after a burst lie together. The nodes of
//! a tree would lie scattered among memory that was freed since, each on a page that could otherwise be
//! returned to the system.

use std::ops::RangeInclusive;

/// The maximum number of values in a chunk: 16 KiB for values of eight bytes.
const MAX_CHUNK: usize = 2048;

/// A chunk with fewer values may be merged with the next one.
const SMALL_CHUNK: usize = MAX_CHUNK / 4;

/// A sorted set.
#[derive(Debug)]
pub(super) struct PackedSet<T> {
    /// In order, like the values in each. No chunk is empty.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for PackedSet<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Copy + Ord> PackedSet<T> {
    /// Adds a value, unless it is in the set.
    pub(super) fn insert(&mut self, value: T) {
        let index = self.chunk_index(value);
        let Some(chunk) = self.chunks.get_mut(index) else {
            return self.chunks.push(vec![value]);
        };
        let Err(at) = chunk.binary_search(&value) else { return };
        chunk.insert(at, value);
        if chunk.len() == MAX_CHUNK {
            let upper = chunk.split_off(MAX_CHUNK / 2);
            self.chunks.insert(index + 1, upper);
        }
    }

    /// Removes a value, if it is in the set.
    pub(super) fn remove(&mut self, value: T) {
        let index = self.chunk_index(value);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let Ok(at) = chunk.binary_search(&value) else { return };
        chunk.remove(at);
        let left = chunk.len();
        if chunk.capacity() > 4 * left {
            chunk.shrink_to(2 * left);
        }
        match left {
            0 => drop(self.chunks.remove(index)),
            1..SMALL_CHUNK => self.merge(index),
            _ => {}
        }
    }

    /// Merges a chunk with the next one, if both together are at most half full.
    fn merge(&mut self, index: usize) {
        let both: usize = self.chunks.iter().skip(index).take(2).map(Vec::len).sum();
        if both <= MAX_CHUNK / 2 && index + 1 < self.chunks.len() {
            let next = self.chunks.remove(index + 1);
            self.chunks.get_mut(index).into_iter().for_each(|chunk| chunk.extend(&next));
        }
    }

    /// Returns all values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.chunks.iter().flatten().copied()
    }

    /// Returns the values within `range`, in order.
    pub(super) fn range(&self, range: RangeInclusive<T>) -> impl Iterator<Item = T> {
        let (start, end) = range.into_inner();
        let chunks = self.chunks.get(self.chunk_index(start)..).unwrap_or_default();
        let from_start = chunks.iter().flat_map(move |chunk| {
            let first = chunk.partition_point(|value| *value < start);
            chunk.get(first..).unwrap_or_default()
        });
        from_start.copied().take_while(move |value| *value <= end)
    }

    /// The index of the chunk that contains or would contain the value: the last one whose first value is
    /// not greater.
    fn chunk_index(&self, value: T) -> usize {
        let begins = |chunk: &Vec<T>| chunk.first().is_some_and(|first| *first <= value);
        self.chunks.partition_point(begins).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Numbers from a range small enough for repetitions.
    fn number() -> impl Strategy<Value = u32> {
        0..20_000_u32
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn it_behaves_as_a_btree_set(
            put_in in prop::collection::vec(number(), 0..12_000),
            taken_out in prop::collection::vec(number(), 0..30_000),
            start in number(),
        ) {
            let (mut set, mut tree) = (PackedSet::default(), BTreeSet::new());
            for number in put_in {
                set.insert(number);
                tree.insert(number);
            }
            prop_assert!(set.iter().eq(tree.iter().copied()));
            for number in taken_out {
                set.remove(number);
                tree.remove(&number);
            }
            prop_assert!(set.iter().eq(tree.iter().copied()));
            prop_assert!(set.range(start..=start + 99).eq(tree.range(start..=start + 99).copied()));
            prop_assert!(set.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() < MAX_CHUNK));
        }
    }

    /// The number of values for which memory is allocated.
    fn capacity(set: &PackedSet<u64>) -> usize {
        set.chunks.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn removing_values_frees_their_memory() {
        // Unordered and far apart.
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut set = PackedSet::default();
        (0..100_000).map(spread).for_each(|value| set.insert(value));
        assert!(capacity(&set) < 200_000 && set.chunks.len() < 120, "{}", capacity(&set));
        (2_000..100_000).map(spread).for_each(|value| set.remove(value));
        assert!(capacity(&set) < 20_000 && set.chunks.len() < 20, "{}", capacity(&set));
        (0..2_000).map(spread).for_each(|value| set.remove(value));
        assert_eq!(capacity(&set), 0);
    }
}
