//! Which items wait for which API objects.
//!
//! An attempt that fails because an object is missing or not ready registers that object as a
//! [`Dependency`] of its item, with the version that it read. When a watch or a read finds another
//! version, the index returns the items to wake. It guarantees that:
//!
//! - a change between an attempt's read and its registration is not missed, if the object is watched;
//! - an item that read a newer version than the index knows is woken at most once for that;
//! - nothing is kept for items that no longer wait.
//!
//! The index only does the bookkeeping: `DependencyWatcher` and the other watches detect the changes.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::{
    controller::item::Item,
    kube::{Kind, View, informer::InformerEvent, objects::Metadata},
    table::Table,
};

/// An object that an attempt did not find, or found not ready: one by name, or any of a kind,
/// optionally in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The object's kind.
    pub kind: Kind,
    /// The object's namespace, for namespaced kinds.
    pub namespace: Option<String>,
    /// The object's name. Without one, any object of the kind counts, in `namespace` if that is set.
    pub name: Option<String>,
    /// What the attempt observed. Only a different observation wakes the item.
    pub observed: Observed,
}

/// What was observed of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Observed {
    /// Not known.
    #[default]
    Unknown,
    /// The object did not exist.
    Missing,
    /// The object existed, with this `resourceVersion`.
    Version(Box<str>),
}

/// Which items wait for which objects. Clones share one index.
#[derive(Debug, Clone, Default)]
pub struct DependencyIndex(Arc<SharedIndex>);

#[derive(Debug, Default)]
struct SharedIndex {
    /// Not in the index of claims, as PersistentVolumes wait for objects as well.
    waiting: Mutex<Waiting>,
    /// Notified when [`Waiting::changes`] is not empty.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The keys of `by_object`. In lists: an item waits for one or two objects, and a tree takes memory
    /// for eleven.
    by_item: Table<Item, Box<[Arc<Dependency>]>>,
    /// The keys' `observed` is always [`Observed::Unknown`].
    by_object: BTreeMap<Arc<Dependency>, WantedObject>,
    /// What [`DependencyIndex::next_changes`] has not returned yet.
    changes: Changes,
    /// The generation of the object that was added last.
    last_generation: u64,
}

/// An object that at least one item waits for.
#[derive(Debug)]
struct WantedObject {
    /// See [`DependencyIndex::generation`].
    generation: u64,
    /// The waiting items, with what each observed.
    items: Table<Item, Observed>,
    /// The latest observation, if the object is watched or read.
    known: Observed,
    /// The items that were woken because they registered another observation than `known`.
    woken_for_known: BTreeSet<Item>,
    /// When an item last began to wait.
    last_joined: Instant,
}

/// What has changed in the index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Objects that got their first waiting item or lost their last one.
    pub objects: BTreeSet<Dependency>,
    /// Items to wake: they registered another observation than the index knows, so the change that
    /// they wait for may have happened already.
    pub outdated: BTreeSet<Item>,
}

impl Dependency {
    /// The object `name` of the kind that `V` reads; `namespace` is set for namespaced kinds.
    pub fn object<V: View>(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        let name = Some(name.to_owned());
        Self { kind: Kind::of::<V>(), namespace, name, observed: Observed::Unknown }
    }

    /// Any object of the kind that `V` reads.
    pub fn any<V: View>() -> Self {
        Self { kind: Kind::of::<V>(), namespace: None, name: None, observed: Observed::Unknown }
    }

    /// Any object of the kind that `V` reads, in `namespace`.
    pub fn any_in<V: View>(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::any::<V>() }
    }

    /// Adds that the object did not exist.
    #[must_use]
    pub fn missing(self) -> Self {
        Self { observed: Observed::Missing, ..self }
    }

    /// Adds that the object existed, with this metadata.
    #[must_use]
    pub fn observed_as(self, metadata: &Metadata) -> Self {
        let version = metadata.resource_version.clone();
        Self { observed: version.map_or(Observed::Unknown, Observed::Version), ..self }
    }

    /// The object without an observation.
    fn key(&self) -> Self {
        Self { observed: Observed::Unknown, ..self.clone() }
    }
}

impl Observed {
    /// Whether an item that observed `self` is to be woken for `now`. A deletion wakes no item.
    fn is_outdated_by(&self, now: &Self) -> bool {
        matches!(now, Self::Version(_)) && self != now
    }
}

impl DependencyIndex {
    /// Registers that `item` waits for these objects, and for no others.
    pub fn wait(&self, item: &Item, dependencies: &[Dependency]) {
        let mut waiting = self.0.waiting.lock();
        let keys = dependencies.iter().map(|object| waiting.join(item, object)).collect();
        waiting.replace(item, keys);
        self.notify(&waiting);
    }

    /// Removes `item`: it waits for nothing any more.
    pub fn forget(&self, item: &Item) {
        let mut waiting = self.0.waiting.lock();
        waiting.replace(item, Box::default());
        self.notify(&waiting);
    }

