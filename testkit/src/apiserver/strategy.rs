//! What the server does to an object before it is stored.
//!
//! Owns which part of an object a request may write: a create starts without status, an update
//! of the object leaves its status alone and the other way round; and what only the server
//! writes. Follows the `PrepareForCreate`/`PrepareForUpdate` of the real server's strategies.

use serde_json::{Value, json};

use super::{tree, resources::Kind};

/// Members of the metadata that clients can't change.
const SERVER_OWNED: [&str; 3] = ["creationTimestamp", "selfLink", "managedFields"];

/// Makes a new object what a create may make it.
pub(crate) fn prepare_for_create(kind: &Kind, object: &mut Value, uid: String, now: &str) {
    tree::set(object, &["metadata", "uid"], json!(uid));
    tree::set(object, &["metadata", "creationTimestamp"], json!(now));
    for member in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields", "generation"] {
        tree::remove(object, &["metadata", member]);
    }
    if kind.generation {
        tree::set(object, &["metadata", "generation"], json!(1));
    }
    initial_status(kind, object, now);
}

fn initial_status(kind: &Kind, object: &mut Value, now: &str) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        // A node's status is taken from its creator.
        ("", "Node") => {}
        ("", "PersistentVolume" | "PersistentVolumeClaim" | "Pod") => tree::set(object, &["status"], json!({"phase": "Pending"})),
        ("", "Namespace") => {
            tree::set(object, &["status"], json!({"phase": "Active"}));
            tree::set(object, &["spec"], json!({"finalizers": ["kubernetes"]}));
        }
        ("storage.k8s.io", "VolumeAttachment") => tree::set(object, &["status"], json!({"attached": false})),
        (super::resources::EXTENSIONS, _) => tree::set(object, &["status"], established(object, now)),
        ("apps", _) => tree::set(object, &["status"], json!({"replicas": 0})),
        _ if kind.status => {
            tree::remove(object, &["status"]);
        }
        _ => {}
    }
}

/// The status of a CustomResourceDefinition, whose kind is served at once here.
fn established(definition: &Value, now: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message})
    };
    let versions = tree::items(definition, &["spec", "versions"]).iter().filter(|v| tree::at(v, &["storage"]) == &json!(true));
    let stored: Vec<&Value> = versions.map(|version| tree::at(version, &["name"])).collect();
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": tree::at(definition, &["spec", "names"]),
        "storedVersions": stored,
    })
}

/// Makes a changed object what an update of the object, or of its status, may make of the old one.
pub(crate) fn prepare_for_update(kind: &Kind, new: &mut Value, old: &Value, status: bool) {
    if status {
        keep_all_but_status(kind, new, old);
    } else if kind.status {
        tree::copy(new, old, &["status"]);
    }
    restore_metadata(new, old);
    if kind.generation {
        let raised = i64::from(spec_changed(kind, new, old));
        let generation = tree::at(old, &["metadata", "generation"]).as_i64().unwrap_or(0);
        tree::set(new, &["metadata", "generation"], json!(generation + raised));
    }
}

/// A status update of a custom kind can't touch the metadata; one of a built-in kind can.
fn keep_all_but_status(kind: &Kind, new: &mut Value, old: &Value) {
    let mut kept = old.clone();
    tree::copy(&mut kept, new, &["status"]);
    if kind.custom {
        tree::copy(&mut kept, new, &["metadata", "resourceVersion"]);
    } else {
        tree::copy(&mut kept, new, &["metadata"]);
    }
    *new = kept;
}

fn restore_metadata(new: &mut Value, old: &Value) {
    for member in SERVER_OWNED {
        tree::copy(new, old, &["metadata", member]);
    }
    for member in ["uid", "deletionGracePeriodSeconds"] {
        tree::set_default(new, &["metadata", member], tree::at(old, &["metadata", member]).clone());
    }
    if !tree::at(old, &["metadata", "deletionTimestamp"]).is_null() {
        tree::copy(new, old, &["metadata", "deletionTimestamp"]);
    }
    tree::copy(new, old, &["metadata", "generation"]);
    drop_nulls(new);
}

/// Members a client set to null are absent, as in the typed objects of the real server.
fn drop_nulls(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !super::tree::is_empty(value) || value.is_boolean() || value.is_number());
    }
}

/// Whether anything changed that raises the generation.
fn spec_changed(kind: &Kind, new: &Value, old: &Value) -> bool {
    if !kind.custom {
        return tree::at(new, &["spec"]) != tree::at(old, &["spec"]);
    }
    let content = |object: &Value| {
        let mut object = object.clone();
        for member in ["metadata", "status", "kind", "apiVersion"] {
            tree::remove(&mut object, &[member]);
        }
        object
    };
    content(new) != content(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::resources::{Kinds, ServerVersion};

    fn update(kind: &str, new: &Value, old: &Value, status: bool) -> Value {
        let kinds = Kinds::of(ServerVersion::default());
        let mut new = new.clone();
        prepare_for_update(kinds.by_name(kind).unwrap(), &mut new, old, status);
        new
    }

    #[test]
    fn an_update_writes_the_object_or_its_status_never_both() {
        let old = json!({"metadata": {"name": "x", "uid": "u", "labels": {"a": "1"}}, "spec": {"s": 1}, "status": {"phase": "Pending"}});
        let new = json!({"metadata": {"name": "x", "labels": {"a": "2"}}, "spec": {"s": 2}, "status": {"phase": "Bound"}});
        let whole = update("PersistentVolume", &new, &old, false);
        assert_eq!((&whole["spec"]["s"], &whole["status"]["phase"]), (&json!(2), &json!("Pending")));
        let status = update("PersistentVolume", &new, &old, true);
        assert_eq!((&status["spec"]["s"], &status["status"]["phase"]), (&json!(1), &json!("Bound")));
        assert_eq!(status["metadata"], json!({"name": "x", "uid": "u", "labels": {"a": "2"}}));
    }

    #[test]
    fn a_kind_without_status_subresource_is_written_as_a_whole() {
        let old = json!({"metadata": {"name": "x"}, "spec": {"a": 1}, "status": {"s": 1}});
        let new = json!({"metadata": {"name": "x"}, "spec": {"a": 1}, "status": {"s": 2}});
        assert_eq!(update("Lease", &new, &old, false)["status"]["s"], 2);
    }

    #[test]
    fn what_the_server_owns_is_restored() {
        let old = json!({"metadata": {"name": "x", "uid": "u", "creationTimestamp": "t", "deletionTimestamp": "d", "deletionGracePeriodSeconds": 0}});
        let new = json!({"metadata": {"name": "x", "creationTimestamp": "other", "finalizers": null, "labels": {}}});
        assert_eq!(update("Secret", &new, &old, false), old);
    }
}
