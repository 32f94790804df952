//! The objects that a list and the events after it have shown, as small values.
//!
//! An object that is known stays in the set until a complete list does not show it. While a list runs,
//! the set has what was known before and what the list has shown.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    iter,
    ops::RangeInclusive,
};

/// A set of objects that are listed from time to time.
#[derive(Debug)]
pub(super) struct ListedSet<T> {
    known: BTreeSet<T>,
    /// The list in progress.
    listing: Option<Listing<T>>,
}

#[derive(Debug)]
struct Listing<T> {
    listed: BTreeSet<T>,
    /// Whether an object in it could not be decoded, so that it does not show which ones are gone.
    is_partial: bool,
}

impl<T> Default for ListedSet<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), listing: None }
    }
}

impl<T: Copy + Ord> ListedSet<T> {
    /// Begins a new list. What an unfinished one has shown is kept as known.
    pub(super) fn begin_list(&mut self) {
        let listing = Listing { listed: BTreeSet::new(), is_partial: false };
        if let Some(unfinished) = self.listing.replace(listing) {
            self.keep(&unfinished.listed);
        }
    }

    /// Completes the list: forgets the objects that it has not shown, unless it is partial.
    pub(super) fn finish_list(&mut self) {
        match self.listing.take() {
            Some(listing) if listing.is_partial => self.keep(&listing.listed),
            Some(listing) => self.known = listing.listed,
            None => {}
        }
    }

    fn keep(&mut self, listed: &BTreeSet<T>) {
        self.known.extend(listed);
    }

    /// Records that an object could not be decoded.
    pub(super) fn mark_partial(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.is_partial = true;
        }
    }

    /// Adds an object.
    pub(super) fn insert(&mut self, value: T) {
        let values = self.listing.as_mut().map_or(&mut self.known, |listing| &mut listing.listed);
        values.insert(value);
    }

    /// Removes an object. Returns whether it was in the set.
    pub(super) fn remove(&mut self, value: T) -> bool {
        let was_known = self.known.remove(&value);
        let was_listed = self.listing.as_mut().is_some_and(|it| it.listed.remove(&value));
        was_known || was_listed
    }

    /// Whether the object is in the set.
    pub(super) fn contains(&self, value: T) -> bool {
        self.range(value..=value).next().is_some()
    }

    /// Returns the objects within `range`, in any order, some of them twice.
    pub(super) fn range(&self, range: RangeInclusive<T>) -> impl Iterator<Item = T> {
        let listing = self.listing.as_ref().map(|listing| &listing.listed);
        iter::once(&self.known)
            .chain(listing)
            .flat_map(move |values| values.range(range.clone()))
            .copied()
    }

    /// The number of objects that are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

/// A small value for an object. It does not depend on the process, so that tests are reproducible. Nor is it
/// keyed: a deliberate collision only costs a needless read.
pub(super) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
