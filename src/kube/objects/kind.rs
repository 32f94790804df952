//! Builds the URL paths of kinds and objects, from checked ([`Name`]) and escaped names.

use std::borrow::Cow;

use super::View;
use crate::kube::{name::Name, url::segment};

/// A kind by group, version and plural name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Version within the group.
    pub version: Cow<'static, str>,
    /// The plural name in URLs and metrics, such as `persistentvolumeclaims`.
    pub plural: Cow<'static, str>,
}

impl Kind {
    /// The kind of the view `V`.
    pub fn of<V: View>() -> Self {
        V::API.clone()
    }

    /// Resource and group as in messages, such as `storageclasses.storage.k8s.io`.
    pub fn resource(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// The path of all objects of the kind, or of those in `namespace`.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let mut path = version_path(&self.group, &self.version);
        if let Some(namespace) = namespace {
            path.extend(["/namespaces/", &*segment(namespace)]);
        }
        path.extend(["/", &*self.plural]);
        path
    }

    /// The path of one object.
    pub(crate) fn object(&self, name: Name<'_>) -> String {
        let mut path = self.collection(name.namespace());
        path.extend(["/", &*segment(name.name())]);
        path
    }
}

/// The initial capacity for a path, in bytes; enough for usual names.
const PATH_CAPACITY: usize = 160;

/// The path of a version of a group.
fn version_path(group: &str, version: &str) -> String {
    let mut path = String::with_capacity(PATH_CAPACITY);
    match group {
        "" => path.push_str("/api/"),
        group => path.extend(["/apis/", &*segment(group), "/"]),
    }
    path.push_str(&segment(version));
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kube::objects::Claim;

    fn decoded(segment: &str) -> Vec<u8> {
        let mut bytes = segment.bytes();
        let mut decoded = Vec::new();
        while let Some(byte) = bytes.next() {
            let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap();
            decoded.push(if byte == b'%' {
                u8::try_from(digit() * 16 + digit()).unwrap()
            } else {
                byte
            });
        }
        decoded
    }

    proptest! {
        #[test]
        fn a_url_names_its_object_and_no_other(namespace in ".*", name in ".*") {
            let Ok(checked) = Name::namespaced(&namespace, &name) else { return Ok(()) };
            let url: http::Uri = Kind::of::<Claim>().object(checked).parse().unwrap();
            prop_assert_eq!(url.query(), None);
            let segments: Vec<&str> = url.path().split('/').collect();
            prop_assert_eq!(segments.len(), 7);
            prop_assert_eq!(decoded(segments[4]), namespace.as_bytes());
            prop_assert_eq!(decoded(segments[6]), name.as_bytes());
            prop_assert!(!matches!(segments[6], "." | "..") && !matches!(segments[4], "." | ".."));
        }
    }
}
