//! The objects, and for each kind the window of its latest changes, from which watches and lists of earlier states
//! are served. Revisions only rise, every write is one change, and what the window no longer holds is reported as
//! compacted.

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
    pub(crate) fn reaches(&self, resource: &GroupResource, revision: u64) -> Result<(), Compacted> {
        let oldest =
            self.tables.get(resource).map_or(0, |table| table.forgotten).max(self.compacted);
        if revision < oldest { Err(Compacted { oldest }) } else { Ok(()) }
    }

    /// The objects of a kind as they were at `revision`.
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
