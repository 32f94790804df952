//! The kinds of `storage.k8s.io`.

use serde_json::{Value, json};

use super::{Errors, names, quantity, sign};
use crate::apiserver::{status::FieldError, tree};

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
