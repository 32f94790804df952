//! A claim as the source of a clone: with all of its status, which its user may be told.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::{ClaimSpec, Cow, NamespaceResourceScope, ObjectMeta, Resource, View, slim_metadata};

view! {
    /// A PersistentVolumeClaim whose volume is to be cloned.
    CloneSource: Namespaced "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" {
        /// What its user asked for.
        spec: ClaimSpec,
        /// What the cluster says of it.
        status: CloneSourceStatus,
    }
}

/// What the cluster says of a claim, whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloneSourceStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: String,
    /// The access modes that its volume has.
    pub access_modes: Vec<String>,
    /// What its volume has.
    pub capacity: BTreeMap<String, String>,
    /// What else is the case.
    pub conditions: Vec<ClaimCondition>,
    /// What is set aside for it, also while it is resized.
    pub allocated_resources: BTreeMap<String, String>,
    /// How far a resize has got.
    pub allocated_resource_statuses: BTreeMap<String, String>,
    /// The VolumeAttributesClass that its volume has.
    pub current_volume_attributes_class_name: Option<String>,
    /// The one that it shall have.
    pub modify_volume_status: Option<ModifyVolumeStatus>,
}

/// One condition of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimCondition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last looked at.
    pub last_probe_time: Option<Time>,
    /// When it last changed.
    pub last_transition_time: Option<Time>,
    /// Why, in one word.
    pub reason: String,
    /// What, for people.
    pub message: String,
}

/// A change of the VolumeAttributesClass that is under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModifyVolumeStatus {
    /// The class that the volume shall have.
    pub target_volume_attributes_class_name: String,
    /// How far it has got.
    pub status: String,
}
