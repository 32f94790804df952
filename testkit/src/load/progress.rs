//! How far each claim has come, as the watches show it.
//!
//! Owns the times at which things happened to a claim and its volume. Promises that only the
//! first time counts, that only claims that were asked for are followed, and that counting is
//! free of what was counted before. Pure: callers pass the time.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use tokio::time::Instant;

/// Something that happens once to a claim or its volume, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Milestone {
    /// The request to create the claim was sent.
    Asked,
    /// Its PersistentVolume was observed.
    Saved,
    /// It was observed `Bound`.
    Bound,
    /// The request to delete it was sent.
    Dropped,
    /// Its PersistentVolume was observed `Released`.
    Released,
    /// Its PersistentVolume was observed to be deleted.
    Gone,
}

/// When a claim reached what.
type Times = BTreeMap<Milestone, Instant>;

/// All claims of a run.
#[derive(Debug, Default)]
pub struct Progress {
    claims: BTreeMap<String, Times>,
    reached: BTreeMap<Milestone, usize>,
}

impl Progress {
    /// Follows the claim `name` from now on.
    pub fn asked(&mut self, name: &str, at: Instant) {
        self.claims.entry(name.to_owned()).or_default();
        self.reached(name, Milestone::Asked, at);
    }

    /// The claim has come so far. Claims that nobody asked for are not followed.
    pub fn reached(&mut self, name: &str, milestone: Milestone, at: Instant) {
        let Some(times) = self.claims.get_mut(name) else { return };
        if let Entry::Vacant(first) = times.entry(milestone) {
            first.insert(at);
            *self.reached.entry(milestone).or_default() += 1;
        }
    }

    /// A whole list shows volumes of the claims `listed`: those of all others have gone.
    pub fn gone_but(&mut self, listed: &BTreeSet<String>, at: Instant) {
        let saved = self.claims.iter().filter(|(_, times)| times.contains_key(&Milestone::Saved));
        let gone = saved.map(|(name, _)| name).filter(|name| !listed.contains(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.reached(&name, Milestone::Gone, at);
        }
    }

    /// How many claims have come so far.
    pub fn count(&self, milestone: Milestone) -> usize {
        self.reached.get(&milestone).copied().unwrap_or_default()
    }

    /// When the claim `name` came so far.
    pub fn when(&self, name: &str, milestone: Milestone) -> Option<Instant> {
        self.claims.get(name)?.get(&milestone).copied()
    }

    /// When the first claim came so far.
    pub fn first(&self, milestone: Milestone) -> Option<Instant> {
        self.claims.values().filter_map(|times| times.get(&milestone)).min().copied()
    }

    /// When the last claim came so far.
    pub fn last(&self, milestone: Milestone) -> Option<Instant> {
        self.claims.values().filter_map(|times| times.get(&milestone)).max().copied()
    }

    /// How long each claim took from one to another, of those that have come so far.
    pub fn took(&self, from: Milestone, to: Milestone) -> Vec<Duration> {
        let took = |times: &Times| Some(times.get(&to)?.duration_since(*times.get(&from)?));
        self.claims.values().filter_map(took).collect()
    }

    /// The time from the first claim's `from` to the last one's `to`.
    pub fn span(&self, from: Milestone, to: Milestone) -> Option<Duration> {
        let all = |milestone| self.claims.values().filter_map(move |times| times.get(&milestone));
        Some(all(to).max()?.duration_since(*all(from).min()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Milestone::*, *};

    fn at(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_time_counts_and_strangers_do_not() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        progress.asked("a", start);
        progress.reached("a", Bound, at(start, 5));
        progress.reached("a", Bound, at(start, 9));
        progress.reached("stranger", Bound, at(start, 1));
        assert_eq!((progress.count(Asked), progress.count(Bound), progress.count(Gone)), (1, 1, 0));
        assert_eq!(progress.took(Asked, Bound), [Duration::from_millis(5)]);
        assert_eq!(progress.when("a", Bound), Some(at(start, 5)));
        assert_eq!((progress.when("a", Gone), progress.when("stranger", Bound)), (None, None));
    }

    #[test]
    fn a_span_goes_from_the_first_to_the_last() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        assert_eq!(progress.span(Asked, Bound), None);
        for (name, asked, bound) in [("a", 10, 40), ("b", 20, 30)] {
            progress.asked(name, at(start, asked));
            progress.reached(name, Bound, at(start, bound));
        }
        assert_eq!(progress.span(Asked, Bound), Some(Duration::from_millis(30)));
        let took = [30, 10].map(Duration::from_millis);
        assert_eq!(progress.took(Asked, Bound), took);
        assert!(progress.took(Asked, Gone).is_empty());
    }
}
