//! The kinds of `storage.k8s.io`.

use serde_json::{Value, json};

use super::{Errors, names, quantity, sign};
use crate::apiserver::{status::FieldError, tree};

pub(super) fn class(new: &Value, errors: &mut Errors) {
    if tree::text(new, &["provisioner"]).is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    }
    one_of(new, "reclaimPolicy", &["Delete", "Retain"], errors);
    one_of(new, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], errors);
    for (i, term) in tree::items(new, &["allowedTopologies"]).iter().enumerate() {
        topology_term(term, &format!("allowedTopologies[{i}]"), errors);
    }
}

fn one_of(new: &Value, member: &str, supported: &[&str], errors: &mut Errors) {
    let value = tree::at(new, &[member]);
    if !value.as_str().is_some_and(|value| supported.contains(&value)) {
        errors.push(FieldError::not_supported(member, value, supported));
    }
}

fn topology_term(term: &Value, field: &str, errors: &mut Errors) {
    let expressions = tree::items(term, &["matchLabelExpressions"]);
    if expressions.is_empty() {
        errors.push(FieldError::required(format!("{field}.matchLabelExpressions"), ""));
    }
    for (i, expression) in expressions.iter().enumerate() {
        let field = format!("{field}.matchLabelExpressions[{i}]");
        let key = tree::text(expression, &["key"]);
        errors.invalid_for(&format!("{field}.key"), &json!(key), &names::label_key(key));
        let values = tree::items(expression, &["values"]);
        if values.is_empty() {
            errors.push(FieldError::required(format!("{field}.values"), ""));
        }
        for (j, value) in values
            .iter()
            .enumerate()
            .filter(|(j, value)| values.iter().take(*j).any(|earlier| earlier == *value))
        {
            errors.push(FieldError::duplicate(format!("{field}.values[{j}]"), value));
        }
    }
}

pub(super) fn class_changes(new: &Value, old: &Value, errors: &mut Errors) {
    for (member, why) in [
        ("parameters", "updates to parameters are forbidden."),
        ("provisioner", "updates to provisioner are forbidden."),
    ] {
        if !super::same(tree::at(new, &[member]), tree::at(old, &[member])) {
            errors.push(FieldError::forbidden(member, why));
        }
    }
    for member in ["reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(member, tree::at(new, &[member]), tree::at(old, &[member]));
    }
}

pub(super) fn attributes_class_changes(new: &Value, old: &Value, errors: &mut Errors) {
    for member in ["driverName", "parameters"] {
        errors.immutable(member, tree::at(new, &[member]), tree::at(old, &[member]));
    }
}

pub(super) fn capacity(new: &Value, errors: &mut Errors) {
    let class = tree::at(new, &["storageClassName"]);
    let name = class.as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required("storageClassName", ""));
    } else {
        errors.invalid_for("storageClassName", class, &names::subdomain(name));
    }
    for (key, value) in tree::members(new, &["nodeTopology", "matchLabels"]) {
        errors.invalid_for("nodeTopology.matchLabels", &json!(key), &names::label_key(key));
        errors.invalid_for(
            "nodeTopology.matchLabels",
            value,
            &names::label_value(value.as_str().unwrap_or_default()),
        );
    }
    for member in ["capacity", "maximumVolumeSize"] {
        let value = tree::at(new, &[member]);
        if !value.is_null()
            && quantity(value, member, errors).is_some_and(|size| sign(&size).is_lt())
        {
            errors.push(FieldError::invalid(member, value, "must be greater than or equal to 0"));
        }
    }
}

pub(super) fn capacity_changes(new: &Value, old: &Value, errors: &mut Errors) {
    for member in ["nodeTopology", "storageClassName"] {
        errors.immutable(member, tree::at(new, &[member]), tree::at(old, &[member]));
    }
}
