//! Which topology a claim without a selected node prefers: by its name, so that the volumes of a
//! StatefulSet spread.
//!
//! Pure, and identical to Kubernetes' original algorithm, so that replicas stay spread across
//! versions.

/// The index of the preferred one of `places` topologies for the claim called `claim`.
pub(super) fn preferred(claim: &str, places: usize) -> usize {
    let (name, ordinal) = set_and_ordinal(claim);
    let spread = fnv1(name).wrapping_add(ordinal);
    // A request never has more topologies than a u32 counts.
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    spread.checked_rem(places).unwrap_or_default() as usize
}

/// The part of the name that is hashed, and the number that is added to the hash. Claims of a
/// StatefulSet are called CLAIM-SET-ORDINAL. Several claims of one replica must get the same
/// topology, so only the set's name is hashed, or the part after its last dash. Other names that
/// end in a number are treated the same way; the rest are hashed whole.
fn set_and_ordinal(claim: &str) -> (&str, u32) {
    let Some((rest, number)) = claim.rsplit_once('-') else { return (claim, 0) };
    match ordinal(number) {
        Some(ordinal) => (rest.rsplit_once('-').map_or(rest, |(_, set)| set), ordinal),
        None => (claim, 0),
    }
}

/// A 32-bit number in plain digits.
fn ordinal(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// FNV-1 of 32 bits (multiplies first, unlike FNV-1a).
fn fnv1(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5, |hash, byte| u32::wrapping_mul(hash, 0x0100_0193) ^ u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1_of_32_bits() {
        for (text, hash) in [
            ("", 0x811c_9dc5),
            ("web", 1_181_096_325),
            ("testset", 1_633_848_515),
            ("claim", 1_216_680_299),
            ("mypvc", 3_965_572_304),
        ] {
            assert_eq!(fnv1(text), hash, "{text}");
        }
        // The sum of hash and ordinal wraps at 32 bits.
        assert_eq!(preferred("web-4294967295", 1000), (1_181_096_325_usize - 1) % 1000);
        assert_eq!(preferred("web-1", 0), 0);
    }

    #[test]
    fn a_number_at_the_end_is_an_ordinal_and_the_word_before_it_a_set() {
        let table = [
            ("data-web-0", ("web", 0)),
            ("data-web-1", ("web", 1)),
            ("a-b-c-web-12", ("web", 12)),
            ("web-7", ("web", 7)),
            ("web", ("web", 0)),
            ("data-web", ("data-web", 0)),
            ("data-web-007", ("web", 7)),
            ("data-web-4294967295", ("web", u32::MAX)),
            ("data-web-4294967296", ("data-web-4294967296", 0)),
            ("data-web-", ("data-web-", 0)),
            ("data-web-+1", ("data-web-+1", 0)),
            ("data-web--1", ("", 1)),
            ("data-web-1x", ("data-web-1x", 0)),
            ("-3", ("", 3)),
            ("", ("", 0)),
        ];
        for (claim, expected) in table {
            assert_eq!(set_and_ordinal(claim), expected, "{claim:?}");
        }
    }
}
