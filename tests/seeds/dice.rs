//! The random numbers of a seed.
//!
//! Each actor has dice of its own, so that one more roll of one does not change what another rolls.

use std::{ops::Range, time::Duration};

use parking_lot::Mutex;

/// A `SplitMix64` generator of one actor.
#[derive(Debug)]
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    /// The dice of the actor `role` under `seed`.
    pub(crate) fn new(seed: u64, role: &str) -> Self {
        // FNV-1a: any mixing that separates the roles does.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let role = role.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        let dice = Self(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ role));
        dice.bits();
        dice
    }

    fn bits(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in the range.
    pub(crate) fn within(&self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start)
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.within(0..of.len() as u64)).unwrap()]
    }

    /// Milliseconds whose order of magnitude is even: many short times, few long ones.
    pub(crate) fn stretch(&self, range: Range<u64>) -> Duration {
        let doublings = u64::from((range.end / range.start.max(1)).ilog2());
        let low = range.start.max(1) << self.within(0..doublings + 1);
        Duration::from_millis(self.within(low..2 * low).min(range.end))
    }
}
