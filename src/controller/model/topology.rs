//! The requested topology of a volume, which must not change while its call is open.
//!
//! A record of an open call contains the requirement, or its preferred term. [`Recorded::restrict`]
//! applies it to a requirement that was computed anew: a record never adds a term. The provisioner
//! computes requirements.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// The most terms of a record, each counted as often as it has keys: in memory a term takes half a
/// kilobyte and more. More than that of real terms are longer than a record may be.
const MAX_RECORDED: usize = 256;

/// One topology term: values by topology key.
pub type Segments = BTreeMap<String, String>;

/// The terms of which a volume must be accessible from at least one, and their order of preference
/// (CSI spec, `TopologyRequirement`). The preferred order is a rotation of the requisite one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The requisite terms, in the order of the request.
    terms: Arc<[Segments]>,
    /// The index of the preferred term; those after it and then those before it follow.
    first: usize,
}

/// The topology of a call that may be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinned {
    /// The topology that this process has requested. `None`: the request had none.
    Requested(Option<Requirement>),
    /// The topology that an earlier process has recorded.
    Recorded(Recorded),
}

/// A requirement in a record. Whoever may write the claim may have changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Recorded {
    /// All terms; empty if the request had no topology.
    Terms {
        /// The terms, in order.
        terms: Vec<Segments>,
        /// The index of the preferred one.
        #[serde(default)]
        first: usize,
    },
    /// Only the preferred term, if all would be too long or too many.
    Preferred {
        /// That term.
        best: Segments,
    },
}

/// The preferred term of a record is not in the requirement that was computed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the place that it preferred is not one where the volume could be asked for now")]
pub struct PreferenceGone;

impl Requirement {
    /// A requirement with these terms, of which the one with the index `first` is preferred. `None`
    /// without terms.
    pub fn new(terms: Vec<Segments>, first: usize) -> Option<Self> {
        let first = first.checked_rem(terms.len())?;
        Some(Self { terms: terms.into(), first })
    }

    /// The terms in the order of the request.
    pub fn requisite(&self) -> impl Iterator<Item = &Segments> {
        self.terms.iter()
    }

    /// The terms, the preferred one first.
    pub fn preferred(&self) -> impl Iterator<Item = &Segments> {
        self.terms.iter().cycle().skip(self.first).take(self.terms.len())
    }

    /// The requirement as it is recorded.
    pub fn record(requirement: Option<&Self>) -> Recorded {
        match requirement {
            None => Recorded::Terms { terms: Vec::new(), first: 0 },
            Some(Self { terms, first }) => Recorded::Terms { terms: terms.to_vec(), first: *first },
        }
    }
}

impl Recorded {
    /// Returns the part of `now`, the requirement that was computed now, with which the recorded
    /// call may be repeated: the recorded terms that are in `now`, with the same one preferred. If
    /// only the preferred term is recorded: all of `now`, with that term preferred.
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
                let recorded: BTreeSet<&Segments> = terms.iter().collect();
                let kept = now.terms.iter().filter(|term| recorded.contains(term)).cloned();
                preferring(kept.collect(), best)
            }
            Self::Preferred { best } => {
                let now = now.ok_or(PreferenceGone)?;
                preferring(now.terms.to_vec(), Some(best))
            }
        }
    }

    /// Whether this has more terms, or terms of more keys, than a record may have.
    pub fn is_too_large(&self) -> bool {
        let size = |term: &Segments| term.len().max(1);
        let size = match self {
            Self::Terms { terms, .. } => terms.iter().map(size).sum(),
            Self::Preferred { best } => size(best),
        };
        size > MAX_RECORDED
    }

    /// All of this, or if it is too large the preferred term; `None` if that is too large as well.
    pub fn bounded(self) -> Option<Self> {
        let kept = if self.is_too_large() { self.shortened() } else { self };
        (!kept.is_too_large()).then_some(kept)
    }

    /// Keeps only the preferred term.
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

/// A requirement with `terms`, of which `best` is preferred. `best` must be one of them.
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

    fn asked(terms: &[&str], first: usize) -> Option<Requirement> {
        Requirement::new(zones(terms), first)
    }

    #[test]
    fn a_record_restricts_the_computed_requirement_and_adds_nothing() {
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
    fn a_record_of_the_previous_version_is_read() {
        let old = r#"{"best":{"zone":"a"},"digest":"0123456789abcdef"}"#;
        let read: Recorded = serde_json::from_str(old).unwrap();
        assert_eq!(read, Recorded::Preferred { best: zones(&["a"]).remove(0) });
    }

    proptest! {
        #[test]
        fn a_recorded_requirement_is_requested_again(zones in vec(".{0,9}", 0..5), first: usize) {
            let terms: std::collections::BTreeSet<Segments> =
                zones.iter().map(|zone| [("zone".to_owned(), zone.clone())].into()).collect();
            let asked = Requirement::new(terms.into_iter().collect(), first);
            let recorded = Requirement::record(asked.as_ref());
            let text = serde_json::to_string(&recorded).unwrap();
            let read: Recorded = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read.restrict(asked.as_ref()), &Ok(asked.clone()));
            prop_assert_eq!(read.shortened().restrict(asked.as_ref()), Ok(asked));
        }
    }
}
