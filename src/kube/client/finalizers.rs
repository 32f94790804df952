//! Adds a finalizer to a raw object, or removes one.

use serde_json::{Value, json};

use super::edits::{Edit, metadata_field};

/// Appends `finalizer` to the object's finalizers, unless it is there.
pub fn add(object: &mut Value, finalizer: &str) -> Edit {
    let finalizers = metadata_field(object, "finalizers", json!([]));
    match finalizers.and_then(Value::as_array_mut) {
        Some(finalizers) if !finalizers.iter().any(|name| name == finalizer) => {
            finalizers.push(finalizer.into());
            Edit::Write
        }
        _ => Edit::Nothing,
    }
}

/// Removes `finalizer` from the object; the others keep their order.
pub fn remove(object: &mut Value, finalizer: &str) -> Edit {
    let finalizers = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
    let Some(finalizers) = finalizers else { return Edit::Nothing };
    let before = finalizers.len();
    finalizers.retain(|name| name != finalizer);
    if finalizers.len() < before { Edit::Write } else { Edit::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_added_and_removed_and_the_others_stay() {
        for (before, with) in [
            (json!({}), json!(["ours"])),
            (json!({"finalizers": null}), json!(["ours"])),
            (json!({"finalizers": ["b", "a"]}), json!(["b", "a", "ours"])),
        ] {
            let mut object = json!({"metadata": before, "spec": {"kept": true}});
            assert_eq!(add(&mut object, "ours"), Edit::Write);
            assert_eq!(object["metadata"]["finalizers"], with);
            assert_eq!(add(&mut object, "ours"), Edit::Nothing, "again");
            assert_eq!(remove(&mut object, "ours"), Edit::Write);
            let left = before["finalizers"].as_array().cloned().unwrap_or_default();
            assert_eq!(object["metadata"]["finalizers"], Value::Array(left));
            assert_eq!(remove(&mut object, "ours"), Edit::Nothing, "again");
            assert_eq!(object["spec"], json!({"kept": true}));
        }
    }
}
