//! Reads, sets and removes an annotation of a raw object.

use serde_json::{Value, json};

use super::edits::{Edit, metadata_field};

/// The annotation's text; empty if there is none.
pub fn get<'a>(object: &'a Value, name: &str) -> &'a str {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|it| it.get(name)?.as_str()).unwrap_or_default()
}

/// Sets the annotation to `text`, unless that is its text.
pub fn set(object: &mut Value, name: &str, text: &str) -> Edit {
    let annotations = metadata_field(object, "annotations", json!({}));
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
        return Edit::Nothing;
    };
    match annotations.insert(name.to_owned(), text.into()) {
        Some(before) if before == text => Edit::Nothing,
        _ => Edit::Write,
    }
}

/// Removes the annotation.
pub fn remove(object: &mut Value, name: &str) -> Edit {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    match annotations.and_then(|annotations| annotations.remove(name)) {
        Some(_) => Edit::Write,
        None => Edit::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_set_and_removed_and_the_others_stay() {
        for before in [json!({}), json!({"annotations": null}), json!({"annotations": {"a": "b"}})]
        {
            let mut object = json!({"metadata": before, "spec": {"kept": true}});
            assert_eq!(get(&object, "ours"), "");
            assert_eq!(set(&mut object, "ours", "x"), Edit::Write);
            assert_eq!(set(&mut object, "ours", "x"), Edit::Nothing, "again");
            assert_eq!(set(&mut object, "ours", "y"), Edit::Write);
            assert_eq!(get(&object, "ours"), "y");
            assert_eq!(remove(&mut object, "ours"), Edit::Write);
            assert_eq!(remove(&mut object, "ours"), Edit::Nothing, "again");
            assert_eq!(object["metadata"]["annotations"]["a"], before["annotations"]["a"]);
            assert_eq!(object["spec"], json!({"kept": true}));
        }
    }
}
