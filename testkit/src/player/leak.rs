//! No log tells a secret.
//!
//! Every process of a run logs as much as it can (`--v=10`), and here its log is searched for the
//! content of the scenario's Secrets, plain and in every form that a program could write it in.
//! Pure. A value that the scenario also uses for something else, or that is too short to stand for
//! itself, cannot be told from chance and is not searched for.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::scenario::{Scenario, Step};

/// Shorter values occur by chance.
const TELLING: usize = 5;

/// A process logged a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log of {process:?} tells a secret, as in: {line}")]
pub struct Leak {
    /// The process.
    pub process: String,
    /// The line that does, cut.
    pub line: String,
}

/// The contents of the scenario's Secrets that can be searched for.
pub(super) fn secrets(scenario: &Scenario) -> BTreeSet<String> {
    let mut contents = BTreeSet::new();
    let mut rest = String::new();
    let created = scenario.steps.iter().filter_map(|step| match step {
        Step::Create(objects) => Some(objects),
        _ => None,
    });
    for object in created.chain([&scenario.objects]).flatten() {
        if object.get("kind").and_then(Value::as_str) == Some("Secret") {
            contents.extend(content(object));
        } else {
            rest.push_str(&object.to_string());
        }
    }
    contents.retain(|content| content.len() >= TELLING && !rest.contains(content.as_str()));
    contents
}

/// What a Secret holds, decoded.
fn content(secret: &Value) -> impl Iterator<Item = String> {
    let values = |field: &str| {
        let fields = secret.get(field).and_then(Value::as_object).into_iter().flatten();
        fields.filter_map(|(_, value)| value.as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let decoded = values("data").into_iter().filter_map(|text| {
        STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    });
    decoded.chain(values("stringData"))
}

/// Searches the log of `process` for the secrets.
pub(super) fn search(process: &str, log: &str, secrets: &BTreeSet<String>) -> Result<(), Leak> {
    let forms: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
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

/// Every form that a program could write `secret` in; of one with several lines, each line's.
fn forms(secret: &str) -> Vec<String> {
    let lines = secret.lines().filter(|line| line.len() >= TELLING);
    let mut forms: Vec<String> = lines
        .flat_map(|line| {
            let bytes: Vec<String> = line.bytes().map(|byte| byte.to_string()).collect();
            let hex: String = line.bytes().map(|byte| format!("{byte:02x}")).collect();
            [
                line.replace('\\', ""),
                utf8_percent_encode(line, NON_ALPHANUMERIC).to_string(),
                bytes.join(", "),
                hex,
            ]
        })
        .collect();
    // The padding depends on what follows.
    forms.push(STANDARD.encode(secret).trim_end_matches('=').to_owned());
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"
name: n
objects:
- {kind: Secret, metadata: {name: s}, stringData: {userID: kubernetes, userKey: 'hush\"+hush', k: v}, data: {a: c2VjcmV0}}
- {kind: Thing, metadata: {annotations: {volume.kubernetes.io/x: y}}}
steps:
- create: [{kind: Secret, metadata: {name: t}, stringData: {later: secret-too}}]
"#;

    fn found() -> BTreeSet<String> {
        secrets(&Scenario::parse(SCENARIO).unwrap())
    }

    #[test]
    fn contents_that_stand_for_themselves_are_searched_for() {
        let expected = ["hush\\\"+hush", "secret", "secret-too"];
        assert_eq!(found(), expected.map(str::to_owned).into());
    }

    #[test]
    fn every_form_is_found() {
        let secrets = found();
        for line in [
            "x secret-too x",
            r#"body="{\"k\":\"hush\\\\\\\"+hush\"}""#,
            "c2VjcmV0",
            "hush%5C%22%2Bhush",
            "[115, 101, 99, 114, 101, 116]",
            "736563726574",
        ] {
            let log = format!("fine\n{line}\n");
            assert!(search("main", &log, &secrets).is_err(), "{line}");
        }
        assert_eq!(search("main", "nothing of kubernetes\n", &secrets), Ok(()));
    }
}
