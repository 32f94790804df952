//! Events.

use serde_json::{Value, json};

use super::Errors;
use crate::apiserver::{tree, status::FieldError};

/// An event stands in its object's namespace; one about an object without, in `default`.
pub(super) fn content(new: &Value, errors: &mut Errors) {
    let namespace = tree::text(new, &["metadata", "namespace"]);
    let involved = tree::text(new, &["involvedObject", "namespace"]);
    if namespace != involved && !(involved.is_empty() && namespace == "default") {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &json!(involved), why));
    }
}
