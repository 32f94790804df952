//! Names and labels of the objects.
//!
//! Every process that publishes for a driver gives the object of a class and segment the same name,
//! in whatever version. Two processes, or one that lost the response to its POST, therefore meet in
//! AlreadyExists, and no second object is created. (external-provisioner lets the server generate
//! names.)

use super::segment::Pair;

/// The label with the driver's name.
pub(super) const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";

/// The label with the name of the process that manages an object.
pub(super) const MANAGER_LABEL: &str = "csi.storage.k8s.io/managed-by";

/// The manager of the objects of a whole cluster.
const MANAGER: &str = "external-provisioner";

/// The maximum length of a label value.
const LABEL_LENGTH: usize = 63;

/// The length of a hash with its dashes: `-53f40b57-`.
const HASH_LENGTH: usize = 10;

/// Identifies our objects by driver and manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) driver: String,
    pub(super) manager: String,
}

impl Names {
    /// The names for a driver, for the whole cluster or for one node.
    pub(super) fn new(driver: &str, node: Option<&str>) -> Self {
        let manager = node.map_or_else(|| MANAGER.to_owned(), manager_on);
        Self { driver: driver.to_owned(), manager }
    }

    /// The label selector of the objects.
    pub(super) fn selector(&self) -> String {
        format!("{DRIVER_LABEL}={},{MANAGER_LABEL}={}", self.driver, self.manager)
    }

    /// The name of the pair's object. If another program's object has that name, the next `attempt`
    /// gives another name.
    pub(super) fn object(&self, pair: &Pair, attempt: u32) -> String {
        let mut hash = Fnv1a64::default();
        for part in [&*self.driver, &*self.manager, &*pair.class] {
            hash.write(part);
        }
        for (key, value) in pair.segment.labels() {
            hash.write(key);
            hash.write(value);
        }
        hash.write(&attempt.to_string());
        format!("csisc-{}", letters(hash.0))
    }
}

/// external-provisioner's label value for the manager on a node; shortened with a hash to fit a
/// label.
fn manager_on(node: &str) -> String {
    let whole = format!("{MANAGER}-{node}");
    if whole.len() <= LABEL_LENGTH {
        return whole;
    }
    let kept = LABEL_LENGTH.saturating_sub(HASH_LENGTH + node.len());
    match MANAGER.get(..kept) {
        Some(prefix) if kept > 0 => format!("{prefix}-{:08x}-{node}", fnv1a_32(MANAGER)),
        _ => format!("{MANAGER}-{:08x}", fnv1a_32(&whole)),
    }
}

/// The 32-bit FNV-1a hash.
fn fnv1a_32(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The 64-bit FNV-1a hash of a list of strings. The algorithm is fixed, because the names must be
/// the same in every version of this program.
struct Fnv1a64(u64);

impl Default for Fnv1a64 {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a64 {
    /// Adds a string. Lists of different strings have different input, however they are split.
    fn write(&mut self, text: &str) {
        // UTF-8 text never contains the byte 0xff.
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Encodes a hash in ten of the letters of generated names, which contain no vowels.
fn letters(hash: u64) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digits = std::iter::successors(Some(hash), |rest| Some(rest / 27)).take(10);
    // A remainder of 27 fits into any usize.
    let letter = |rest: u64| LETTERS.get((rest % 27) as usize).copied().map(char::from);
    digits.filter_map(letter).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn pair(class: &str, labels: &[(&str, &str)]) -> Pair {
        Pair { class: class.into(), segment: labels.iter().copied().collect() }
    }

    #[test]
    fn the_manager_on_a_node_is_named_as_in_external_provisioner() {
        let long = "worker-0123456789.rack-12.rack-12.rack-12.rack-12.rack-12.rack-12.internal.example.org";
        let expected = |length: usize| match length {
            0..=42 => format!("external-provisioner-{}", "n".repeat(length)),
            43 => format!("external-p-53f40b57-{}", "n".repeat(43)),
            44 => format!("external--53f40b57-{}", "n".repeat(44)),
            _ => format!("e-53f40b57-{}", "n".repeat(52)),
        };
        for length in [1, 42, 43, 44, 52] {
            let name = Names::new("d", Some(&"n".repeat(length)));
            assert_eq!(name.manager, expected(length));
        }
        assert_eq!(Names::new("d", Some(long)).manager, "external-provisioner-d2239423");
        assert_eq!(Names::new("d", Some(&"n".repeat(53))).manager.len(), 29);
        assert_eq!(Names::new("d", None).manager, "external-provisioner");
    }

    /// Pinned: a version with other names would create each object a second time.
    #[test]
    fn names_are_pinned() {
        let name = Names::new("zonal.example.com", None).object(&pair("fast", &[("zone", "a")]), 0);
        assert_eq!(name, "csisc-dfcjphqp24");
    }

    #[test]
    fn each_pair_driver_manager_and_attempt_has_a_name_of_its_own() {
        let (here, there) = (Names::new("d", None), Names::new("d", Some("n")));
        let named = [
            here.object(&pair("fast", &[("zone", "a")]), 0),
            here.object(&pair("fast", &[("zone", "a")]), 1),
            here.object(&pair("fast", &[("zon", "ea")]), 0),
            here.object(&pair("fast", &[("zone", "b")]), 0),
            here.object(&pair("fast", &[]), 0),
            here.object(&pair("slow", &[("zone", "a")]), 0),
            there.object(&pair("fast", &[("zone", "a")]), 0),
            Names::new("e", None).object(&pair("fast", &[("zone", "a")]), 0),
        ];
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "{named:?}");
    }

    proptest! {
        #[test]
        fn every_pair_has_a_valid_name(class in ".*", key in ".*", value in ".*", attempt in any::<u32>()) {
            let name = Names::new("d", None).object(&pair(&class, &[(&key, &value)]), attempt);
            let (prefix, letters) = name.split_at(6);
            prop_assert_eq!(prefix, "csisc-");
            prop_assert_eq!(letters.len(), 10);
            prop_assert!(letters.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        }

        #[test]
        fn a_manager_fits_into_a_label(node in "[a-z0-9.-]{1,253}") {
            prop_assert!(Names::new("d", Some(&node)).manager.len() <= 63);
        }
    }
}
