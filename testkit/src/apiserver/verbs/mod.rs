//! What each verb does to the store, with the real server's order of checks and words. A write is done wholly or not
//! at all.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod update;

use std::{collections::VecDeque, sync::Arc};

use serde_json::Value;

use super::{
    chance::Chance,
    object::{Key, Object},
    resources::{EXTENSIONS, Kind, Kinds},
    status::Status,
    store::Store,
    tree,
};

/// All that requests read and write.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) chance: Chance,
    pub(crate) page: usize,
    pub(crate) lists: VecDeque<list::Begun>,
}

/// The object a request is about, and when it came.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The kind in the version of the request's path.
    pub(crate) kind: Arc<Kind>,
    /// Namespace and name; either empty where the path has none.
    pub(crate) key: Key,
    /// The time of the request, as it is written into objects.
    pub(crate) now: String,
}

impl State {
    /// The object a request is about.
    pub(crate) fn get(&self, target: &Target) -> Result<&Arc<Object>, Status> {
        let found = self.store.get(&target.kind.group_resource(), &target.key);
        found.ok_or_else(|| Status::not_found(&target.kind, &target.key.name))
    }

    /// Stores an object and does what follows from it.
    fn put(&mut self, target: &Target, value: Value) -> Arc<Object> {
        if target.kind.group == EXTENSIONS {
            self.kinds.define(&value);
        }
        self.store.put(&target.kind.group_resource(), value)
    }

    /// Removes an object and does what follows from it.
    fn remove(&mut self, target: &Target, value: Value) -> Arc<Object> {
        if target.kind.group == EXTENSIONS {
            self.remove_instances(tree::text(&value, &["metadata", "name"]));
        }
        self.store.delete(&target.kind.group_resource(), value)
    }

    /// With its definition, all objects of a kind go, finalizers or not.
    fn remove_instances(&mut self, definition: &str) {
        for kind in self.kinds.undefine(definition) {
            let resource = kind.group_resource();
            let values: Vec<Value> = self
                .store
                .range(&resource, None)
                .map(|(_, object)| object.value().clone())
                .collect();
            for value in values {
                self.store.delete(&resource, value);
            }
        }
    }
}
