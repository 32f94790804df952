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

fn check(
    text: &str,
    limit: usize,
    regex: &LazyLock<Option<Regex>>,
    complaint: impl Fn() -> String,
) -> Vec<String> {
    let fits = regex.as_ref().is_some_and(|regex| regex.is_match(text));
    let long = (text.len() > limit).then(|| format!("must be no more than {limit} bytes"));
    long.into_iter().chain((!fits).then(complaint)).collect()
}

fn complaint(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join("or "))
}

/// A DNS-1123 label: a namespace.
pub(crate) fn label(text: &str) -> Vec<String> {
    const MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                           end with an alphanumeric character";
    check(text, 63, &LABEL_REGEX, || complaint(MESSAGE, LABEL, &["my-name", "123-abc"]))
}

/// A DNS-1123 subdomain: the name of most objects.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    const MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                           start and end with an alphanumeric character";
    check(text, 253, &SUBDOMAIN_REGEX, || complaint(MESSAGE, SUBDOMAIN, &["example.com"]))
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
    let key = || complaint(MESSAGE, KEY, &EXAMPLES);
    let (prefix, name) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (Vec::new(), *name),
        ["", name] => (vec!["must be non-empty".to_owned()], *name),
        [prefix, name] => (subdomain(prefix), *name),
        _ => {
            let key = key();
            return vec![format!(
                "a valid label key {key} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let empty = name.is_empty().then(|| "must be non-empty".to_owned());
    let of_name = empty.into_iter().chain(check(name, 63, &KEY_REGEX, key));
    let prefix = prefix.into_iter().map(|complaint| format!("prefix part {complaint}"));
    prefix.chain(of_name.map(|complaint| format!("name part {complaint}"))).collect()
}

/// A label's value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    const MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                           start and end with an alphanumeric character";
    check(text, 63, &LABEL_VALUE_REGEX, || {
        complaint(MESSAGE, LABEL_VALUE, &["MyValue", "my_value", "12345"])
    })
}
