//! The desired and the existing objects, compared by content.
//!
//! Derives which pairs need a GetCapacity call and which objects must be deleted. Pure: each method
//! takes an event and returns the keys to enqueue; what a key needs is decided again when it is
//! processed ([`CapacityIndex::state`], [`CapacityIndex::obsolete`]). Guarantees one object per
//! pair in whatever order events arrive: of several, the oldest is kept, and every process selects
//! the same one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{
    object::Object,
    segment::{Pair, Segment},
};
use crate::kube::{Listed, objects::StorageClass, take_vanished};

/// A work item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// Call GetCapacity for the pair and update its object.
    Query(Pair),
    /// Delete the object of this name if it is obsolete.
    Sweep(String),
}

/// As printed in logs.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(pair) => pair.fmt(f),
            Self::Sweep(name) => f.write_str(name),
        }
    }
}

/// Counts for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ObjectCounts {
    /// Pairs that should have an object.
    pub(super) wanted: usize,
    /// Those of them that have one.
    pub(super) published: usize,
    /// Objects that must be deleted.
    pub(super) obsolete: usize,
}

/// The order among the objects of one pair: the oldest is kept.
type Seniority = (Option<jiff::Timestamp>, String);

/// The desired and the existing objects.
#[derive(Debug, Default)]
pub(super) struct CapacityIndex {
    /// The classes for which capacity is published.
    classes: BTreeMap<Arc<str>, Arc<StorageClass>>,
    segments: BTreeSet<Segment>,
    /// Our objects, by name.
    objects: BTreeMap<String, Object>,
    /// The objects of each pair.
    objects_by_pair: BTreeMap<Pair, BTreeSet<Seniority>>,
    /// Wanted pairs for which GetCapacity has not been called yet.
    new: BTreeSet<Pair>,
}

impl CapacityIndex {
    // === desired state ===

    /// Adds or updates a class for which capacity is published.
    pub(super) fn upsert_class(&mut self, class: Arc<StorageClass>, name: &str) -> Vec<Key> {
        let name: Arc<str> = name.into();
        self.classes.insert(Arc::clone(&name), class);
        let pairs = self.pairs_of_class(&name);
        self.add_pairs(pairs)
    }

    /// Removes a class that is deleted, or for which capacity is no longer published.
    pub(super) fn remove_class(&mut self, name: &str) -> Vec<Key> {
        if self.classes.remove(name).is_none() {
            return Vec::new();
        }
        self.remove_pairs(|pair| &*pair.class == name)
    }

    /// Replaces the set of segments.
    pub(super) fn set_segments(&mut self, segments: BTreeSet<Segment>) -> Vec<Key> {
        let old = std::mem::replace(&mut self.segments, segments);
        let added: Vec<Segment> = self.segments.difference(&old).cloned().collect();
        let removed: BTreeSet<Segment> = old.difference(&self.segments).cloned().collect();
        let pairs = added.iter().flat_map(|segment| self.pairs_of_segment(segment)).collect();
        let mut keys = self.add_pairs(pairs);
        if !removed.is_empty() {
            keys.extend(self.remove_pairs(|pair| removed.contains(&pair.segment)));
        }
        keys
    }

    fn add_pairs(&mut self, pairs: Vec<Pair>) -> Vec<Key> {
        let unknown = pairs.iter().filter(|pair| !self.objects_by_pair.contains_key(pair));
        self.new.extend(unknown.cloned());
        pairs.into_iter().map(Key::Query).collect()
    }

    /// Drops the pairs that match `is_gone`; returns keys that delete their objects.
    fn remove_pairs(&mut self, is_gone: impl Fn(&Pair) -> bool) -> Vec<Key> {
        self.new.retain(|pair| !is_gone(pair));
        let gone = self.objects_by_pair.iter().filter(|(pair, _)| is_gone(pair));
        gone.flat_map(|(_, objects)| objects).map(|(_, name)| Key::Sweep(name.clone())).collect()
    }

    fn pairs_of_class(&self, class: &Arc<str>) -> Vec<Pair> {
        let pair = |segment: &Segment| Pair { class: Arc::clone(class), segment: segment.clone() };
        self.segments.iter().map(pair).collect()
    }

    fn pairs_of_segment(&self, segment: &Segment) -> Vec<Pair> {
        let pair = |class: &Arc<str>| Pair { class: Arc::clone(class), segment: segment.clone() };
        self.classes.keys().map(pair).collect()
    }

    fn is_wanted(&self, pair: &Pair) -> bool {
        self.classes.contains_key(&pair.class) && self.segments.contains(&pair.segment)
    }

    // === refreshes ===

    /// Returns keys for all segments of a class.
    pub(super) fn refresh_class(&self, class: &str) -> Vec<Key> {
        let class = self.classes.get_key_value(class).map(|(name, _)| name);
        class.into_iter().flat_map(|class| self.pairs_of_class(class)).map(Key::Query).collect()
    }

    /// Returns keys for all classes in these segments.
    pub(super) fn refresh_segments(&self, segments: impl IntoIterator<Item = Segment>) -> Vec<Key> {
        let known = segments.into_iter().filter(|segment| self.segments.contains(segment));
        known.flat_map(|segment| self.pairs_of_segment(&segment)).map(Key::Query).collect()
    }

    /// Returns keys for everything: each wanted pair and each obsolete object.
    pub(super) fn poll(&self) -> Vec<Key> {
        let wanted = self.segments.iter().flat_map(|segment| self.pairs_of_segment(segment));
        let sweep = self.objects.keys().filter(|name| self.obsolete(name).is_some());
        wanted.map(Key::Query).chain(sweep.cloned().map(Key::Sweep)).collect()
    }

