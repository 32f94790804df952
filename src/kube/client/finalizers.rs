//! Finalizers of a raw object: put one on, take one off, and nothing else.

use serde_json::{Value, json};

use super::edits::Edit;

/// Puts the finalizer on the object, behind those that it has.
pub fn add(object: &mut Value, finalizer: &str) -> Edit {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Edit::Nothing;
    };
    let finalizers = metadata.entry("finalizers").or_insert(Value::Null);
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    match finalizers.as_array_mut() {
        Some(finalizers) if !finalizers.iter().any(|name| name == finalizer) => {
            finalizers.push(finalizer.into());
            Edit::Write
        }
        _ => Edit::Nothing,
    }
}

/// Takes the finalizer off the object; the others stay, in their order.
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
    fn one_finalizer_comes_and_goes_beside_the_others() {
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

    #[test]
    fn what_is_no_object_is_left_as_it_is() {
        for odd in [json!(null), json!({}), json!({"metadata": {"finalizers": "ours"}})] {
            let mut object = odd.clone();
            assert_eq!(
                (add(&mut object, "ours"), remove(&mut object, "ours")),
                (Edit::Nothing, Edit::Nothing)
            );
            assert_eq!(object, odd);
        }
    }
}
