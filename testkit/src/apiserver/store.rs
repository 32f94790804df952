//! The objects, and for each kind the window of its latest changes, from which watches are served. Revisions only
//! rise, every write is one change, and what the window no longer holds is reported as compacted.

use std::{
    collections::{BTreeMap, VecDeque},
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

    /// The objects of a kind, of one namespace or all, in order.
    pub(crate) fn range<'a>(
        &'a self,
        resource: &GroupResource,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + use<'a> {
        let first = Key::new(namespace.unwrap_or_default(), "");
        let table = self.tables.get(resource).into_iter();
        table
            .flat_map(move |table| table.objects.range(first.clone()..))
            .take_while(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
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

    fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, Compacted> {
        if revision < self.forgotten {
            return Err(Compacted { oldest: self.forgotten });
        }
        let first = self.changes.partition_point(|change| change.revision() <= revision);
        Ok(self.changes.range(first..))
    }
}
