//! The quantities of objects: the server puts Go's spelling into every typed object that it stores.

use go_fmt::quantity::Quantity;
use serde_json::Value;

use super::{resources::Kind, tree};

/// Where the kind's quantities stand: a path to one, or to a list of resources.
fn places(kind: &Kind) -> &'static [&'static [&'static str]] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => &[&["spec", "capacity"]],
        ("", "PersistentVolumeClaim") => &[
            &["spec", "resources", "requests"],
            &["spec", "resources", "limits"],
            &["status", "capacity"],
            &["status", "allocatedResources"],
        ],
        ("", "Node") => &[&["status", "capacity"], &["status", "allocatable"]],
        ("storage.k8s.io", "CSIStorageCapacity") => &[&["capacity"], &["maximumVolumeSize"]],
        _ => &[],
    }
}

/// The quantities of an object, as they are written.
pub(crate) fn quantities<'a>(kind: &Kind, object: &'a Value) -> impl Iterator<Item = &'a Value> {
    places(kind).iter().map(|path| tree::at(object, path)).flat_map(|place| match place {
        Value::Object(list) => list.values().collect(),
        one => vec![one],
    })
}

/// Rewrites the quantities of an object as Go spells them; what is none stays, to be refused.
pub(crate) fn canonicalize(kind: &Kind, object: &mut Value) {
    for path in places(kind) {
        match tree::at_mut(object, path) {
            Some(Value::Object(list)) => list.values_mut().for_each(respell),
            Some(one) => respell(one),
            None => {}
        }
    }
}

fn respell(field: &mut Value) {
    let text = match field {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Ok(quantity) = Quantity::parse(&text) {
        *field = Value::String(quantity.to_string());
    }
}
