//! How names, label keys and label values must look.
//!
//! Follows apimachinery's `pkg/api/validate/content`, words included. Each function gives the
//! complaints about a text; none for a good one.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

static LABEL_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| whole(LABEL));
static SUBDOMAIN_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| whole(SUBDOMAIN));
static KEY_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| whole(KEY));
static LABEL_VALUE_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| whole(LABEL_VALUE));

fn whole(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

fn fits(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn complaint(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join("or "))
}

/// A DNS-1123 label: a namespace.
pub(crate) fn label(text: &str) -> Vec<String> {
    const MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                           end with an alphanumeric character";
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push(too_long(63));
    }
    if !fits(&LABEL_REGEX, text) {
        complaints.push(complaint(MESSAGE, LABEL, &["my-name", "123-abc"]));
    }
    complaints
}

/// A DNS-1123 subdomain: the name of most objects.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    const MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                           start and end with an alphanumeric character";
    let mut complaints = Vec::new();
    if text.len() > 253 {
        complaints.push(too_long(253));
    }
    if !fits(&SUBDOMAIN_REGEX, text) {
        complaints.push(complaint(MESSAGE, SUBDOMAIN, &["example.com"]));
    }
    complaints
}

/// A name that can stand in a path: RBAC's objects.
pub(crate) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let found = ['/', '%'].iter().filter(|c| text.contains(**c));
    found.map(|c| format!("may not contain '{c}'")).collect()
}

/// A label key, and with it an annotation's (in lower case) and a finalizer.
pub(crate) fn label_key(text: &str) -> Vec<String> {
    const MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut complaints = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            let of_prefix = if prefix.is_empty() {
                vec!["must be non-empty".to_owned()]
            } else {
                subdomain(prefix)
            };
            complaints.extend(of_prefix.iter().map(|complaint| format!("prefix part {complaint}")));
            *name
        }
        _ => {
            let key = complaint(MESSAGE, KEY, &EXAMPLES);
            return vec![format!(
                "a valid label key {key} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        complaints.push(format!("name part {}", too_long(63)));
    }
    if !fits(&KEY_REGEX, name) {
        complaints.push(format!("name part {}", complaint(MESSAGE, KEY, &EXAMPLES)));
    }
    complaints
}

/// A label's value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    const MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                           start and end with an alphanumeric character";
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push(too_long(63));
    }
    if !fits(&LABEL_VALUE_REGEX, text) {
        complaints.push(complaint(MESSAGE, LABEL_VALUE, &["MyValue", "my_value", "12345"]));
    }
    complaints
}
