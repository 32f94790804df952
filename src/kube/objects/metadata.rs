//! The metadata of a view: what this program reads of it, in little memory.
//!
//! A waiting claim is mostly metadata, so names have no spare capacity.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::{Deserialize, de::IgnoredAny};

use super::{bounded, null_as_empty};

/// Names, UID, version, annotations, finalizers, owners, timestamps and for some kinds labels of an
/// object; nothing else of its metadata. Texts are `None` if the server sent none.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata<L = IgnoredAny> {
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
    #[serde(deserialize_with = "bounded::annotations")]
    pub annotations: BTreeMap<String, String>,
    /// The labels, in a map, for kinds whose labels are read.
    #[serde(
        deserialize_with = "null_as_empty",
        bound(deserialize = "L: Default + Deserialize<'de>")
    )]
    pub labels: L,
    /// The finalizers, in order.
    #[serde(deserialize_with = "bounded::finalizers")]
    pub finalizers: Vec<Box<str>>,
    /// The owners, in order.
    #[serde(deserialize_with = "bounded::owners")]
    pub owner_references: Vec<OwnerReference>,
}
