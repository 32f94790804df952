//! A sorted set of small things in a few large pieces of memory.
//!
//! Promises that no piece is much smaller than what it holds needs, and that what a burst leaves behind
//! lies together. The nodes of a tree would lie scattered among what the burst has freed since, each on
//! a page of memory that could otherwise go back to the system.

use std::ops::RangeInclusive;

/// The most that lie in one piece: of eight bytes each they fill sixteen kilobytes.
const PIECE: usize = 2048;

/// A piece with fewer may be joined with the next.
const FEW: usize = PIECE / 4;

/// A sorted set.
#[derive(Debug)]
pub(super) struct PackedSet<T> {
    /// In order, like what is in each of them. None is empty.
    pieces: Vec<Vec<T>>,
}

impl<T> Default for PackedSet<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T: Copy + Ord> PackedSet<T> {
    /// Puts one in, if it is not there.
    pub(super) fn insert(&mut self, mark: T) {
        let place = self.place(mark);
        let Some(piece) = self.pieces.get_mut(place) else {
            return self.pieces.push(vec![mark]);
        };
        let Err(at) = piece.binary_search(&mark) else { return };
        piece.insert(at, mark);
        if piece.len() == PIECE {
            let upper = piece.split_off(PIECE / 2);
            self.pieces.insert(place + 1, upper);
        }
    }

    /// Takes one out, if it is there.
    pub(super) fn remove(&mut self, mark: T) {
        let place = self.place(mark);
        let Some(piece) = self.pieces.get_mut(place) else { return };
        let Ok(at) = piece.binary_search(&mark) else { return };
        piece.remove(at);
        let left = piece.len();
        if piece.capacity() > 4 * left {
            piece.shrink_to(2 * left);
        }
        match left {
            0 => drop(self.pieces.remove(place)),
            1..FEW => self.join(place),
            _ => {}
        }
    }

    /// Joins a piece and the one behind it, where there is room for both and more.
    fn join(&mut self, place: usize) {
        let both: usize = self.pieces.iter().skip(place).take(2).map(Vec::len).sum();
        if both <= PIECE / 2 && place + 1 < self.pieces.len() {
            let behind = self.pieces.remove(place + 1);
            self.pieces.get_mut(place).into_iter().for_each(|piece| piece.extend(&behind));
        }
    }

    /// Whether it is there.
    pub(super) fn contains(&self, mark: T) -> bool {
        self.range(mark..=mark).next().is_some()
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.pieces.iter().flatten().copied()
    }

    /// Those within a range, in order.
    pub(super) fn range(&self, range: RangeInclusive<T>) -> impl Iterator<Item = T> {
        let (start, end) = range.into_inner();
        let pieces = self.pieces.get(self.place(start)..).unwrap_or_default();
        let from_start = pieces.iter().flat_map(move |piece| {
            let first = piece.partition_point(|mark| *mark < start);
            piece.get(first..).unwrap_or_default()
        });
        from_start.copied().take_while(move |mark| *mark <= end)
    }

    /// The piece in which a mark lies or would lie: the last that begins with no greater one.
    fn place(&self, mark: T) -> usize {
        let begins = |piece: &Vec<T>| piece.first().is_some_and(|first| *first <= mark);
        self.pieces.partition_point(begins).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Numbers that lie close enough to come twice.
    fn number() -> impl Strategy<Value = u32> {
        0..20_000_u32
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn it_holds_what_a_tree_would(
            put_in in prop::collection::vec(number(), 0..12_000),
            taken_out in prop::collection::vec(number(), 0..30_000),
            start in number(),
        ) {
            let (mut marks, mut tree) = (PackedSet::default(), BTreeSet::new());
            for number in put_in {
                marks.insert(number);
                tree.insert(number);
            }
            prop_assert!(marks.iter().eq(tree.iter().copied()));
            for number in taken_out {
                marks.remove(number);
                tree.remove(&number);
            }
            prop_assert!(marks.iter().eq(tree.iter().copied()));
            prop_assert!(marks.range(start..=start + 99).eq(tree.range(start..=start + 99).copied()));
            prop_assert!(marks.pieces.iter().all(|piece| !piece.is_empty() && piece.len() < PIECE));
        }
    }

    /// Places that marks take in memory, used or not.
    fn room(marks: &PackedSet<u64>) -> usize {
        marks.pieces.iter().map(Vec::capacity).sum()
    }

    #[test]
    fn what_is_gone_gives_its_room_back() {
        // Far from each other, and not in order.
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut marks = PackedSet::default();
        (0..100_000).map(spread).for_each(|mark| marks.insert(mark));
        assert!(room(&marks) < 200_000 && marks.pieces.len() < 120, "{}", room(&marks));
        (2_000..100_000).map(spread).for_each(|mark| marks.remove(mark));
        assert!(room(&marks) < 20_000 && marks.pieces.len() < 20, "{}", room(&marks));
        (0..2_000).map(spread).for_each(|mark| marks.remove(mark));
        assert_eq!(room(&marks), 0);
    }
}
