//! No log contains a secret.
//!
//! Every process of a run logs as much as it can (`--v=10`), and whatever a scenario puts into a
//! Secret gets a [`SALT`] on its way to the API server, which the outcome is rid of again. So it
//! is known what no log may hold, plain and in every form that a program could write it in. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Stands at the end of every value in a Secret: nothing that occurs by chance, with letters that
/// JSON, URLs and Rust's `Debug` write otherwise.
pub(super) const SALT: &str = "+hu5h/\"quoted\" & s3cr3t=%";

/// A process logged a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log of {process:?} contains a secret, as in: {line}")]
pub(super) struct Leak {
    process: String,
    line: String,
}

/// Salts what `object`, which is of this kind, says of a Secret's content.
pub(super) fn salt(kind: &str, object: &mut Value) {
    if kind != "Secret" {
        return;
    }
    for (field, encoded) in [("stringData", false), ("data", true)] {
        let values = object.get_mut(field).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(|values| values.values_mut()) {
            if let Some(text) = value.as_str() {
                *value = salted(text, encoded).into();
            }
        }
    }
}

fn salted(text: &str, encoded: bool) -> String {
    if !encoded {
        return format!("{text}{SALT}");
    }
    // What is no base64 is a scenario about that.
    let Ok(mut bytes) = STANDARD.decode(text) else { return text.to_owned() };
    bytes.extend_from_slice(SALT.as_bytes());
    STANDARD.encode(bytes)
}

/// Searches the log of `process` for salt.
pub(super) fn search(process: &str, log: &str) -> Result<(), Leak> {
    let forms = forms();
    for line in log.lines() {
        // However often a text in quotes was put in quotes again.
        let plain = line.replace('\\', "");
        if forms.iter().any(|form| plain.contains(form)) {
            let line = line.chars().take(300).collect();
            return Err(Leak { process: process.to_owned(), line });
        }
    }
    Ok(())
}

/// Every form that a program could write the salt in.
fn forms() -> Vec<String> {
    let bytes: Vec<String> = SALT.bytes().map(|byte| byte.to_string()).collect();
    let hex: Vec<String> = SALT.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![
        SALT.to_owned(),
        utf8_percent_encode(SALT, NON_ALPHANUMERIC).to_string(),
        bytes.join(", "),
        hex.concat(),
    ];
    // Three bytes make four letters: where the salt starts among them depends on what is before.
    for before in ["", "x", "xx"] {
        let encoded = STANDARD.encode(format!("{before}{SALT}"));
        let whole = encoded.get(4..encoded.len() - 4).unwrap_or_default();
        forms.push(whole.to_owned());
    }
    forms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn salt_is_found_in_every_form() {
        let value = format!("value{SALT}");
        let json = json!({"k": value}).to_string();
        for line in [
            value.clone(),
            json.clone(),
            format!("{json:?}"),
            format!("{:?}", format!("{json:?}")),
            STANDARD.encode(&value),
            STANDARD.encode(format!("1{value}")),
            STANDARD.encode(format!("12{value} and more")),
            utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string(),
            format!("{:?}", value.as_bytes()),
        ] {
            assert!(search("main", &format!("fine\n{line}\n")).is_err(), "{line}");
        }
        assert_eq!(search("main", "nothing of \"quoted\" s3cr3t\n"), Ok(()));
    }
}
