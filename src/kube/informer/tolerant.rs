//! An object that may not be what its kind promises.
//!
//! Promises that reading one never fails: what cannot be read keeps its name, so that it can be
//! skipped, told and counted instead of breaking the list or watch it came in. An event of a watch
//! must name its type before its object, as every server written in Go does: only then is the
//! object's text at hand when it is read.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::NamespaceResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kube::{error::fault, objects::View};

/// A `V`, or the name of an object that should have been one.
#[derive(Debug, Clone)]
pub(super) enum Tolerant<V> {
    /// The object.
    Read(V),
    /// Its name, UID and version, as far as they can be read, and what is wrong with it.
    Unreadable { metadata: Box<ObjectMeta>, fault: String },
}

impl<V: View> Tolerant<V> {
    /// Reads the JSON of an object.
    pub(super) fn read(object: &[u8]) -> Self {
        serde_json::from_slice(object).map_or_else(
            |error| {
                let names = serde_json::from_slice(object).unwrap_or_default();
                Self::unreadable(names, fault(&error))
            },
            Self::Read,
        )
    }

    /// An object of which nothing but these names can be read.
    pub(super) fn unreadable(names: Named, fault: String) -> Self {
        let Names { name, namespace, uid, resource_version } = names.metadata;
        let names = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        Self::Unreadable { metadata: Box::new(names), fault }
    }
}

/// What identifies an object, and nothing else of it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    metadata: Names,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Names {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl<'de, V: View> Deserialize<'de> for Tolerant<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::read(raw.get().as_bytes()))
    }
}

impl<V: View> Resource for Tolerant<V> {
    type DynamicType = ();
    // Also right for kinds without namespaces: it only opens `Api::namespaced`.
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        V::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        V::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        V::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        V::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.meta(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.meta_mut(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }
}
