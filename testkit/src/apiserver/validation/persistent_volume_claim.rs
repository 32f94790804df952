//! `PersistentVolumeClaims`.

use go_fmt::quantity::Quantity;
use serde_json::{Value, json};

use super::{Errors, access_modes, class_name, names, quantity, same, sign, volume_mode};
use crate::apiserver::{status::FieldError, tree};

const SIZE: [&str; 4] = ["spec", "resources", "requests", "storage"];

pub(super) fn content(new: &Value, errors: &mut Errors) {
    let spec = tree::at(new, &["spec"]);
    access_modes(spec, "at least 1 access mode is required", errors);
    size(new, errors);
    class_name(spec, "storageClassName", errors);
    volume_mode(spec, errors);
    for member in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.get(member).filter(|source| !source.is_null()) {
            data_source(source, &format!("spec.{member}"), errors);
        }
    }
    matching_sources(spec, errors);
    class_name(spec, "volumeAttributesClassName", errors);
}

fn size(new: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.resources[storage]";
    let size = tree::at(new, &SIZE);
    if size.is_null() {
        errors.push(FieldError::required(FIELD, ""));
        return;
    }
    if quantity(size, FIELD, errors).is_some_and(|size| sign(&size).is_le()) {
        errors.push(FieldError::invalid(FIELD, size, "must be greater than zero"));
    }
}

fn data_source(source: &Value, field: &str, errors: &mut Errors) {
    for member in ["name", "kind"] {
        if tree::text(source, &[member]).is_empty() {
            errors.push(FieldError::required(format!("{field}.{member}"), ""));
        }
    }
    let (group, kind) = (tree::text(source, &["apiGroup"]), tree::at(source, &["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(field, kind, why));
    }
    if !group.is_empty() {
        errors.invalid_for(&format!("{field}.apiGroup"), &json!(group), &names::subdomain(group));
    }
    let namespace = tree::text(source, &["namespace"]);
    if !namespace.is_empty() {
        errors.invalid_for(
            &format!("{field}.namespace"),
            &json!(namespace),
            &names::label(namespace),
        );
    }
}

fn matching_sources(spec: &Value, errors: &mut Errors) {
    let (source, reference) = (tree::at(spec, &["dataSource"]), tree::at(spec, &["dataSourceRef"]));
    if source.is_null() || reference.is_null() {
        return;
    }
    let equal = ["apiGroup", "kind", "name"]
        .iter()
        .all(|member| source.get(*member) == reference.get(*member));
    let why = if !tree::text(reference, &["namespace"]).is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if equal {
        return;
    } else {
        "must match dataSourceRef"
    };
    errors.push(FieldError::invalid("spec", &json!("dataSource"), why));
}

pub(super) fn changes(new: &Value, old: &Value, errors: &mut Errors) {
    let bound = tree::text(new, &["status", "phase"]) == "Bound";
    let mut allowed = tree::at(old, &["spec"]).clone();
    let spec = tree::at(new, &["spec"]);
    for path in changeable(new, old, bound) {
        tree::copy(&mut allowed, spec, path);
    }
    if !same(spec, &allowed) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
    shrinking(new, old, errors);
    errors.immutable(
        "volumeMode",
        tree::at(new, &["spec", "volumeMode"]),
        tree::at(old, &["spec", "volumeMode"]),
    );
}

/// The parts of the specification that may change now: the volume's name once, the class from
/// none, size and attributes of a bound claim.
fn changeable(new: &Value, old: &Value, bound: bool) -> Vec<&'static [&'static str]> {
    let mut paths: Vec<&[&str]> = Vec::new();
    if tree::text(old, &["spec", "volumeName"]).is_empty() {
        paths.push(&["volumeName"]);
    }
    let class = tree::at(new, &["spec", "storageClassName"]);
    let annotated =
        tree::at(old, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    let from_none = tree::at(old, &["spec", "storageClassName"]).is_null() && !class.is_null();
    if from_none && (annotated.is_null() || annotated == class) {
        paths.push(&["storageClassName"]);
    }
    if bound {
        paths.extend([
            &["resources", "requests", "storage"] as &[&str],
            &["volumeAttributesClassName"],
        ]);
    }
    paths
}

fn shrinking(new: &Value, old: &Value, errors: &mut Errors) {
    let read = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    let (Some(size), Some(before)) = (read(tree::at(new, &SIZE)), read(tree::at(old, &SIZE)))
    else {
        return;
    };
    let kept = read(tree::at(old, &["status", "capacity", "storage"]));
    if size < before && kept.is_some_and(|kept| size <= kept) {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
}
