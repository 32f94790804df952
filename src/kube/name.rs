//! Checks names of objects before they become part of a URL.
//!
//! The checks and their texts, which users see in events, are those of client-go. A request for a
//! [`Name`] never reaches another object than the one it names.

use go_fmt::quote;

/// The checked name of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
}

/// Why a text is no name of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// There is no name.
    #[error("resource name may not be empty")]
    Empty,
    /// The namespace of a namespaced object is missing.
    #[error("an empty namespace may not be set when a resource name is provided")]
    NoNamespace,
    /// The namespace in which to create an object is missing.
    #[error("an empty namespace may not be set during creation")]
    NoNamespaceToCreateIn,
    /// The text would change the meaning of the URL.
    #[error("invalid {what} {}: [{}]", quote(.text), .faults.join(" "))]
    Segment {
        /// What the text is: `resource name`, `namespace`, `API group` or `API version`.
        what: &'static str,
        /// The text.
        text: String,
        /// What is wrong with it.
        faults: Vec<&'static str>,
    },
}

impl<'a> Name<'a> {
    /// The object `name` in `namespace`.
    ///
    /// # Errors
    /// [`BadName`] if one of them cannot be a path segment.
    pub fn namespaced(namespace: &'a str, name: &'a str) -> Result<Self, BadName> {
        check_segment("namespace", namespace)?;
        let Self { name, .. } = Self::cluster(name)?;
        if namespace.is_empty() {
            return Err(BadName::NoNamespace);
        }
        Ok(Self { namespace: Some(namespace), name })
    }

    /// The object `name` of a cluster-scoped kind.
    ///
    /// # Errors
    /// [`BadName`] if it cannot be a path segment.
    pub fn cluster(name: &'a str) -> Result<Self, BadName> {
        if name.is_empty() {
            return Err(BadName::Empty);
        }
        check_segment("resource name", name)?;
        Ok(Self { namespace: None, name })
    }

    /// The namespace; `None` for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<&'a str> {
        self.namespace
    }

    /// The name within its namespace.
    pub fn name(&self) -> &'a str {
        self.name
    }
}

/// Checks the namespace of an object that is to be created.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), BadName> {
    if namespace.is_empty() {
        return Err(BadName::NoNamespaceToCreateIn);
    }
    check_segment("namespace", namespace)
}

/// apimachinery's `IsValidPathSegmentName`.
pub(crate) fn check_segment(what: &'static str, text: &str) -> Result<(), BadName> {
    let faults = match text {
        "." => vec!["may not be '.'"],
        ".." => vec!["may not be '..'"],
        _ => [('/', "may not contain '/'"), ('%', "may not contain '%'")]
            .into_iter()
            .filter(|(sign, _)| text.contains(*sign))
            .map(|(_, fault)| fault)
            .collect(),
    };
    if faults.is_empty() {
        Ok(())
    } else {
        Err(BadName::Segment { what, text: text.to_owned(), faults })
    }
}

/// The longest name of an object, in bytes (a DNS subdomain).
pub const MAX_NAME: usize = 253;

/// Whether `name` is a DNS-1123 subdomain, as most names are: at most 253 bytes, in parts of lower-case
/// letters, digits and inner dashes, separated by dots. Parts may be longer than a DNS label.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= MAX_NAME && name.split('.').all(is_dns_part)
}

/// Whether `part` has lower-case letters, digits and inner dashes alone, and is not empty.
pub(crate) fn is_dns_part(part: &str) -> bool {
    !part.is_empty()
        && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !part.starts_with('-')
        && !part.ends_with('-')
}

/// Whether `name` is a DNS-1123 label, as names of namespaces are.
pub(crate) fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_part(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_client_go_and_a_namespace_is_checked_before_the_name() {
        for (namespace, name, text) in [
            ("sc", "snap/status", r#"invalid resource name "snap/status": [may not contain '/']"#),
            ("sc", "a%2f", r#"invalid resource name "a%2f": [may not contain '%']"#),
            (
                "sc",
                "/%",
                r#"invalid resource name "/%": [may not contain '/' may not contain '%']"#,
            ),
            ("sc", "..", r#"invalid resource name "..": [may not be '..']"#),
            ("sc", ".", r#"invalid resource name ".": [may not be '.']"#),
            ("sc", "/\n\u{1}\"", r#"invalid resource name "/\n\x01\"": [may not contain '/']"#),
            ("sc", "", "resource name may not be empty"),
            ("a/b", "c/d", r#"invalid namespace "a/b": [may not contain '/']"#),
            ("", "a", "an empty namespace may not be set when a resource name is provided"),
        ] {
            let bad = Name::namespaced(namespace, name);
            assert_eq!(bad.unwrap_err().to_string(), text);
        }
        let bad = check_namespace("").unwrap_err().to_string();
        assert_eq!(bad, "an empty namespace may not be set during creation");
    }

    #[test]
    fn dns_names() {
        for (name, is_label, is_subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            ("a-b.c1", false, true),
            ("", false, false),
            ("A", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("a.-b", false, false),
            ("a_b", false, false),
            ("ä", false, false),
            (&"a".repeat(63), true, true),
            (&"a".repeat(64), false, true),
            (&"a".repeat(253), false, true),
            (&"a".repeat(254), false, false),
        ] {
            let is = (is_dns_label(name), is_dns_subdomain(name));
            assert_eq!(is, (is_label, is_subdomain), "{name:?}");
        }
    }
}
