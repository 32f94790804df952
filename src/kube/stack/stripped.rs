//! Bodies as logs may show them: without secrets.
//!
//! Promises that nothing of a Secret's content is shown, wherever in the body it stands: neither
//! its data nor the copy of it that `kubectl apply` leaves in an annotation; that a body in which
//! secrets cannot be told from the rest is not shown at all. Leaves cutting what is long to `logging`.

use serde_json::Value;

/// Longer bodies are not read for showing, in bytes.
pub(crate) const MAX_READ: usize = 64 << 10;

/// What stands in a secret's place.
const STRIPPED: &str = "***stripped***";

/// Fields of a Secret that hold its content.
const CONTENT: [&str; 2] = ["data", "stringData"];

/// The body of a request about `resource`, or of its answer, as it may be shown.
pub(crate) fn stripped(resource: &str, body: &[u8]) -> String {
    if body.len() > MAX_READ {
        return format!("({} bytes)", body.len());
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return format!("({} bytes that are not JSON)", body.len());
    };
    strip(&mut value, resource == "secrets");
    value.to_string()
}

/// Strips every Secret in `value`; `secret` says that `value` is one or a list of them.
fn strip(value: &mut Value, secret: bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, secret)),
        Value::Object(fields) => {
            let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
            let secret = secret || kind == "Secret" || kind == "SecretList";
            for (name, field) in fields.iter_mut() {
                let content = CONTENT.contains(&name.as_str()) || name == "annotations";
                if secret && content { hide(field) } else { strip(field, secret) }
            }
        }
        _ => {}
    }
}

/// Puts the mark in the place of all values, so that the keys can be seen.
fn hide(content: &mut Value) {
    match content {
        Value::Object(fields) => fields.values_mut().for_each(|value| *value = STRIPPED.into()),
        Value::Null => {}
        other => *other = STRIPPED.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(resource: &str, body: &Value) -> String {
        stripped(resource, body.to_string().as_bytes())
    }

    #[test]
    fn of_a_secret_the_keys_are_shown_and_nothing_else() {
        let secret = json!({
            "metadata": {
                "name": "s",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hush"},
            },
            "data": {"userKey": "hush"}, "stringData": {"other": "hush"},
        });
        let mut typed = secret.clone();
        typed["kind"] = "Secret".into();
        for (resource, body) in [
            ("secrets", secret.clone()),
            ("secrets", json!({"items": [secret]})),
            ("things", json!({"type": "ADDED", "object": typed})),
            ("things", json!({"kind": "SecretList", "items": [secret]})),
            ("things", json!({"kind": "Secret", "data": "hush"})),
        ] {
            let text = shown(resource, &body);
            assert!(!text.contains("hush") && text.contains(STRIPPED), "{text}");
        }
    }

    #[test]
    fn other_objects_are_shown_whole() {
        let claim =
            json!({"kind": "PersistentVolumeClaim", "metadata": {"annotations": {"a": "b"}}});
        assert_eq!(shown("persistentvolumeclaims", &claim), claim.to_string());
    }

    #[test]
    fn what_cannot_be_read_is_not_shown() {
        assert_eq!(
            stripped("secrets", b"{\"data\": {\"a\": \"hush"),
            "(20 bytes that are not JSON)"
        );
        let long = vec![b' '; MAX_READ + 1];
        assert_eq!(stripped("pods", &long), "(65537 bytes)");
    }
}
