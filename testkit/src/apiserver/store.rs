//! The objects, and what became of them.
//!
//! Owns the one counter of revisions, the objects by kind and key, and for each kind the window
//! of its latest changes, from which watches and lists of earlier states are served. Promises that
//! revisions only rise, that every write is one change, and that what the window no longer holds
//! is reported as compacted rather than guessed. Leaves all rules about objects to the verbs.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::Value;

use super::{
    latest::{Follower, Latest},
    object::{Key, Object},
    resources::GroupResource,
};

/// A write to one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The object before; none when the write created it.
    pub(crate) before: Option<Arc<Object>>,
    /// The object after, or its last state if the write deleted it, at the write's revision.
    pub(crate) object: Arc<Object>,
    /// Whether the write deleted it.
    pub(crate) gone: bool,
}

impl Change {
    /// The revision the write made.
    pub(crate) fn revision(&self) -> u64 {
        self.object.revision()
    }
}

/// The window of history no longer reaches back so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest revision from which changes are still available.
    pub(crate) oldest: u64,
}

/// One kind's objects and latest changes.
#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    changes: VecDeque<Change>,
    /// The revision of the latest change that is forgotten.
    forgotten: u64,
    latest: Latest,
}

/// All objects of a server.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// States before this revision are not available any more, though nothing may have changed since.
    compacted: u64,
    window: usize,
    tables: BTreeMap<GroupResource, Table>,
}

impl Store {
    /// An empty store that remembers `window` changes of each kind.
    pub(crate) fn new(window: usize) -> Self {
        Self { revision: 1, compacted: 0, window, tables: BTreeMap::new() }
    }

    /// The revision of the latest write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The object of a key.
    pub(crate) fn get(&self, resource: &GroupResource, key: &Key) -> Option<&Arc<Object>> {
        self.tables.get(resource)?.objects.get(key)
    }

    /// The objects of a kind, of one namespace or all, in order, from behind `after` on.
    pub(crate) fn range<'a>(
        &'a self,
        resource: &GroupResource,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + use<'a> {
        let objects = self.tables.get(resource).map(|t| &t.objects);
        range(objects, namespace, after)
    }

    /// How many objects of a kind there are.
    pub(crate) fn count(&self, resource: &GroupResource) -> usize {
        self.tables.get(resource).map_or(0, |t| t.objects.len())
    }

    /// Whether history reaches back to `revision`: whether a list or a new watch may ask for it.
    ///
    /// # Errors
    /// [`Compacted`] when it does not.
    pub(crate) fn reaches(&self, resource: &GroupResource, revision: u64) -> Result<(), Compacted> {
        let oldest =
            self.tables.get(resource).map_or(0, |table| table.forgotten).max(self.compacted);
        if revision < oldest { Err(Compacted { oldest }) } else { Ok(()) }
    }

    /// The objects of a kind as they were at `revision`.
    ///
    /// # Errors
    /// [`Compacted`] when history does not reach back so far.
    pub(crate) fn at(
        &self,
        resource: &GroupResource,
        revision: u64,
    ) -> Result<Snapshot, Compacted> {
        self.reaches(resource, revision)?;
        let Some(table) = self.tables.get(resource) else { return Ok(Snapshot::default()) };
        let since = table.since(revision)?;
        let mut undone = BTreeMap::new();
        for change in since.rev() {
            undone.insert(change.object.key(), change.before.clone());
        }
        Ok(Snapshot { undone })
    }

    /// The changes of a kind after `revision`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`Compacted`] when some of them are forgotten.
    pub(crate) fn changes(
        &self,
        resource: &GroupResource,
        revision: u64,
        limit: usize,
    ) -> Result<Vec<Change>, Compacted> {
        match self.tables.get(resource) {
            Some(table) => Ok(table.since(revision)?.take(limit).cloned().collect()),
            None => Ok(Vec::new()),
        }
    }

    /// Publishes the revision of the kind's latest change.
    pub(crate) fn subscribe(&mut self, resource: &GroupResource) -> Follower {
        self.tables.entry(resource.clone()).or_default().latest.follow()
    }

    /// Writes an object, new or changed; gives it as it now stands.
    pub(crate) fn put(&mut self, resource: &GroupResource, value: Value) -> Arc<Object> {
        let object = Arc::new(Object::new(value, self.next_revision()));
        let table = self.tables.entry(resource.clone()).or_default();
        let before = table.objects.insert(object.key(), Arc::clone(&object));
        table.record(Change { before, object: Arc::clone(&object), gone: false }, self.window);
        object
    }

    /// Deletes an object, whose last state is `value`; gives it at the revision of its end.
    pub(crate) fn delete(&mut self, resource: &GroupResource, value: Value) -> Arc<Object> {
        let object = Arc::new(Object::new(value, self.next_revision()));
        let table = self.tables.entry(resource.clone()).or_default();
        let before = table.objects.remove(&object.key());
        table.record(Change { before, object: Arc::clone(&object), gone: true }, self.window);
        object
    }

    /// Forgets all history: from now on, only the present state is available. A watch that has delivered all
    /// there was goes on.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.tables.values_mut().for_each(|table| table.forget(0));
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }
}

fn range<'a>(
    objects: Option<&'a BTreeMap<Key, Arc<Object>>>,
    namespace: Option<&'a str>,
    after: Option<&Key>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + use<'a> {
    let first = Key::new(namespace.unwrap_or_default(), "");
    let start = match after {
        Some(after) if *after > first => Bound::Excluded(after.clone()),
        _ => Bound::Included(first),
    };
    objects
        .into_iter()
        .flat_map(move |objects| objects.range((start.clone(), Bound::Unbounded)))
        .take_while(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
}

