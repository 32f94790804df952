//! The rules that an object must keep, with the real server's words, for the kinds a provisioner writes; of all other
//! kinds only the metadata is looked at. Unknown fields are kept, where the real server drops those of its own kinds.

mod event;
mod metadata;
pub(crate) mod names;
mod persistent_volume;
mod persistent_volume_claim;
mod storage;

use go_fmt::quantity::Quantity;
use serde_json::Value;

use super::{
    resources::Kind,
    status::{FieldError, Status},
    tree,
};

/// What is wrong with an object.
#[derive(Debug, Default)]
pub(crate) struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds one.
    pub(crate) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// Adds an Invalid for each message about one value.
    pub(crate) fn invalid_for(&mut self, field: &str, value: &Value, messages: &[String]) {
        self.0.extend(messages.iter().map(|message| FieldError::invalid(field, value, message)));
    }

    /// A value that may not change after creation.
    pub(crate) fn immutable(&mut self, field: &str, new: &Value, old: &Value) {
        if !same(new, old) {
            self.push(FieldError::invalid(field, new, "field is immutable"));
        }
    }

    /// 422 when there is any.
    pub(crate) fn into_result(self, kind: &Kind, name: &str) -> Result<(), Status> {
        if self.0.is_empty() { Ok(()) } else { Err(Status::invalid(kind, name, &self.0)) }
    }
}

/// Equal as Go's semantic comparison has it: empty and absent are the same.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            names.into_iter().all(|name| {
                same(one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null))
            })
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(a, b))
        }
        (one, other) => one == other || tree::is_empty(one) && tree::is_empty(other),
    }
}

/// What is wrong with a new object.
pub(crate) fn create(kind: &Kind, new: &Value) -> Errors {
    let mut errors = Errors::default();
    metadata::create(kind, new, &mut errors);
    content(kind, new, &mut errors);
    errors
}

/// What is wrong with a changed object, or with its changed status.
pub(crate) fn update(kind: &Kind, new: &Value, old: &Value, status: bool) -> Errors {
    let mut errors = Errors::default();
    metadata::update(new, old, &mut errors);
    if !status {
        content(kind, new, &mut errors);
        changes(kind, new, old, &mut errors);
    }
    errors
}

fn content(kind: &Kind, new: &Value, errors: &mut Errors) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => persistent_volume::content(new, errors),
        ("", "PersistentVolumeClaim") => persistent_volume_claim::content(new, errors),
        ("", "Event") => event::content(new, errors),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::capacity(new, errors),
        ("coordination.k8s.io", "Lease") => lease(new, errors),
        _ => {}
    }
}

fn changes(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => persistent_volume::changes(new, old, errors),
        ("", "PersistentVolumeClaim") => persistent_volume_claim::changes(new, old, errors),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::capacity_changes(new, old, errors),
        _ => {}
    }
}

fn lease(new: &Value, errors: &mut Errors) {
    let seconds = tree::at(new, &["spec", "leaseDurationSeconds"]);
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            seconds,
            "must be greater than 0",
        ));
    }
    let transitions = tree::at(new, &["spec", "leaseTransitions"]);
    if transitions.as_i64().is_some_and(|transitions| transitions < 0) {
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            transitions,
            "must be greater than or equal to 0",
        ));
    }
}

/// The quantity at a place where there must be one.
fn quantity(value: &Value, field: &str, errors: &mut Errors) -> Option<Quantity> {
    match Quantity::parse(value.as_str().unwrap_or_default()) {
        Ok(quantity) => Some(quantity),
        Err(why) => {
            errors.push(FieldError::invalid(field, value, &why.to_string()));
            None
        }
    }
}

/// How an amount compares to none.
fn sign(amount: &Quantity) -> std::cmp::Ordering {
    amount.cmp(&Quantity::from_bytes(0))
}

/// The access modes of a volume or a claim.
fn access_modes(spec: &Value, missing: &str, errors: &mut Errors) {
    const FIELD: &str = "spec.accessModes";
    const SUPPORTED: [&str; 4] =
        ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = tree::items(spec, &["accessModes"]);
    if modes.is_empty() {
        errors.push(FieldError::required(FIELD, missing));
    }
    let known = |mode: &&Value| mode.as_str().is_some_and(|mode| SUPPORTED.contains(&mode));
    for mode in modes.iter().filter(|mode| !known(mode)) {
        errors.push(FieldError::not_supported(FIELD, mode, &SUPPORTED));
    }
    let once_pod = |mode: &&Value| mode.as_str() == Some("ReadWriteOncePod");
    if modes.iter().any(|mode| once_pod(&mode))
        && modes.iter().filter(known).any(|mode| !once_pod(&mode))
    {
        errors.push(FieldError::forbidden(
            FIELD,
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

/// The volume mode of a volume or a claim.
fn volume_mode(spec: &Value, errors: &mut Errors) {
    let mode = tree::at(spec, &["volumeMode"]);
    if !mode.is_null() && !matches!(mode.as_str(), Some("Block" | "Filesystem")) {
        errors.push(FieldError::not_supported("spec.volumeMode", mode, &["Block", "Filesystem"]));
    }
}

/// The name of a class, where one is given.
fn class_name(spec: &Value, member: &str, errors: &mut Errors) {
    let class = tree::at(spec, &[member]);
    if let Some(name) = class.as_str().filter(|name| !name.is_empty()) {
        errors.invalid_for(&format!("spec.{member}"), class, &names::subdomain(name));
    }
}
