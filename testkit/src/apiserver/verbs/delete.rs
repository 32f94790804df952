//! Delete and deletecollection, and the end of objects that waited for finalizers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{State, Target};
use crate::apiserver::{
    object::{Key, Object},
    resources::Kind,
    selectors::Selection,
    status::Status,
    tree,
};

/// What a DELETE asks for besides the object. A grace period and a propagation policy are
/// overlooked: nothing here takes time to stop, and nothing collects dependants.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the body of a DELETE; null for none.
    pub(crate) fn parse(body: &Value) -> Result<Self, Status> {
        if !body.is_null() && !body.is_object() {
            return Err(Status::bad_request(
                "the object provided is unrecognized (must be of type DeleteOptions)",
            ));
        }
        let precondition =
            |member| tree::at(body, &["preconditions", member]).as_str().map(str::to_owned);
        Ok(Self { uid: precondition("uid"), resource_version: precondition("resourceVersion") })
    }

    fn check(&self, target: &Target, object: &Object) -> Result<(), Status> {
        let (uid, version) = (object.meta("uid"), object.meta("resourceVersion"));
        let why = match (&self.uid, &self.resource_version) {
            (Some(given), _) if given != uid => format!(
                "the UID in the precondition ({given}) does not match the UID in record ({uid}). \
                 The object might have been deleted and then recreated"
            ),
            (_, Some(given)) if given != version => format!(
                "the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({version}). \
                 The object might have been modified"
            ),
            _ => return Ok(()),
        };
        Err(Status::conflict(&target.kind, &target.key.name, &why))
    }
}

/// What a DELETE came to.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// The object: as it waits now, or as it last was.
    pub(crate) object: Arc<Object>,
    pub(crate) gone: bool,
}

impl Deleted {
    /// What the server answers: the object, or a Status that names it.
    pub(crate) fn answer(&self, kind: &Kind) -> Value {
        if !self.gone || kind.returns_deleted {
            return self.object.typed(kind);
        }
        let mut details = json!({"name": self.object.meta("name"), "kind": kind.plural, "uid": self.object.meta("uid")});
        if !kind.group.is_empty() {
            tree::set(&mut details, &["group"], json!(kind.group));
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}

impl State {
    /// Deletes an object, or marks it when finalizers hold it.
    pub(crate) fn delete(
        &mut self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let object = Arc::clone(self.get(target)?);
        options.check(target, &object)?;
        let mut value = object.value().clone();
        if target.kind.is("", "Namespace") {
            self.empty_namespace(target);
        }
        if !self.is_held(target, &value) {
            return Ok(Deleted { object: self.finish(target, value), gone: true });
        }
        if !object.meta("deletionTimestamp").is_empty() {
            return Ok(Deleted { object, gone: false });
        }
        mark(target, &mut value);
        Ok(Deleted { object: self.put(target, value), gone: false })
    }

    /// Deletes what a selection selects in a namespace, or in all; gives what it came to.
    pub(crate) fn delete_collection(
        &mut self,
        target: &Target,
        selection: &Selection,
        options: &DeleteOptions,
    ) -> Vec<Arc<Object>> {
        let namespace = Some(target.key.namespace.as_str()).filter(|ns| !ns.is_empty());
        let objects = self.store.range(&target.kind.group_resource(), namespace);
        let keys: Vec<Key> = objects
            .filter(|(_, o)| selection.matches(o.value()))
            .map(|(key, _)| key.clone())
            .collect();
        let one = |key| Target { key, ..target.clone() };
        keys.into_iter()
            .filter_map(|key| self.delete(&one(key), options).ok())
            .map(|deleted| deleted.object)
            .collect()
    }

    /// Removes an object that nothing holds any more.
    pub(super) fn finish(&mut self, target: &Target, value: Value) -> Arc<Object> {
        let removed = self.remove(target, value);
        self.finish_namespace(target);
        removed
    }

    fn is_held(&self, target: &Target, value: &Value) -> bool {
        let finalizers = !tree::items(value, &["metadata", "finalizers"]).is_empty();
        finalizers || target.kind.is("", "Namespace") && self.has_content(&target.key.name)
    }

    // === Namespaces ===
    // The namespace controller's part: its content goes first.

    fn empty_namespace(&mut self, target: &Target) {
        let kinds: Vec<Arc<Kind>> =
            self.kinds.iter().filter(|kind| kind.namespaced).cloned().collect();
        for kind in kinds {
            let within = Target { kind, key: Key::new(&target.key.name, ""), ..target.clone() };
            self.delete_collection(&within, &Selection::default(), &DeleteOptions::default());
        }
    }

    fn has_content(&self, namespace: &str) -> bool {
        let mut kinds = self.kinds.iter().filter(|kind| kind.namespaced);
        kinds.any(|kind| self.store.range(&kind.group_resource(), Some(namespace)).next().is_some())
    }

    /// A namespace that was going goes with the last object in it.
    fn finish_namespace(&mut self, target: &Target) {
        let namespace = &target.key.namespace;
        if !target.kind.namespaced {
            return;
        }
        let Some(kind) = self.kinds.by_name("Namespace").cloned() else { return };
        let key = Key::new("", namespace);
        let Some(found) = self.store.get(&kind.group_resource(), &key).cloned() else { return };
        if !found.meta("deletionTimestamp").is_empty() && !self.has_content(namespace) {
            self.store.delete(&kind.group_resource(), found.value().clone());
        }
    }
}

/// Marks an object as deleted; it waits for its finalizers.
fn mark(target: &Target, value: &mut Value) {
    tree::set(value, &["metadata", "deletionTimestamp"], json!(target.now));
    tree::set(value, &["metadata", "deletionGracePeriodSeconds"], json!(0));
    if let Some(generation) =
        tree::at(value, &["metadata", "generation"]).as_i64().filter(|g| *g > 0)
    {
        tree::set(value, &["metadata", "generation"], json!(generation + 1));
    }
    if target.kind.is("", "Namespace") {
        tree::set(value, &["status", "phase"], json!("Terminating"));
    }
}
