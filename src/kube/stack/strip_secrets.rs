//! Strips secrets from bodies before they are logged.
//!
//! Nothing of a Secret's content is shown, wherever in the body the Secret is: neither its data nor the
//! copy that `kubectl apply` keeps in an annotation. A body that is not JSON is not shown at all.

use serde_json::Value;

/// Longer bodies are not shown, in bytes.
pub(crate) const MAX_READ: usize = 64 << 10;

/// Replaces secret values.
const STRIPPED: &str = "***stripped***";

/// Fields of a Secret that hold its content.
const CONTENT: [&str; 2] = ["data", "stringData"];

/// Formats the body of a request for `resource`, or of its response, without secrets.
pub(crate) fn strip_secrets(resource: &str, body: &[u8]) -> String {
    if body.len() > MAX_READ {
        return format!("({} bytes)", body.len());
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return format!("({} bytes that are not JSON)", body.len());
    };
    strip(&mut value, resource == "secrets");
    value.to_string()
}

/// Strips every Secret in `value`; `secret` says that `value` is a Secret or a list of them.
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

/// Replaces all values; the keys stay.
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

    fn strip(resource: &str, body: &Value) -> String {
        strip_secrets(resource, body.to_string().as_bytes())
    }

    #[test]
    fn only_the_keys_of_a_secret_are_shown() {
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
            let text = strip(resource, &body);
            assert!(!text.contains("hush") && text.contains(STRIPPED), "{text}");
        }
    }

    #[test]
    fn other_objects_are_shown_whole() {
        let claim =
            json!({"kind": "PersistentVolumeClaim", "metadata": {"annotations": {"a": "b"}}});
        assert_eq!(strip("persistentvolumeclaims", &claim), claim.to_string());
    }

    #[test]
    fn long_bodies_and_those_that_are_not_json_are_not_shown() {
        assert_eq!(
            strip_secrets("secrets", b"{\"data\": {\"a\": \"hush"),
            "(20 bytes that are not JSON)"
        );
        let long = vec![b' '; MAX_READ + 1];
        assert_eq!(strip_secrets("pods", &long), "(65537 bytes)");
    }
}
