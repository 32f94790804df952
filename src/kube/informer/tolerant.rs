//! An object that may not be readable as its kind.
//!
//! Reading one never fails: of an object that cannot be read the name is kept, so that it can be
//! reported and skipped and does not break the list or watch it came in. An event of a watch must
//! name its type before its object, as every server written in Go does: only then is the object's
//! text at hand when it is read.

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/bodies/objects.rs"]
pub mod fuzz;

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kube::{
    error::fault,
    objects::{AnyObject, Metadata, View},
};

/// A `V`, or the name of an object that should have been one.
#[derive(Debug, Clone)]
pub(super) struct Tolerant<V> {
    /// What kube-rs's watcher reads of an object: its version, and nothing else.
    version: ObjectMeta,
    /// The object.
    pub(super) object: Result<V, Unreadable>,
}

/// An object that cannot be read.
#[derive(Debug, Clone)]
pub(super) struct Unreadable {
    /// Its metadata, if they can be read.
    pub(super) metadata: Box<Metadata>,
    /// What is wrong with it.
    pub(super) fault: String,
}

impl<V: View> Tolerant<V> {
    /// Reads an object from its JSON.
    fn read(object: &str) -> Self {
        let object = serde_json::from_str::<V>(object).map_err(|error| {
            let AnyObject { metadata } = serde_json::from_str(object).unwrap_or_default();
            Unreadable { metadata: Box::new(metadata), fault: fault(&error) }
        });
        let version = match &object {
            Ok(object) => &object.meta().resource_version,
            Err(unreadable) => &unreadable.metadata.resource_version,
        };
        let resource_version = version.as_deref().map(str::to_owned);
        Self { version: ObjectMeta { resource_version, ..ObjectMeta::default() }, object }
    }

    /// The object's UID, if it can be read.
    pub(super) fn uid(&self) -> Option<&str> {
        match &self.object {
            Ok(object) => object.meta().uid.as_deref(),
            Err(unreadable) => unreadable.metadata.uid.as_deref(),
        }
    }
}

impl<'de, V: View> Deserialize<'de> for Tolerant<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self::read(raw.get()))
    }
}

impl<V: View> kube::Resource for Tolerant<V> {
    type DynamicType = ();
    type Scope = DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        V::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        V::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        V::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        V::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.version
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.version
    }
}
