//! Create.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{State, Target};
use crate::apiserver::{
    body::decode,
    defaults,
    object::{self, Key, Object},
    status::Status,
    strategy, tree, validation,
};

/// How often another name is tried when a generated one is taken.
const NAME_TRIES: usize = 8;

impl State {
    /// Creates an object.
    pub(crate) fn create(&mut self, target: &Target, body: Value) -> Result<Arc<Object>, Status> {
        let mut new = decode(&target.kind, body)?;
        match_namespace(target, &mut new)?;
        if !tree::text(&new, &["metadata", "resourceVersion"]).is_empty() {
            return Err(Status::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.check_namespace(target, &new)?;
        self.generate_name(target, &mut new);
        defaults::apply(&target.kind, &mut new);
        let uid = self.chance.uid();
        strategy::prepare_for_create(&target.kind, &mut new, &uid, &target.now);
        object::strip_type(&mut new);
        let name = tree::text(&new, &["metadata", "name"]).to_owned();
        validation::create(&target.kind, &new).into_result(&target.kind, &name)?;
        if self
            .store
            .get(&target.kind.group_resource(), &Key::new(&target.key.namespace, &name))
            .is_some()
        {
            return Err(Status::already_exists(&target.kind, &name));
        }
        Ok(self.put(target, new))
    }

    fn generate_name(&mut self, target: &Target, new: &mut Value) {
        let prefix = tree::text(new, &["metadata", "generateName"]).to_owned();
        if prefix.is_empty() || !tree::text(new, &["metadata", "name"]).is_empty() {
            return;
        }
        // 63 characters in all: what is longer than 58 is cut.
        let prefix: String = prefix.chars().take(58).collect();
        let resource = target.kind.group_resource();
        let mut name = String::new();
        for _ in 0..NAME_TRIES {
            name = format!("{prefix}{}", self.chance.suffix());
            if self.store.get(&resource, &Key::new(&target.key.namespace, &name)).is_none() {
                break;
            }
        }
        tree::set(new, &["metadata", "name"], json!(name));
    }

    /// Nothing is created in a namespace that is not there or is going.
    fn check_namespace(&self, target: &Target, new: &Value) -> Result<(), Status> {
        let namespace = &target.key.namespace;
        if !target.kind.namespaced {
            return Ok(());
        }
        let Some(kind) = self.kinds.by_name("Namespace") else { return Ok(()) };
        let found = self.store.get(&kind.group_resource(), &Key::new("", namespace));
        let found = found.ok_or_else(|| Status::not_found(kind, namespace))?;
        if found.meta("deletionTimestamp").is_empty() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Err(Status::forbidden(&target.kind, tree::text(new, &["metadata", "name"]), &why))
    }
}

/// The body's namespace must be the request's; an absent one becomes it.
pub(super) fn match_namespace(target: &Target, body: &mut Value) -> Result<(), Status> {
    let namespace = tree::text(body, &["metadata", "namespace"]);
    if !namespace.is_empty() && namespace != target.key.namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    if target.kind.namespaced {
        tree::set(body, &["metadata", "namespace"], json!(target.key.namespace));
    } else {
        tree::remove(body, &["metadata", "namespace"]);
    }
    Ok(())
}
