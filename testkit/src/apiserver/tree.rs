//! Small ways into JSON values, by a path of member names. What is absent or of another type reads as empty.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The member at `path`; null when any step is absent.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().try_fold(value, |value, step| value.get(step)).unwrap_or(&NULL)
}

/// The member at `path` when all steps are there.
pub(crate) fn at_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| value.get_mut(step))
}

/// The string at `path`; empty when absent.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The elements of the array at `path`; none when absent.
pub(crate) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The members of the object at `path`; none when absent.
pub(crate) fn members<'a>(
    value: &'a Value,
    path: &[&str],
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    at(value, path).as_object().into_iter().flatten()
}

/// Whether the value says nothing: absent, null, or an empty string, array or object.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The member `name` of `value`, which becomes an object when it is none.
fn member<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    &mut value[name]
}

/// Sets the member at `path`, making the objects on the way.
pub(crate) fn set(value: &mut Value, path: &[&str], new: Value) {
    match path {
        [] => *value = new,
        [first, rest @ ..] => set(member(value, first), rest, new),
    }
}

/// Takes away all members that are null, at any depth; elements of arrays stay.
pub(crate) fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

/// Sets the member at `path` where nothing, or null, stands.
pub(crate) fn set_default(value: &mut Value, path: &[&str], default: Value) {
    if at(value, path).is_null() {
        set(value, path, default);
    }
}

/// Takes the member at `path` away and gives it.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    at_mut(value, parents)?.as_object_mut()?.remove(*last)
}

/// Makes the member at `path` what `source` has there: also absent.
pub(crate) fn copy(value: &mut Value, source: &Value, path: &[&str]) {
    match at(source, path) {
        Value::Null => {
            remove(value, path);
        }
        found => set(value, path, found.clone()),
    }
}
