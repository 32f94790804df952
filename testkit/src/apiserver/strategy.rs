//! Which part of an object a request may write, and what only the server writes: the `PrepareForCreate` and
//! `PrepareForUpdate` of the real server's strategies.

use serde_json::{Value, json};

use super::{resources::Kind, tree};

/// Members of the metadata that clients can't change.
const SERVER_OWNED: [&str; 3] = ["creationTimestamp", "selfLink", "managedFields"];

/// Makes a new object what a create may make it.
pub(crate) fn prepare_for_create(kind: &Kind, object: &mut Value, uid: &str, now: &str) {
    tree::set(object, &["metadata", "uid"], json!(uid));
    tree::set(object, &["metadata", "creationTimestamp"], json!(now));
    for member in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generation",
    ] {
        tree::remove(object, &["metadata", member]);
    }
    if kind.generation {
        tree::set(object, &["metadata", "generation"], json!(1));
    }
    drop_empty(object);
    initial_status(kind, object, now);
}

fn initial_status(kind: &Kind, object: &mut Value, now: &str) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        // A node's status is taken from its creator.
        ("", "Node") => {}
        ("", "PersistentVolume" | "PersistentVolumeClaim" | "Pod") => {
            tree::set(object, &["status"], json!({"phase": "Pending"}));
        }
        ("", "Namespace") => {
            tree::set(object, &["status"], json!({"phase": "Active"}));
            tree::set(object, &["spec"], json!({"finalizers": ["kubernetes"]}));
        }
        ("storage.k8s.io", "VolumeAttachment") => {
            tree::set(object, &["status"], json!({"attached": false}));
        }
        (super::resources::EXTENSIONS, _) => {
            tree::set(object, &["status"], established(object, now));
        }
        ("apps", _) => tree::set(object, &["status"], json!({"replicas": 0})),
        _ if kind.status => {
            tree::remove(object, &["status"]);
        }
        _ => {}
    }
}

/// The status of a `CustomResourceDefinition`, whose kind is served at once here.
fn established(definition: &Value, now: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message});
    let versions = tree::items(definition, &["spec", "versions"])
        .iter()
        .filter(|v| tree::at(v, &["storage"]) == &json!(true));
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
    drop_empty(new);
}

/// Empty members of the metadata are absent, as in the real server's answers.
fn drop_empty(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !tree::is_empty(value));
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
