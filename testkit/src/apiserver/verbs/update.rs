//! Update and patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{State, Target, create::match_namespace};
use crate::apiserver::{
    body::decode,
    defaults,
    object::{self, Object},
    patch::Patch,
    status::{FieldError, Status},
    strategy, tree, validation,
};

/// What a write did.
#[derive(Debug)]
pub(crate) struct Written {
    /// The object as it now stands, or as it last stood.
    pub(crate) object: Arc<Object>,
    pub(crate) created: bool,
}

impl State {
    /// Replaces an object, or its status.
    pub(crate) fn update(
        &mut self,
        target: &Target,
        status: bool,
        body: Value,
    ) -> Result<Written, Status> {
        let mut new = decode(&target.kind, body)?;
        check_name(target, &new)?;
        match_namespace(target, &mut new)?;
        let found = self.store.get(&target.kind.group_resource(), &target.key).cloned();
        let Some(old) = found else { return self.create_by_update(target, status, new) };
        check_uid(target, &new, &old)?;
        check_version_given(target, &new)?;
        check_version(target, &new, &old)?;
        self.replace(target, status, new, &old)
    }

    /// Patches an object, or its status.
    pub(crate) fn patch(
        &mut self,
        target: &Target,
        status: bool,
        patch: &Patch,
    ) -> Result<Written, Status> {
        let found = self.store.get(&target.kind.group_resource(), &target.key).cloned();
        let old = found.ok_or_else(|| Status::not_found(&target.kind, &target.key.name))?;
        let mut new = decode(&target.kind, patch.apply(old.typed(&target.kind))?)?;
        check_name(target, &new)?;
        match_namespace(target, &mut new)?;
        check_version(target, &new, &old)?;
        self.replace(target, status, new, &old)
    }

    fn create_by_update(
        &mut self,
        target: &Target,
        status: bool,
        mut new: Value,
    ) -> Result<Written, Status> {
        let name = &target.key.name;
        if status || !target.kind.create_on_update {
            return Err(Status::not_found(&target.kind, name));
        }
        let uid = tree::text(&new, &["metadata", "uid"]);
        if !uid.is_empty() {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(Status::conflict(&target.kind, name, &why));
        }
        tree::remove(&mut new, &["metadata", "resourceVersion"]);
        Ok(Written { object: self.create(target, new)?, created: true })
    }

    /// The tail that all updates share: prepare, validate, store or remove.
    fn replace(
        &mut self,
        target: &Target,
        status: bool,
        mut new: Value,
        old: &Arc<Object>,
    ) -> Result<Written, Status> {
        let kind = &target.kind;
        object::strip_type(&mut new);
        defaults::apply(kind, &mut new);
        strategy::prepare_for_update(kind, &mut new, old.value(), status);
        validation::update(kind, &new, old.value(), status).into_result(kind, &target.key.name)?;
        tree::copy(&mut new, old.value(), &["metadata", "resourceVersion"]);
        let object = if may_go(&new) {
            self.finish(target, new.clone());
            // Answered as it was before its end, whose version only the watch delivers.
            Arc::new(Object::new(new, old.revision()))
        } else if &new == old.value() {
            // A write that changes nothing keeps the resourceVersion and is delivered by no watch.
            Arc::clone(old)
        } else {
            self.put(target, new)
        };
        Ok(Written { object, created: false })
    }
}

/// Whether an object waits for nothing but its last finalizer's removal, which has come.
fn may_go(object: &Value) -> bool {
    let metadata = tree::at(object, &["metadata"]);
    !tree::text(metadata, &["deletionTimestamp"]).is_empty()
        && tree::items(metadata, &["finalizers"]).is_empty()
}

fn check_name(target: &Target, new: &Value) -> Result<(), Status> {
    let (name, expected) = (tree::text(new, &["metadata", "name"]), &target.key.name);
    if name == expected || name.is_empty() && tree::at(new, &["metadata", "uid"]).is_null() {
        return Ok(());
    }
    let message =
        format!("the name of the object ({name}) does not match the name on the URL ({expected})");
    Err(Status::bad_request(message))
}

fn check_uid(target: &Target, new: &Value, old: &Object) -> Result<(), Status> {
    let (given, is) = (tree::text(new, &["metadata", "uid"]), old.meta("uid"));
    if given.is_empty() || given == is {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {given}, UID in object meta: {is}");
    Err(Status::conflict(&target.kind, &target.key.name, &why))
}

fn check_version_given(target: &Target, new: &Value) -> Result<(), Status> {
    if target.kind.unconditional_update
        || !tree::text(new, &["metadata", "resourceVersion"]).is_empty()
    {
        return Ok(());
    }
    let error = FieldError::invalid(
        "metadata.resourceVersion",
        &json!(0),
        "must be specified for an update",
    );
    Err(Status::invalid(&target.kind, &target.key.name, &[error]))
}

fn check_version(target: &Target, new: &Value, old: &Object) -> Result<(), Status> {
    let given = tree::text(new, &["metadata", "resourceVersion"]);
    if given.is_empty() || given == "0" || given == old.meta("resourceVersion") {
        return Ok(());
    }
    Err(Status::modified(&target.kind, &target.key.name))
}
