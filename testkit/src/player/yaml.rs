//! YAML and JSON as the reference player reads and writes them.
//!
//! Mappings keep their order until they are read into types: a note is named by its keys in order.

use serde_json::Value as Json;
use serde_yaml_ng::{Mapping, Value};

use super::PlayError;

/// The first document of a file, with its `each` expanded.
pub(super) fn document(text: &str) -> Result<Value, PlayError> {
    let mut documents = serde_yaml_ng::Deserializer::from_str(text);
    let first = documents.next().ok_or("there is no document")?;
    expand(keyed(serde::Deserialize::deserialize(first)?))
}

/// As JSON.
pub(super) fn json(value: Value) -> Result<Json, PlayError> {
    Ok(serde_yaml_ng::from_value(value)?)
}

/// The value with texts for keys.
fn keyed(value: Value) -> Value {
    match value {
        Value::Mapping(entries) => {
            let entries = entries.into_iter();
            entries
                .map(|(key, value)| (Value::String(text(&key)), keyed(value)))
                .collect::<Mapping>()
                .into()
        }
        Value::Sequence(items) => items.into_iter().map(keyed).collect::<Vec<_>>().into(),
        plain => plain,
    }
}

/// Replaces, in every list outside `expect`, an entry with `each: [...]` or `each: N` by one entry per value, with
/// `{x}` standing for the value and `{lx}` for it in lower case with dashes.
fn expand(value: Value) -> Result<Value, PlayError> {
    Ok(match value {
        Value::Mapping(entries) => {
            let expanded = entries.into_iter().map(|(key, value)| {
                let value = if key == "expect" { value } else { expand(value)? };
                Ok((key, value))
            });
            Value::Mapping(expanded.collect::<Result<_, PlayError>>()?)
        }
        Value::Sequence(items) => {
            let mut out = Vec::new();
            for mut item in items {
                let Some(each) = item.as_mapping_mut().and_then(|item| item.shift_remove("each"))
                else {
                    out.push(expand(item)?);
                    continue;
                };
                let texts: Vec<String> = match &each {
                    Value::Sequence(items) => items.iter().map(text).collect(),
                    Value::Number(count) => {
                        (0..count.as_u64().unwrap_or(0)).map(|place| place.to_string()).collect()
                    }
                    _ => return Err("each: wants a list or a number".into()),
                };
                for x in texts {
                    out.push(expand(filled(&item, &x))?);
                }
            }
            Value::Sequence(out)
        }
        plain => plain,
    })
}

fn filled(value: &Value, x: &str) -> Value {
    match value {
        Value::String(text) => {
            let lx = x.to_lowercase().replace('_', "-");
            text.replace("{x}", x).replace("{lx}", &lx).into()
        }
        Value::Sequence(items) => {
            items.iter().map(|item| filled(item, x)).collect::<Vec<_>>().into()
        }
        Value::Mapping(entries) => {
            let entries = entries.iter();
            entries
                .map(|(key, value)| (filled(key, x), filled(value, x)))
                .collect::<Mapping>()
                .into()
        }
        plain => plain.clone(),
    }
}

/// A scalar as Python's `str` prints it; a list as its parts with dots between.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Sequence(parts) => parts.iter().map(text).collect::<Vec<_>>().join("."),
        Value::Mapping(_) | Value::Tagged(_) => String::new(),
    }
}

// === JSON ===

/// By what Python sorts values: its JSON, in ASCII.
pub(super) fn key(value: &Json) -> String {
    let text = value.to_string();
    let units = text.encode_utf16().map(|unit| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
        _ => format!("\\u{unit:04x}"),
    });
    units.collect::<Vec<_>>().concat()
}

/// Whether two values are equal to Python, to which `3` and `3.0` are the same.
pub(super) fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}
