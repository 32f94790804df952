//! The metadata's rules, the same for all kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Errors, names, same};
use crate::apiserver::{
    tree,
    resources::{Kind, NameRule},
    status::FieldError,
};

/// The bytes of all annotations together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

pub(super) fn create(kind: &Kind, new: &Value, errors: &mut Errors) {
    let metadata = tree::at(new, &["metadata"]);
    let name = tree::text(metadata, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        let complaints = match kind.names {
            NameRule::Subdomain => names::subdomain(name),
            NameRule::Label => names::label(name),
            NameRule::PathSegment => names::path_segment(name),
        };
        errors.invalid_for("metadata.name", &json!(name), complaints);
    }
    common(metadata, errors);
    finalizers(metadata, errors);
}

pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (metadata, before) = (tree::at(new, &["metadata"]), tree::at(old, &["metadata"]));
    common(metadata, errors);
    finalizers(metadata, errors);
    if !tree::text(before, &["deletionTimestamp"]).is_empty() {
        no_new_finalizers(metadata, before, errors);
    }
    for member in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (tree::at(metadata, &[member]), tree::at(before, &[member]));
        errors.immutable(&format!("metadata.{member}"), new, old);
    }
}

fn common(metadata: &Value, errors: &mut Errors) {
    for (key, value) in tree::members(metadata, &["labels"]) {
        errors.invalid_for("metadata.labels", &json!(key), names::label_key(key));
        errors.invalid_for("metadata.labels", value, names::label_value(value.as_str().unwrap_or_default()));
    }
    let mut size = 0;
    for (key, value) in tree::members(metadata, &["annotations"]) {
        errors.invalid_for("metadata.annotations", &json!(key), names::label_key(&key.to_lowercase()));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
    owner_references(metadata, errors);
}

fn owner_references(metadata: &Value, errors: &mut Errors) {
    const FIELD: &str = "metadata.ownerReferences";
    let references = tree::items(metadata, &["ownerReferences"]);
    let mut controller: Option<String> = None;
    for reference in references {
        for (member, why) in
            [("apiVersion", "version must not be empty"), ("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty")]
        {
            if tree::text(reference, &[member]).is_empty() {
                errors.push(FieldError::invalid(format!("{FIELD}.{member}"), &json!(""), why));
            }
        }
        if tree::at(reference, &["controller"]) != &json!(true) {
            continue;
        }
        let this = format!("{}/{}", tree::text(reference, &["kind"]), tree::text(reference, &["name"]));
        if let Some(first) = &controller {
            let why = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
            );
            errors.push(FieldError::invalid(FIELD, &json!(references), &why));
        } else {
            controller = Some(this);
        }
    }
}

fn finalizers(metadata: &Value, errors: &mut Errors) {
    for finalizer in tree::items(metadata, &["finalizers"]) {
        errors.invalid_for("metadata.finalizers", finalizer, names::label_key(finalizer.as_str().unwrap_or_default()));
    }
}

fn no_new_finalizers(metadata: &Value, before: &Value, errors: &mut Errors) {
    let set = |metadata: &Value| -> BTreeSet<String> {
        tree::items(metadata, &["finalizers"]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (new, old) = (set(metadata), set(before));
    let extra: Vec<String> = new.difference(&old).map(|finalizer| format!("{finalizer:?}")).collect();
    if !extra.is_empty() && !same(&json!(new), &json!(old)) {
        let found = format!("[]string{{{}}}", extra.join(", "));
        let why = format!("no new finalizers can be added if the object is being deleted, found new finalizers {found}");
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
}
