//! An object that may not be readable as its kind.
//!
//! Reading one never fails: of an object that cannot be read the name is kept, so that it can be
//! reported and skipped and does not break the list or watch it came in. An event of a watch must
//! name its type before its object, as every server written in Go does: only then is the object's
//! text at hand when it is read.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kube::{
    error::fault,
    objects::{Metadata, View},
};

/// A `V`, or the name of an object that should have been one.
#[derive(Debug, Clone)]
pub(super) enum Tolerant<V> {
    /// The object.
    Read(V),
    /// Its name, UID and version, as far as they can be read, and what is wrong with it.
    Unreadable { metadata: Box<Metadata>, fault: String },
}

impl<V: View> Tolerant<V> {
    /// Reads an object from its JSON.
    pub(super) fn read(object: &[u8]) -> Self {
        serde_json::from_slice(object).map_or_else(
            |error| {
                let names = serde_json::from_slice(object).unwrap_or_default();
                Self::unreadable(names, fault(&error))
            },
            Self::Read,
        )
    }

    /// The object's metadata; of an unreadable one, its names and version.
    pub(super) fn meta(&self) -> &Metadata {
        match self {
            Self::Read(object) => object.meta(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }

    /// An object of which nothing but these names can be read.
    fn unreadable(names: Named, fault: String) -> Self {
        let Names { name, namespace, uid, resource_version } = names.metadata;
        let names = Metadata { name, namespace, uid, resource_version, ..Metadata::default() };
        Self::Unreadable { metadata: Box::new(names), fault }
    }
}

/// What identifies an object, and nothing else of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Names,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Names {
    name: Option<Box<str>>,
    namespace: Option<Box<str>>,
    uid: Option<Arc<str>>,
    resource_version: Option<Box<str>>,
}

impl<'de, V: View> Deserialize<'de> for Tolerant<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::read(raw.get().as_bytes()))
    }
}
