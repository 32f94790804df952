//! Where a volume is asked to be, and how that is held fast while its call is open.
//!
//! Owns the form of a requirement, and of its pin: the requirement itself, or where that was too
//! long to be recorded, its best place and a digest. Promises that what is preferred is always a rotation of what is
//! required. Leaves computing a requirement to the provisioner.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::open_calls::record::Fnv;

/// One place: values by topology key, all of which hold there.
pub type Segments = BTreeMap<String, String>;

/// Places that a volume must be reachable from one of, and in which order they are preferred (CSI
/// spec, `TopologyRequirement`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// In the order in which the driver is told them.
    terms: Arc<[Segments]>,
    /// The preferred one, by its index; those after it and then those before it follow.
    first: usize,
}

/// What a call that may be open asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinned {
    /// This; none where the driver was told nothing.
    Asked(Option<Requirement>),
    /// What was too long to be recorded.
    Shortened {
        /// The place that was preferred to all others.
        best: Segments,
        /// Tells the requirement from others.
        digest: String,
    },
}

/// A pin as it is recorded: no terms where the driver was told nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Recorded {
    /// In full.
    Terms {
        /// The terms, in order.
        terms: Vec<Segments>,
        /// The index of the preferred one.
        #[serde(default)]
        first: usize,
    },
    /// In short.
    Shortened {
        /// The preferred term.
        best: Segments,
        /// The digest of all of them.
        digest: String,
    },
}

impl Requirement {
    /// Any of `terms`, preferably the one with the index `first`; none where there are no terms.
    pub fn new(terms: Vec<Segments>, first: usize) -> Option<Self> {
        let first = first.checked_rem(terms.len())?;
        Some(Self { terms: terms.into(), first })
    }

    /// The places, in the order in which the driver is told them.
    pub fn requisite(&self) -> impl Iterator<Item = &Segments> {
        self.terms.iter()
    }

    /// The same places, best first.
    pub fn preferred(&self) -> impl Iterator<Item = &Segments> {
        self.terms.iter().cycle().skip(self.first).take(self.terms.len())
    }

    /// Tells it from others.
    pub fn digest(&self) -> String {
        let mut digest = Fnv::new();
        for term in self.preferred() {
            digest.text(&term.len().to_string());
            term.iter().flat_map(|(key, value)| [key, value]).for_each(|text| digest.text(text));
        }
        digest.finish()
    }
}

impl Pinned {
    /// Whether a call for `requirement` repeats what is pinned.
    pub fn holds(&self, requirement: Option<&Requirement>) -> bool {
        match self {
            Self::Asked(asked) => asked.as_ref() == requirement,
            Self::Shortened { digest, .. } => {
                requirement.is_some_and(|now| now.digest() == *digest)
            }
        }
    }

    /// The pin in full, as it is recorded.
    pub fn record(&self) -> Recorded {
        match self {
            Self::Asked(None) => Recorded::Terms { terms: Vec::new(), first: 0 },
            Self::Asked(Some(Requirement { terms, first })) => {
                Recorded::Terms { terms: terms.to_vec(), first: *first }
            }
            Self::Shortened { best, digest } => {
                Recorded::Shortened { best: best.clone(), digest: digest.clone() }
            }
        }
    }
}

impl Recorded {
    /// The pin that was recorded.
    pub fn pinned(self) -> Pinned {
        match self {
            Self::Terms { terms, first } => Pinned::Asked(Requirement::new(terms, first)),
            Self::Shortened { best, digest } => Pinned::Shortened { best, digest },
        }
    }

    /// The same in short.
    #[must_use]
    pub fn shortened(self) -> Self {
        let Pinned::Asked(Some(requirement)) = self.clone().pinned() else { return self };
        let best = requirement.preferred().next().cloned().unwrap_or_default();
        Self::Shortened { best, digest: requirement.digest() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn zones(zones: &[&str]) -> Vec<Segments> {
        zones.iter().map(|zone| [("zone".to_owned(), (*zone).to_owned())].into()).collect()
    }

    fn values<'a>(terms: impl Iterator<Item = &'a Segments>) -> Vec<&'a str> {
        terms.map(|term| term["zone"].as_str()).collect()
    }

    #[test]
    fn the_preferred_places_begin_with_the_first_and_go_round() {
        let requirement = Requirement::new(zones(&["a", "b", "c"]), 4).unwrap();
        assert_eq!(values(requirement.requisite()), ["a", "b", "c"]);
        assert_eq!(values(requirement.preferred()), ["b", "c", "a"]);
        assert_eq!(Requirement::new(vec![], 3), None);
    }

    #[test]
    fn another_place_or_another_preference_is_another_request() {
        let asked = Requirement::new(zones(&["a", "b"]), 0);
        let others =
            [Requirement::new(zones(&["a", "b"]), 1), Requirement::new(zones(&["a"]), 0), None];
        for pin in [
            Pinned::Asked(asked.clone()),
            Pinned::Asked(asked.clone()).record().shortened().pinned(),
        ] {
            assert!(pin.holds(asked.as_ref()));
            assert!(others.iter().all(|other| !pin.holds(other.as_ref())), "{pin:?}");
        }
        assert!(Pinned::Asked(None).holds(None));
    }

    #[test]
    fn texts_of_neighbouring_places_are_not_mixed_up() {
        let one: Segments =
            [("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())].into();
        let two = [("a", "b"), ("c", "d")]
            .map(|(key, value)| [(key.to_owned(), value.to_owned())].into());
        let digest = |terms: Vec<Segments>| Requirement::new(terms, 0).unwrap().digest();
        assert_ne!(digest(vec![one]), digest(two.into()));
    }

    proptest! {
        #[test]
        fn what_is_recorded_is_pinned_again(zones in vec(".{0,9}", 0..5), first: usize) {
            let terms = zones.iter().map(|zone| [("zone".to_owned(), zone.clone())].into()).collect();
            let pin = Pinned::Asked(Requirement::new(terms, first));
            let text = serde_json::to_string(&pin.record()).unwrap();
            let read: Recorded = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read.pinned(), &pin);
            let Pinned::Asked(requirement) = &pin else { unreachable!() };
            prop_assert!(pin.record().shortened().pinned().holds(requirement.as_ref()));
        }
    }
}
