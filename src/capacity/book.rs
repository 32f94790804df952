//! What should be published and what is, by content.
//!
//! Owns both, and what follows from the difference: whom to ask about, and which objects to
//! delete. Pure: it is told what was seen and answers with keys to work on; whether there is still
//! something to do is decided again when a key's turn has come ([`Book::standing`],
//! [`Book::superfluous`]). Promises one object a pair whatever is seen in whatever order: of
//! several the oldest stays, and every process says of the same objects the same. Leaves asking
//! and writing to the publisher.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{
    object::Object,
    segment::{Pair, Segment},
};
use crate::kube::{
    informer::cache::{Cache, Change},
    objects::StorageClass,
};

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// Ask how much room there is, and say so.
    Ask(Pair),
    /// The object of this name may be one too many.
    Sweep(String),
}

/// As logs tell it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(Pair { class, segment }) => write!(f, "{class} {segment}"),
            Self::Sweep(name) => f.write_str(name),
        }
    }
}

/// How a pair stands.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// Its class or segment is gone: nothing is published for it.
    Unwanted,
    /// There is no object for it.
    Absent(Arc<StorageClass>),
    /// This object says how much room there is.
    Published(Arc<StorageClass>, Box<Object>),
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Census {
    /// Objects that there should be.
    pub(super) wanted: usize,
    /// Those of them that there are.
    pub(super) published: usize,
    /// Objects that there should not be.
    pub(super) superfluous: usize,
}

/// An object as this process wrote it, until a watch shows it.
#[derive(Debug)]
struct Written {
    object: Object,
    /// Whether a poll has gone by meanwhile: what is still not shown then may be gone already.
    aged: bool,
}

/// The order in which objects of one pair stay: the oldest first.
type Seniority = (Option<jiff::Timestamp>, String);

/// What should be and what is.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// The classes that room is published of.
    classes: BTreeMap<Arc<str>, Arc<StorageClass>>,
    segments: BTreeSet<Segment>,
    /// Our objects, by name.
    objects: Cache<Object>,
    /// The objects of each pair.
    holders: BTreeMap<Pair, BTreeSet<Seniority>>,
    written: BTreeMap<Pair, Written>,
    /// Wanted pairs that were not asked about yet.
    new: BTreeSet<Pair>,
}

impl Book {
    // === what should be ===

    /// The class was seen and room is published of it.
    pub(super) fn class_seen(&mut self, class: Arc<StorageClass>, name: &str) -> Vec<Key> {
        let name: Arc<str> = name.into();
        self.classes.insert(Arc::clone(&name), class);
        let pairs = self.of_class(&name);
        self.want(pairs)
    }

    /// The class is gone, or no room is published of it any more.
    pub(super) fn class_gone(&mut self, name: &str) -> Vec<Key> {
        if self.classes.remove(name).is_none() {
            return Vec::new();
        }
        self.forget(|pair| &*pair.class == name)
    }

    /// These are all segments now.
    pub(super) fn segments_are(&mut self, segments: BTreeSet<Segment>) -> Vec<Key> {
        let old = std::mem::replace(&mut self.segments, segments);
        let came: Vec<Segment> = self.segments.difference(&old).cloned().collect();
        let went: BTreeSet<Segment> = old.difference(&self.segments).cloned().collect();
        let pairs = came.iter().flat_map(|segment| self.of_segment(segment)).collect();
        let mut keys = self.want(pairs);
        if !went.is_empty() {
            keys.extend(self.forget(|pair| went.contains(&pair.segment)));
        }
        keys
    }

    fn want(&mut self, pairs: Vec<Pair>) -> Vec<Key> {
        let unknown = pairs.iter().filter(|pair| !self.holders.contains_key(pair));
        self.new.extend(unknown.cloned());
        pairs.into_iter().map(Key::Ask).collect()
    }