    /// Records that GetCapacity was called for the pair and its object updated. Returns whether to
    /// call again: right after a driver, node or class was added, the first answer is often not
    /// final.
    pub(super) fn mark_queried(&mut self, pair: &Pair) -> bool {
        self.new.remove(pair)
    }

    // === existing objects ===

    /// All our objects are listed: the others are removed. One that was created after the list began comes
    /// again with the first events of the watch.
    pub(super) fn on_listed(&mut self, listed: &Listed) -> Vec<Key> {
        self.new.retain(|pair| !self.objects_by_pair.contains_key(pair));
        let is_listed = |_: &_, object: &Object| listed.contains(&object.uid);
        let vanished = take_vanished(&mut self.objects, is_listed);
        vanished.values().flat_map(|object| self.on_removed(object)).collect()
    }

    /// Adds or updates an object of ours, as the watch or the answer to a POST shows it. One that is deleted
    /// before that answer comes is found to be missing by the next write, or by the next list.
    pub(super) fn upsert_object(&mut self, object: Object) -> Vec<Key> {
        let name = object.name.clone();
        let mut affected: BTreeSet<Pair> = object.pair.iter().cloned().collect();
        if let Some(old) =
            self.objects.get(&name).filter(|old| !is_same_object(old, &object)).cloned()
        {
            // Another object has taken the name: the pair of the old one may have no object now.
            affected.extend(self.remove_from_pair(&old));
        }
        self.add_to_pair(&object);
        self.objects.insert(name.clone(), object);
        let candidates =
            affected.iter().filter_map(|pair| self.objects_by_pair.get(pair)).flatten();
        let names: BTreeSet<&str> = candidates.map(|(_, name)| &**name).chain([&*name]).collect();
        let sweep = names.into_iter().filter(|name| self.obsolete(name).is_some());
        let query = affected.iter().filter(|pair| self.needs_object(pair)).cloned();
        sweep.map(|name| Key::Sweep(name.to_owned())).chain(query.map(Key::Query)).collect()
    }

    /// Updates an object as the answer to its correction shows it, unless the watch has shown more meanwhile.
    pub(super) fn upsert_corrected(&mut self, before: &Object, after: Object) -> Vec<Key> {
        if self.objects.get(&before.name) != Some(before) {
            return Vec::new();
        }
        self.upsert_object(after)
    }

    /// Removes an object that is deleted, or is not ours any more.
    pub(super) fn remove_object(&mut self, name: &str) -> Vec<Key> {
        let removed = self.objects.remove(name);
        removed.map(|object| self.on_removed(&object)).unwrap_or_default()
    }

    fn on_removed(&mut self, object: &Object) -> Vec<Key> {
        self.remove_from_pair(object)
            .filter(|pair| self.needs_object(pair))
            .map(Key::Query)
            .into_iter()
            .collect()
    }

    fn add_to_pair(&mut self, object: &Object) {
        let Some(pair) = &object.pair else { return };
        self.objects_by_pair.entry(pair.clone()).or_default().insert(seniority(object));
    }

    /// Removes the object from its pair; returns the pair.
    fn remove_from_pair(&mut self, object: &Object) -> Option<Pair> {
        let pair = object.pair.as_ref()?;
        let objects = self.objects_by_pair.get_mut(pair)?;
        objects.remove(&seniority(object));
        if objects.is_empty() {
            self.objects_by_pair.remove(pair);
        }
        Some(pair.clone())
    }

    // === decisions ===

    /// The class of the pair, and the object that is published for it now. `None`: nothing is to be published,
    /// as its class or segment is gone.
    pub(super) fn wanted(&self, pair: &Pair) -> Option<(Arc<StorageClass>, Option<Object>)> {
        let class = self.classes.get(&pair.class).filter(|_| self.segments.contains(&pair.segment));
        Some((Arc::clone(class?), self.oldest(pair).cloned()))
    }

    /// The oldest of the pair's objects, which is kept.
    fn oldest(&self, pair: &Pair) -> Option<&Object> {
        let (_, name) = self.objects_by_pair.get(pair)?.first()?;
        self.objects.get(name)
    }

    fn needs_object(&self, pair: &Pair) -> bool {
        self.is_wanted(pair) && self.oldest(pair).is_none()
    }

    /// The object of this name, if it must be deleted and is not being deleted yet.
    pub(super) fn obsolete(&self, name: &str) -> Option<&Object> {
        self.objects.get(name).filter(|object| !object.terminating && !self.is_kept(object))
    }

    /// Whether the object is the one that is kept for a wanted pair.
    fn is_kept(&self, object: &Object) -> bool {
        object.pair.as_ref().is_some_and(|pair| {
            self.is_wanted(pair)
                && self.oldest(pair).is_some_and(|oldest| oldest.name == object.name)
        })
    }

    pub(super) fn object_counts(&self) -> ObjectCounts {
        let kept = self.objects.values().filter(|object| self.is_kept(object)).count();
        ObjectCounts {
            wanted: self.classes.len() * self.segments.len(),
            published: kept,
            obsolete: self.objects.len() - kept,
        }
    }
}

/// Whether both are one object, for one pair.
fn is_same_object(one: &Object, other: &Object) -> bool {
    one.pair == other.pair && seniority(one) == seniority(other)
}

fn seniority(object: &Object) -> Seniority {
    (object.created.as_ref().map(|created| created.0), object.name.clone())
}

#[cfg(test)]
mod tests;
