//! A stored object: one revision of it, shared by all who read it, without its `TypeMeta` (`apiVersion`, `kind`),
//! which depends on the version it is read through.

use std::sync::OnceLock;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::{resources::Kind, tree};

/// Where an object stands among those of its kind; the order is the one lists come in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The namespace; empty for kinds without.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One revision of an object.
#[derive(Debug)]
pub struct Object {
    value: Value,
    revision: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// An object as it is at `revision`, which becomes its resourceVersion.
    pub fn new(mut value: Value, revision: u64) -> Self {
        strip_type(&mut value);
        tree::set(&mut value, &["metadata", "resourceVersion"], json!(revision.to_string()));
        Self { value, revision, json: OnceLock::new() }
    }

    /// The content without `TypeMeta`.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The store's revision that made this one.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The object's key.
    pub fn key(&self) -> Key {
        Key::new(self.meta("namespace"), self.meta("name"))
    }

    /// A string of the metadata; empty when absent.
    pub fn meta(&self, member: &str) -> &str {
        tree::text(&self.value, &["metadata", member])
    }

    /// The content with the `TypeMeta` of `kind`.
    pub fn typed(&self, kind: &Kind) -> Value {
        let mut value = self.value.clone();
        set_type(&mut value, kind);
        value
    }

    /// The JSON without `TypeMeta`, as it stands in lists.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string()))
    }

    /// The JSON with the `TypeMeta` of `kind`, as it stands alone.
    pub fn typed_json(&self, kind: &Kind) -> Bytes {
        let mut typed = BytesMut::new();
        self.write_typed(kind, &mut typed);
        typed.freeze()
    }

    /// Appends the JSON with the `TypeMeta` of `kind`.
    pub fn write_typed(&self, kind: &Kind, out: &mut BytesMut) {
        out.put_slice(
            format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version())
                .as_bytes(),
        );
        // There is always `metadata`: the braces are never empty.
        out.put_slice(self.json().get(1..).unwrap_or_default());
    }
}

/// Gives `value` the `TypeMeta` of `kind`.
pub fn set_type(value: &mut Value, kind: &Kind) {
    tree::set(value, &["kind"], json!(kind.kind));
    tree::set(value, &["apiVersion"], json!(kind.api_version()));
}

/// Takes the `TypeMeta` away.
pub fn strip_type(value: &mut Value) {
    tree::remove(value, &["kind"]);
    tree::remove(value, &["apiVersion"]);
}