    /// Such pairs are not wanted any more: their objects are to go.
    fn forget(&mut self, such: impl Fn(&Pair) -> bool) -> Vec<Key> {
        self.new.retain(|pair| !such(pair));
        self.written.retain(|pair, _| !such(pair));
        let theirs = self.holders.iter().filter(|(pair, _)| such(pair));
        theirs.flat_map(|(_, holders)| holders).map(|(_, name)| Key::Sweep(name.clone())).collect()
    }

    fn of_class(&self, class: &Arc<str>) -> Vec<Pair> {
        let pair = |segment: &Segment| Pair { class: Arc::clone(class), segment: segment.clone() };
        self.segments.iter().map(pair).collect()
    }

    fn of_segment(&self, segment: &Segment) -> Vec<Pair> {
        let pair = |class: &Arc<str>| Pair { class: Arc::clone(class), segment: segment.clone() };
        self.classes.keys().map(pair).collect()
    }

    fn wants(&self, pair: &Pair) -> bool {
        self.classes.contains_key(&pair.class) && self.segments.contains(&pair.segment)
    }

    // === what may have changed ===

    /// The class's room may have changed.
    pub(super) fn refresh_class(&self, class: &str) -> Vec<Key> {
        let class = self.classes.get_key_value(class).map(|(name, _)| name);
        class.into_iter().flat_map(|class| self.of_class(class)).map(Key::Ask).collect()
    }

    /// The room of these segments may have changed, whatever the class.
    pub(super) fn refresh_segments(&self, segments: impl IntoIterator<Item = Segment>) -> Vec<Key> {
        let known = segments.into_iter().filter(|segment| self.segments.contains(segment));
        known.flat_map(|segment| self.of_segment(&segment)).map(Key::Ask).collect()
    }

    /// Everything is looked at again.
    pub(super) fn poll(&mut self) -> Vec<Key> {
        self.written.retain(|_, written| !std::mem::replace(&mut written.aged, true));
        let wanted = self.segments.iter().flat_map(|segment| self.of_segment(segment));
        let names = self.objects.iter().map(|(name, _)| name);
        let sweep = names.filter(|name| self.superfluous(name).is_some());
        wanted.map(Key::Ask).chain(sweep.map(|name| Key::Sweep(name.to_owned()))).collect()
    }

    /// The pair was asked about, and its object says what was answered. Whether it should be asked
    /// about once more: where driver, node or class have just come, the first word is often not
    /// the last.
    pub(super) fn asked(&mut self, pair: &Pair) -> bool {
        self.new.remove(pair)
    }

    // === what is ===

    /// A new list of our objects begins.
    pub(super) fn restarted(&mut self) {
        self.objects.restarted();
    }

    /// The list is whole.
    pub(super) fn complete(&mut self) -> Vec<Key> {
        self.new.retain(|pair| !self.holders.contains_key(pair));
        let vanished = self.objects.complete();
        vanished.into_iter().flat_map(|object| self.vanished(&object)).collect()
    }

    /// An object of ours exists.
    pub(super) fn seen(&mut self, object: Object) -> Vec<Key> {
        let name = object.name.clone();
        let mut concerned: BTreeSet<Pair> = object.pair.iter().cloned().collect();
        if let Some(old) = self.objects.get(&name).filter(|old| !is_same(old, &object)).cloned() {
            // Another one has taken its name: what it was about may have no object now.
            concerned.extend(self.release(&old));
        }
        self.hold(&object);
        let _ = self.objects.seen(&name, Some(object));
        let rivals = concerned.iter().filter_map(|pair| self.holders.get(pair)).flatten();
        let names: BTreeSet<&str> = rivals.map(|(_, name)| &**name).chain([&*name]).collect();
        let sweep = names.into_iter().filter(|name| self.superfluous(name).is_some());
        let ask = concerned.iter().filter(|pair| self.lacks(pair)).cloned();
        sweep.map(|name| Key::Sweep(name.to_owned())).chain(ask.map(Key::Ask)).collect()
    }

    /// The object exists and cannot be read: what is known of it stays.
    pub(super) fn unreadable(&mut self, name: &str) {
        self.objects.unreadable(name);
    }