    /// Returns the items that wait for this object by name, or for any object of its kind in any
    /// namespace, except those that observed what `object` says.
    pub fn waiting_for(&self, object: &Dependency) -> Vec<Item> {
        let waiting = self.0.waiting.lock();
        let any = Dependency { namespace: None, name: None, ..object.key() };
        let both = [&object.key(), &any].map(|key| waiting.by_object.get(key));
        let items = both.into_iter().flatten().flat_map(|object| object.items.iter());
        let is_new =
            |observed: &Observed| *observed == Observed::Unknown || *observed != object.observed;
        let items = items.filter(|(_, observed)| is_new(observed)).map(|(item, _)| item.clone());
        items.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the items that wait for the object that `event` adds or changes.
    pub fn waiting_for_event<V: View>(&self, event: &InformerEvent<V>) -> Vec<Item> {
        let (InformerEvent::InitApply(object) | InformerEvent::Apply(object)) = event else {
            return Vec::new();
        };
        // Saves work for each object of a large list: usually no item waits for anything.
        if self.0.waiting.lock().by_object.is_empty() {
            return Vec::new();
        }
        let namespace = V::NAMESPACED.then(|| object.namespace());
        let dependency = Dependency::object::<V>(namespace, object.name());
        self.waiting_for(&dependency.observed_as(object.meta()))
    }

    /// Records that the object is now observed as `now`. Returns the items that wait for it and
    /// observed something else; none if `now` was known already.
    pub fn record(&self, object: &Dependency, now: Observed) -> Vec<Item> {
        let mut waiting = self.0.waiting.lock();
        let Some(object) = waiting.by_object.get_mut(&object.key()) else { return Vec::new() };
        if object.known == now {
            return Vec::new();
        }
        let outdated = object.items.iter().filter(|(_, observed)| observed.is_outdated_by(&now));
        let outdated = outdated.map(|(item, _)| item.clone()).collect();
        object.known = now;
        // The items in `outdated` are not in there: what they read next may come from a cache that
        // is up to a second old, and predate the change.
        object.woken_for_known.clear();
        outdated
    }

    /// Whether an item that waits for the object says what it observed.
    pub fn has_observation(&self, object: &Dependency) -> bool {
        let waiting = self.0.waiting.lock();
        let object = waiting.by_object.get(&object.key());
        object.is_some_and(|object| {
            object.items.values().any(|observed| *observed != Observed::Unknown)
        })
    }

    /// Returns the items that wait for the object and say that they observed something else than
    /// `now`.
    pub fn outdated_items(&self, object: &Dependency, now: &Observed) -> Vec<Item> {
        let waiting = self.0.waiting.lock();
        let Some(object) = waiting.by_object.get(&object.key()) else { return Vec::new() };
        let is_outdated =
            |observed: &Observed| *observed != Observed::Unknown && observed.is_outdated_by(now);
        let outdated = object.items.iter().filter(|(_, observed)| is_outdated(observed));
        outdated.map(|(item, _)| item.clone()).collect()
    }

    /// A number that differs each time the object gets its first waiting item; `None` if no item
    /// waits for it.
    pub fn generation(&self, object: &Dependency) -> Option<u64> {
        self.0.waiting.lock().by_object.get(&object.key()).map(|object| object.generation)
    }

    /// When an item last began to wait for the object; `None` if no item waits for it.
    pub fn last_joined(&self, object: &Dependency) -> Option<Instant> {
        self.0.waiting.lock().by_object.get(&object.key()).map(|object| object.last_joined)
    }

    /// The number of objects that items wait for, by resource.
    pub fn count_by_resource(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for object in self.0.waiting.lock().by_object.keys() {
            *counts.entry(object.kind.resource()).or_default() += 1;
        }
        counts
    }

    /// Waits until the index has changed. Only one task may call this.
    pub async fn next_changes(&self) -> Changes {
        loop {
            let changes = std::mem::take(&mut self.0.waiting.lock().changes);
            if changes != Changes::default() {
                return changes;
            }
            self.0.changed.notified().await;
        }
    }

    fn notify(&self, waiting: &Waiting) {
        if waiting.changes != Changes::default() {
            self.0.changed.notify_one();
        }
    }
}

impl WantedObject {
    fn new(generation: u64) -> Self {
        Self {
            generation,
            items: Table::default(),
            known: Observed::Unknown,
            woken_for_known: BTreeSet::new(),
            last_joined: Instant::now(),
        }
    }

    /// Whether to wake the item, which registers `observed`, because something else is known. Only
    /// once for the same `known`: versions have no order, so `known` may be the older one, and it
    /// may stay for long.
    fn wakes_for_known(&mut self, item: &Item, observed: &Observed) -> bool {
        let differs = *observed != Observed::Unknown && observed.is_outdated_by(&self.known);
        differs && self.woken_for_known.insert(item.clone())
    }
}

impl Waiting {
    /// Adds one dependency of `item`. Returns the object's key, of which there is one for all items.
    fn join(&mut self, item: &Item, dependency: &Dependency) -> Arc<Dependency> {
        let (key, object) = match self.by_object.entry(Arc::new(dependency.key())) {
            Entry::Occupied(entry) => (Arc::clone(entry.key()), entry.into_mut()),
            Entry::Vacant(entry) => {
                let key = Arc::clone(entry.key());
                self.changes.objects.insert(Dependency::clone(&key));
                self.last_generation += 1;
                (key, entry.insert(WantedObject::new(self.last_generation)))
            }
        };
        let observed = dependency.observed.clone();
        if object.wakes_for_known(item, &observed) {
            self.changes.outdated.insert(item.clone());
        }
        if object.items.insert(item.clone(), observed).is_none() {
            object.last_joined = Instant::now();
        }
        key
    }

    /// Removes the dependencies of `item` that are not in `keys`. Those in `keys` were added by
    /// [`Waiting::join`].
    fn replace(&mut self, item: &Item, keys: Box<[Arc<Dependency>]>) {
        let before = self.by_item.remove(item).unwrap_or_default();
        for key in before.iter().filter(|key| !keys.contains(key)) {
            self.leave(item, key);
        }
        if !keys.is_empty() {
            self.by_item.insert(item.clone(), keys);
        }
    }

    fn leave(&mut self, item: &Item, key: &Dependency) {
        let Some(object) = self.by_object.get_mut(key) else { return };
        object.items.remove(item);
        object.woken_for_known.remove(item);
        if object.items.is_empty() {
            self.by_object.remove(key);
            self.changes.objects.insert(key.clone());
        }
    }
}

#[cfg(test)]
mod tests;
