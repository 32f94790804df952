//! Where a volume is asked to be, and how that is held fast while its call is open.
//!
//! Owns the form of a requirement, the part of it that a record of an open call holds, and what that
//! record leaves of a requirement that was computed anew ([`Recorded::restrict`]). Promises that a
//! record never adds a place, and that what is preferred is always a rotation of what is required.
//! Leaves computing a requirement to the provisioner.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

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
    /// This process asked for this; none where the driver was told nothing.
    Asked(Option<Requirement>),
    /// A record says that an earlier process asked so.
    Recorded(Recorded),
}

/// A requirement as it is recorded; whoever may write the claim may have changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Recorded {
    /// In full: no terms where the driver was told nothing.
    Terms {
        /// The terms, in order.
        terms: Vec<Segments>,
        /// The index of the preferred one.
        #[serde(default)]
        first: usize,
    },
    /// The preferred term alone, where all would be too long.
    Preferred {
        /// That term.
        best: Segments,
    },
}

/// The place that a record says was preferred is not among those that would be asked for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the place that it preferred is not one where the volume could be asked for now")]
pub struct PreferenceGone;

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

    /// As it is recorded.
    pub fn record(requirement: Option<&Self>) -> Recorded {
        match requirement {
            None => Recorded::Terms { terms: Vec::new(), first: 0 },
            Some(Self { terms, first }) => Recorded::Terms { terms: terms.to_vec(), first: *first },
        }
    }
}

impl Recorded {
    /// What of `now`, the requirement that would be asked for now, the recorded call may be repeated
    /// with: the recorded terms that are in it, the same one preferred. Where only that one is
    /// recorded, all of `now`, and that one first.
    ///
    /// # Errors
    /// The preferred term is not in `now`.
    pub fn restrict(
        &self,
        now: Option<&Requirement>,
    ) -> Result<Option<Requirement>, PreferenceGone> {
        match self {
            Self::Terms { terms, .. } if terms.is_empty() => match now {
                None => Ok(None),
                Some(_) => Err(PreferenceGone),
            },
            Self::Terms { terms, first } => {
                let now = now.ok_or(PreferenceGone)?;
                let best = terms.iter().cycle().nth(*first % terms.len());
                let kept = now.terms.iter().filter(|term| terms.contains(term)).cloned();
                preferring(kept.collect(), best)
            }
            Self::Preferred { best } => {
                let now = now.ok_or(PreferenceGone)?;
                preferring(now.terms.to_vec(), Some(best))
            }
        }
    }

    /// The same in short.
    #[must_use]
    pub fn shortened(self) -> Self {
        match self {
            Self::Terms { terms, first } if !terms.is_empty() => {
                let best = terms.iter().cycle().nth(first % terms.len()).cloned();
                Self::Preferred { best: best.unwrap_or_default() }
            }
            other => other,
        }
    }
}

/// Any of `terms`, preferably `best`, which must be one of them.
fn preferring(
    terms: Vec<Segments>,
    best: Option<&Segments>,
) -> Result<Option<Requirement>, PreferenceGone> {
    let first = terms.iter().position(|term| Some(term) == best).ok_or(PreferenceGone)?;
    Ok(Requirement::new(terms, first))
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

    fn asked(terms: &[&str], first: usize) -> Option<Requirement> {
        Requirement::new(zones(terms), first)
    }

    #[test]
    fn a_record_restricts_what_would_be_asked_for_and_adds_nothing() {
        let terms = |terms: &[&str], first| Recorded::Terms { terms: zones(terms), first };
        let best = |zone: &str| Recorded::Preferred { best: zones(&[zone]).remove(0) };
        let now = || asked(&["a", "b", "c"], 0);
        let gone = Err(PreferenceGone);
        let table = [
            (terms(&["a", "b", "c"], 1), now(), Ok(asked(&["a", "b", "c"], 1))),
            (terms(&["b", "c"], 1), now(), Ok(asked(&["b", "c"], 1))),
            (terms(&["b", "z"], 0), now(), Ok(asked(&["b"], 0))),
            (terms(&["b", "z"], 1), now(), gone.clone()),
            (terms(&["c", "c", "b"], 5), now(), Ok(asked(&["b", "c"], 0))),
            (terms(&["a"], 0), None, gone.clone()),
            (terms(&[], 3), None, Ok(None)),
            (terms(&[], 0), now(), gone.clone()),
            (best("b"), now(), Ok(asked(&["a", "b", "c"], 1))),
            (best("z"), now(), gone.clone()),
            (best("a"), None, gone),
        ];
        for (recorded, now, expected) in table {
            assert_eq!(recorded.restrict(now.as_ref()), expected, "{recorded:?} {now:?}");
        }
    }

    #[test]
    fn a_record_of_the_version_before_is_read() {
        let old = r#"{"best":{"zone":"a"},"digest":"0123456789abcdef"}"#;
        let read: Recorded = serde_json::from_str(old).unwrap();
        assert_eq!(read, Recorded::Preferred { best: zones(&["a"]).remove(0) });
    }

    proptest! {
        #[test]
        fn what_is_recorded_is_asked_for_again(zones in vec(".{0,9}", 0..5), first: usize) {
            let terms: std::collections::BTreeSet<Segments> =
                zones.iter().map(|zone| [("zone".to_owned(), zone.clone())].into()).collect();
            let asked = Requirement::new(terms.into_iter().collect(), first);
            let recorded = Requirement::record(asked.as_ref());
            let text = serde_json::to_string(&recorded).unwrap();
            let read: Recorded = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read.restrict(asked.as_ref()), &Ok(asked.clone()));
            prop_assert_eq!(read.shortened().restrict(asked.as_ref()), Ok(asked));
        }

        /// Whatever a record says, no place is asked for that would not be asked for without it.
        #[test]
        fn no_forged_place_is_asked_for(
            forged in vec("[a-f]", 0..6), now in vec("[a-f]", 0..6), first: usize, short: bool,
        ) {
            let terms = |names: &[String]| -> Vec<Segments> {
                names.iter().map(|zone| [("zone".to_owned(), zone.clone())].into()).collect()
            };
            let recorded = Recorded::Terms { terms: terms(&forged), first };
            let recorded = if short { recorded.shortened() } else { recorded };
            let now = Requirement::new(terms(&now), 0);
            if let Ok(Some(asked)) = recorded.restrict(now.as_ref()) {
                let allowed = now.unwrap();
                prop_assert!(asked.requisite().all(|term| allowed.requisite().any(|it| it == term)));
            }
        }
    }
}