    /// The object is gone, or is not ours any more.
    pub(super) fn gone(&mut self, name: &str) -> Vec<Key> {
        match self.objects.deleted(name) {
            Change::Gone(object) => self.vanished(&object),
            _ => Vec::new(),
        }
    }

    fn vanished(&mut self, object: &Object) -> Vec<Key> {
        self.release(object).filter(|pair| self.lacks(pair)).map(Key::Ask).into_iter().collect()
    }

    fn hold(&mut self, object: &Object) {
        let Some(pair) = &object.pair else { return };
        self.holders.entry(pair.clone()).or_default().insert(seniority(object));
        self.written.remove(pair);
    }

    /// The object does not hold its pair any more; gives that.
    fn release(&mut self, object: &Object) -> Option<Pair> {
        let pair = object.pair.as_ref()?;
        // What was written before that is out of date.
        self.written.remove(pair);
        let holders = self.holders.get_mut(pair)?;
        holders.remove(&seniority(object));
        if holders.is_empty() {
            self.holders.remove(pair);
        }
        Some(pair.clone())
    }

    /// This process has written the pair's object, which a watch will show. It counts as it was
    /// written until then, or until the second poll: what is not shown by then may be gone again.
    pub(super) fn wrote(&mut self, pair: &Pair, object: Object) {
        let outdated = self
            .eldest(pair)
            .is_none_or(|shown| shown.name == object.name && shown.version != object.version);
        if outdated && self.wants(pair) {
            self.written.insert(pair.clone(), Written { object, aged: false });
        }
    }

    /// There is no object of that name, whatever was seen or written: the watch is late.
    pub(super) fn missing(&mut self, name: &str) -> Vec<Key> {
        self.written.retain(|_, written| written.object.name != name);
        self.gone(name)
    }

    // === what is to be done ===

    /// How the pair stands now.
    pub(super) fn standing(&self, pair: &Pair) -> Standing {
        let class = self.classes.get(&pair.class).filter(|_| self.segments.contains(&pair.segment));
        let Some(class) = class.cloned() else { return Standing::Unwanted };
        match self.published(pair) {
            Some(object) => Standing::Published(class, Box::new(object.clone())),
            None => Standing::Absent(class),
        }
    }

    /// The pair's object, as it was written or else shown.
    fn published(&self, pair: &Pair) -> Option<&Object> {
        let written = self.written.get(pair).map(|written| &written.object);
        written.or_else(|| self.eldest(pair))
    }

    /// Of the pair's objects the one that stays.
    fn eldest(&self, pair: &Pair) -> Option<&Object> {
        let (_, name) = self.holders.get(pair)?.first()?;
        self.objects.get(name)
    }

    fn lacks(&self, pair: &Pair) -> bool {
        self.wants(pair) && self.published(pair).is_none()
    }

    /// The object of this name, where it is to be deleted and nobody has done so yet.
    pub(super) fn superfluous(&self, name: &str) -> Option<&Object> {
        self.objects.get(name).filter(|object| !object.terminating && !self.stays(object))
    }

    /// Whether the object is the one that stays for a pair that is wanted.
    fn stays(&self, object: &Object) -> bool {
        object.pair.as_ref().is_some_and(|pair| {
            self.wants(pair) && self.eldest(pair).is_some_and(|eldest| eldest.name == object.name)
        })
    }

    pub(super) fn census(&self) -> Census {
        let staying = self.objects.iter().filter(|(_, object)| self.stays(object)).count();
        Census {
            wanted: self.classes.len() * self.segments.len(),
            published: staying,
            superfluous: self.objects.len() - staying,
        }
    }
}

/// Whether both are one object for this book.
fn is_same(one: &Object, other: &Object) -> bool {
    one.pair == other.pair && seniority(one) == seniority(other)
}

fn seniority(object: &Object) -> Seniority {
    (object.created.as_ref().map(|created| created.0), object.name.clone())
}

#[cfg(test)]
mod tests;
