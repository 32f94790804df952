//! The metadata of a view: what this program reads of it, in little memory.
//!
//! A waiting claim is mostly metadata, so names have no spare capacity.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::bounded;

/// Names, UID, version, annotations, finalizers, owners, timestamps and for some kinds labels of an
/// object; nothing else of its metadata. Texts are `None` if the server sent none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// The name.
    pub name: Option<Box<str>>,
    /// The namespace, for namespaced kinds.
    pub namespace: Option<Box<str>>,
    /// The UID. Shared with the queues and the index in which a claim waits.
    pub uid: Option<Arc<str>>,
    /// The `resourceVersion`.
    pub resource_version: Option<Box<str>>,
    /// When it was created.
    pub creation_timestamp: Option<Time>,
    /// When its deletion began.
    pub deletion_timestamp: Option<Time>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// The labels; empty for kinds whose labels are not read.
    pub labels: BTreeMap<String, String>,
    /// The finalizers, in order.
    pub finalizers: Vec<Box<str>>,
    /// The owners, in order.
    pub owner_references: Vec<OwnerReference>,
}

/// Reads the metadata without labels.
impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::<IgnoredAny>::deserialize(deserializer).map(|raw| raw.with_labels(|_| None))
    }
}

/// Reads the metadata with labels.
pub(super) fn labelled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
    Raw::<Option<BTreeMap<String, String>>>::deserialize(deserializer)
        .map(|raw| raw.with_labels(|labels| labels))
}

/// The serialized form of [`Metadata`]; `L` is the type of the labels.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw<L: Default> {
    name: Option<Box<str>>,
    namespace: Option<Box<str>>,
    uid: Option<Arc<str>>,
    resource_version: Option<Box<str>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    #[serde(deserialize_with = "bounded::annotations")]
    annotations: BTreeMap<String, String>,
    labels: L,
    #[serde(deserialize_with = "bounded::finalizers")]
    finalizers: Vec<Box<str>>,
    #[serde(deserialize_with = "bounded::owners")]
    owner_references: Vec<OwnerReference>,
}

impl<L: Default> Raw<L> {
    fn with_labels(self, labels: impl FnOnce(L) -> Option<BTreeMap<String, String>>) -> Metadata {
        Metadata {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            annotations: self.annotations,
            labels: labels(self.labels).unwrap_or_default(),
            finalizers: self.finalizers,
            owner_references: self.owner_references,
        }
    }
}
