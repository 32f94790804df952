//! Digests of texts, which stand for objects and events in what is kept about them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A hash of a list of texts, of 128 bits. On a collision one event would be counted as another.
pub(super) type Digest = (u64, u64);

/// The digest of `parts`.
pub(super) fn digest(parts: &[&str]) -> Digest {
    let hash = |salt: u8| {
        // Not seeded, so that simulations are reproducible.
        let mut hasher = DefaultHasher::new();
        (salt, parts).hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_the_borders_of_parts() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
    }
}