impl Table {
    fn record(&mut self, change: Change, window: usize) {
        let revision = change.revision();
        self.changes.push_back(change);
        self.forget(window);
        self.latest.publish(revision);
    }

    /// Forgets all but the latest `keep` changes.
    fn forget(&mut self, keep: usize) {
        while self.changes.len() > keep {
            if let Some(oldest) = self.changes.pop_front() {
                self.forgotten = oldest.revision();
            }
        }
    }

    fn since(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, Compacted> {
        if revision < self.forgotten {
            return Err(Compacted { oldest: self.forgotten });
        }
        let first = self.changes.partition_point(|change| change.revision() <= revision);
        Ok(self.changes.range(first..))
    }
}

/// How the objects of a kind differed at an earlier revision from what they are now.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// What stood under a key that has changed since; none where nothing stood.
    undone: BTreeMap<Key, Option<Arc<Object>>>,
}

impl Snapshot {
    /// The objects of then, in order, out of the objects of now.
    pub(crate) fn of<'a>(
        &'a self,
        now: impl Iterator<Item = (&'a Key, &'a Arc<Object>)>,
        wanted: impl Fn(&Key) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
        let then = self.undone.iter().filter(move |(key, _)| wanted(key));
        let then = then.filter_map(|(key, object)| Some((key, object.as_ref()?)));
        let unchanged = now.filter(|(key, _)| !self.undone.contains_key(key));
        merge(then, unchanged)
    }
}

/// Two ordered sequences without a common key as one.
fn merge<'a>(
    left: impl Iterator<Item = (&'a Key, &'a Arc<Object>)>,
    right: impl Iterator<Item = (&'a Key, &'a Arc<Object>)>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(l), Some(r)) if l.0 < r.0 => left.next(),
        (Some(_), None) => left.next(),
        _ => right.next(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn resource() -> GroupResource {
        (String::new(), "things".to_owned())
    }

    fn thing(name: u8, content: u8) -> Value {
        json!({"metadata": {"name": format!("thing-{name}")}, "content": content})
    }

    fn contents<'a>(objects: impl Iterator<Item = (&'a Key, &'a Arc<Object>)>) -> Vec<Value> {
        objects.map(|(_, object)| object.value().clone()).collect()
    }

    fn now(store: &Store) -> Vec<Value> {
        contents(store.range(&resource(), None, None))
    }

    proptest! {
        #[test]
        fn every_earlier_state_can_be_listed_and_replayed(writes in prop::collection::vec((0u8..6, any::<bool>(), any::<u8>()), 0..40)) {
            let mut store = Store::new(1000);
            let mut states = vec![(store.revision(), now(&store))];
            for (name, delete, content) in writes {
                let key = Key::new("", &format!("thing-{name}"));
                if !delete {
                    store.put(&resource(), thing(name, content));
                } else if store.get(&resource(), &key).is_some() {
                    store.delete(&resource(), thing(name, content));
                }
                states.push((store.revision(), now(&store)));
            }
            for (revision, state) in &states {
                let then = store.at(&resource(), *revision).unwrap();
                prop_assert_eq!(&contents(then.of(store.range(&resource(), None, None), |_| true)), state);
                prop_assert_eq!(replay(&store, *revision, state), now(&store));
            }
        }
    }

    /// `state` of `revision` with all later changes done to it.
    fn replay(store: &Store, revision: u64, state: &[Value]) -> Vec<Value> {
        let name = |value: &Value| value["metadata"]["name"].as_str().unwrap().to_owned();
        let mut objects: BTreeMap<String, Value> =
            state.iter().map(|v| (name(v), v.clone())).collect();
        for change in store.changes(&resource(), revision, usize::MAX).unwrap() {
            let value = change.object.value().clone();
            if change.gone {
                objects.remove(&name(&value))
            } else {
                objects.insert(name(&value), value)
            };
        }
        objects.into_values().collect()
    }

    #[test]
    fn what_fell_out_of_the_window_is_compacted() {
        let mut store = Store::new(2);
        let first = store.put(&resource(), thing(1, 1)).revision();
        store.put(&resource(), thing(1, 2));
        store.put(&resource(), thing(1, 3));
        assert_eq!(
            store.changes(&resource(), first - 1, 10).unwrap_err(),
            Compacted { oldest: first }
        );
        assert_eq!(store.changes(&resource(), first, 10).unwrap().len(), 2);
        store.compact();
        assert!(store.changes(&resource(), first, 10).is_err());
        assert!(store.changes(&resource(), store.revision(), 10).unwrap().is_empty());
        let idle = store.revision();
        store.put(&(String::new(), "others".to_owned()), thing(1, 1));
        store.compact();
        assert!(store.reaches(&resource(), idle).is_err(), "nobody may begin there");
        assert!(
            store.changes(&resource(), idle, 10).unwrap().is_empty(),
            "but whoever was there has missed nothing"
        );
    }

    #[test]
    fn a_namespace_is_a_range_of_its_own() {
        let mut store = Store::new(10);
        for (namespace, name) in [("b", "x"), ("a", "y"), ("ab", "z"), ("a", "x")] {
            store.put(&resource(), json!({"metadata": {"namespace": namespace, "name": name}}));
        }
        let names = |namespace, after: Option<&Key>| {
            let found = store.range(&resource(), namespace, after);
            found.map(|(k, _)| format!("{}/{}", k.namespace, k.name)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(None, None), "a/x a/y ab/z b/x");
        assert_eq!(names(Some("a"), None), "a/x a/y");
        assert_eq!(names(Some("a"), Some(&Key::new("a", "x"))), "a/y");
        assert_eq!(names(Some("c"), None), "");
    }
}
