//! What claims and volumes wait for beside the driver: objects whose change may be what was missing.
//!
//! Owns who waits for which object, and what each has seen of it. Promises that whoever sees an
//! object change finds all that wait for it, that a change between an attempt's reading and its
//! waiting is not missed where the object is followed, that what is known of an object for a while
//! brings nobody back again and again who has seen a newer one, and that nothing is kept of what does
//! not wait any more. Leaves seeing the change to those who watch, `lookout` among them, and what the
//! change means to the next attempt.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    controller::item::Item,
    kube::{Kind, View, informer::InformerEvent},
};

/// An object, or any of a kind, be it of one namespace, that an attempt was missing or found not ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The object's kind.
    pub kind: Kind,
    /// Its namespace, for kinds that have one.
    pub namespace: Option<String>,
    /// Its name; where there is none any object of the kind will do, of the namespace if that is
    /// named.
    pub name: Option<String>,
    /// What the attempt saw of it: only something else brings it back.
    pub seen: Seen,
}

/// What was seen of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Seen {
    /// Nobody says.
    #[default]
    Unknown,
    /// There was none.
    Missing,
    /// It was there, with this `resourceVersion`.
    Version(String),
}

/// Who waits for which objects. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct DependencyIndex(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Told when there is a [`Turn`].
    turned: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    by_item: BTreeMap<Item, BTreeSet<Dependency>>,
    /// Keyed by objects of which nothing is seen.
    by_object: BTreeMap<Dependency, Object>,
    turn: Turn,
    /// How many times an object came to be waited for.
    count: u64,
}

/// An object that is waited for.
#[derive(Debug)]
struct Object {
    /// Which time this is that it is waited for.
    number: u64,
    /// Who waits, and what they saw.
    items: BTreeMap<Item, Seen>,
    /// What is known of it now, where somebody follows it.
    known: Seen,
    /// Which of them saw something else than that, and were brought back for it when they said so.
    late: BTreeSet<Item>,
    /// When the last of them came.
    newest: Instant,
}

/// What has changed about the waiting.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Objects that somebody has begun, or all have ceased, to wait for.
    pub objects: BTreeSet<Dependency>,
    /// Items that saw something else than what is known: the change they wait for may have taken
    /// place by now.
    pub late: BTreeSet<Item>,
}

impl Dependency {
    /// The object `name` of the kind that `V` reads, in `namespace` where the kind has them.
    pub fn object<V: View>(namespace: Option<&str>, name: &str) -> Self {
        let (namespace, name) = (namespace.map(str::to_owned), Some(name.to_owned()));
        Self { kind: Kind::of::<V>(), namespace, name, seen: Seen::Unknown }
    }

    /// Any object of the kind that `V` reads.
    pub fn any<V: View>() -> Self {
        Self { kind: Kind::of::<V>(), namespace: None, name: None, seen: Seen::Unknown }
    }

    /// Any object of the kind that `V` reads, in `namespace`.
    pub fn any_in<V: View>(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::any::<V>() }
    }

    /// The same, which was not there.
    #[must_use]
    pub fn missing(self) -> Self {
        Self { seen: Seen::Missing, ..self }
    }

    /// The same, which was there as `metadata` says.
    #[must_use]
    pub fn as_seen(self, metadata: &ObjectMeta) -> Self {
        let version = metadata.resource_version.clone();
        Self { seen: version.map_or(Seen::Unknown, Seen::Version), ..self }
    }

    /// The same object, whatever was seen of it.
    fn key(&self) -> Self {
        Self { seen: Seen::Unknown, ..self.clone() }
    }
}

impl Seen {
    /// Whether `now` is what somebody waits for who saw this. The end of an object is not.
    fn is_overtaken_by(&self, now: &Self) -> bool {
        matches!(now, Self::Version(_)) && self != now
    }
}

impl DependencyIndex {
    /// The item waits for these and for nothing else.
    pub fn wait(&self, item: &Item, awaited: &[Dependency]) {
        let mut waiting = self.0.waiting.lock();
        for object in awaited {
            waiting.join(item, object);
        }
        let keys: BTreeSet<Dependency> = awaited.iter().map(Dependency::key).collect();
        waiting.replace(item, keys);
        self.tell(&waiting);
    }

    /// The item waits for nothing any more.
    pub fn forget(&self, item: &Item) {
        let mut waiting = self.0.waiting.lock();
        waiting.replace(item, BTreeSet::new());
        self.tell(&waiting);
    }

