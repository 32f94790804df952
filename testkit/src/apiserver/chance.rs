//! The server's own chance: UIDs and generated names, the same for the same seed.

/// A `SplitMix64` generator.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

/// The letters of generated names: no vowels and no look-alikes, as apimachinery's `rand.String`.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Chance {
    /// A generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (self.bits(), self.bits());
        let variant = 0x8000 | (low >> 48) & 0x3fff;
        format!(
            "{:08x}-{:04x}-4{:03x}-{variant:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }

    /// The five characters that make a generated name.
    pub(crate) fn suffix(&mut self) -> String {
        let mut letter = || {
            usize::try_from(self.bits() % 27)
                .ok()
                .and_then(|i| ALPHABET.get(i))
                .copied()
                .unwrap_or(b'x')
        };
        (0..5).map(|_| char::from(letter())).collect()
    }
}