    /// All that wait for this very object, or for any of its kind, but those who saw it as it is.
    pub fn of(&self, object: &Dependency) -> Vec<Item> {
        let waiting = self.0.waiting.lock();
        let any = Dependency { namespace: None, name: None, ..object.key() };
        let both = [&object.key(), &any].map(|key| waiting.by_object.get(key));
        let items = both.into_iter().flatten().flat_map(|object| &object.items);
        let is_news = |saw: &Seen| *saw == Seen::Unknown || *saw != object.seen;
        let items = items.filter(|(_, saw)| is_news(saw)).map(|(item, _)| item.clone());
        items.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// All that wait for what a watch has just shown to be there, new or changed.
    pub fn of_shown<V: View>(&self, event: &InformerEvent<V>) -> Vec<Item> {
        let (InformerEvent::InitApply(object) | InformerEvent::Apply(object)) = event else {
            return Vec::new();
        };
        // Of a hundred thousand that go past mostly nobody waits for any.
        if self.0.waiting.lock().by_object.is_empty() {
            return Vec::new();
        }
        let namespace = V::NAMESPACED.then(|| object.namespace());
        self.of(&Dependency::object::<V>(namespace, object.name()).as_seen(object.meta()))
    }

    /// The object is seen to be so now: all that wait for it and saw something else.
    pub fn shown(&self, object: &Dependency, now: Seen) -> Vec<Item> {
        let mut waiting = self.0.waiting.lock();
        let Some(object) = waiting.by_object.get_mut(&object.key()) else { return Vec::new() };
        if object.known == now {
            return Vec::new();
        }
        let overtaken = object.items.iter().filter(|(_, seen)| seen.is_overtaken_by(&now));
        let overtaken = overtaken.map(|(item, _)| item.clone()).collect();
        object.known = now;
        // None of `overtaken` is among them yet: what they read next may be up to a second old, and
        // from before the change.
        object.late.clear();
        overtaken
    }

    /// Whether anybody who waits for the object has told what they saw.
    pub fn has_seen(&self, object: &Dependency) -> bool {
        let waiting = self.0.waiting.lock();
        let object = waiting.by_object.get(&object.key());
        object.is_some_and(|object| object.items.values().any(|seen| *seen != Seen::Unknown))
    }

    /// All that wait for the object and told that they saw something else than it is now.
    pub fn behind(&self, object: &Dependency, now: &Seen) -> Vec<Item> {
        let waiting = self.0.waiting.lock();
        let Some(object) = waiting.by_object.get(&object.key()) else { return Vec::new() };
        let is_behind = |seen: &Seen| *seen != Seen::Unknown && seen.is_overtaken_by(now);
        let behind = object.items.iter().filter(|(_, seen)| is_behind(seen));
        behind.map(|(item, _)| item.clone()).collect()
    }

    /// Tells one time of being waited for from another; none when nobody waits for the object.
    pub fn number(&self, object: &Dependency) -> Option<u64> {
        self.0.waiting.lock().by_object.get(&object.key()).map(|object| object.number)
    }

    /// When the last of those came who wait for the object; none when nobody does.
    pub fn newest(&self, object: &Dependency) -> Option<Instant> {
        self.0.waiting.lock().by_object.get(&object.key()).map(|object| object.newest)
    }

    /// How many objects of each resource are waited for.
    pub fn census(&self) -> BTreeMap<String, usize> {
        let mut census = BTreeMap::new();
        for object in self.0.waiting.lock().by_object.keys() {
            *census.entry(object.kind.resource()).or_default() += 1;
        }
        census
    }

    /// DependencyIndex until something has changed about the waiting. For one reader.
    pub async fn turned(&self) -> Turn {
        loop {
            let turn = std::mem::take(&mut self.0.waiting.lock().turn);
            if turn != Turn::default() {
                return turn;
            }
            self.0.turned.notified().await;
        }
    }

    fn tell(&self, waiting: &Waiting) {
        if waiting.turn != Turn::default() {
            self.0.turned.notify_one();
        }
    }
}

impl Object {
    fn new(number: u64) -> Self {
        let (items, late) = (BTreeMap::new(), BTreeSet::new());
        Self { number, items, known: Seen::Unknown, late, newest: Instant::now() }
    }

    /// Whether the item, which saw this, is to be brought back for what is known. Only once for the
    /// same: which of the two is older can't be told, and what is known may stay for long.
    fn comes_late(&mut self, item: &Item, saw: &Seen) -> bool {
        let differs = *saw != Seen::Unknown && saw.is_overtaken_by(&self.known);
        differs && self.late.insert(item.clone())
    }
}

impl Waiting {
    /// The item waits for the object, among others.
    fn join(&mut self, item: &Item, awaited: &Dependency) {
        let key = awaited.key();
        let object = match self.by_object.entry(key) {
            Entry::Occupied(object) => object.into_mut(),
            Entry::Vacant(place) => {
                self.turn.objects.insert(place.key().clone());
                self.count += 1;
                place.insert(Object::new(self.count))
            }
        };
        let saw = awaited.seen.clone();
        if object.comes_late(item, &saw) {
            self.turn.late.insert(item.clone());
        }
        if object.items.insert(item.clone(), saw).is_none() {
            object.newest = Instant::now();
        }
    }

    /// The item waits for these, which it has joined, and for nothing else.
    fn replace(&mut self, item: &Item, keys: BTreeSet<Dependency>) {
        let before = self.by_item.remove(item).unwrap_or_default();
        for key in before.difference(&keys) {
            self.leave(item, key);
        }
        if !keys.is_empty() {
            self.by_item.insert(item.clone(), keys);
        }
    }

    fn leave(&mut self, item: &Item, key: &Dependency) {
        let Some(object) = self.by_object.get_mut(key) else { return };
        object.items.remove(item);
        object.late.remove(item);
        if object.items.is_empty() {
            self.by_object.remove(key);
            self.turn.objects.insert(key.clone());
        }
    }
}

#[cfg(test)]
mod tests;
