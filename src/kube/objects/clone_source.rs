//! A view of a claim that is the source of a clone, with its complete status for error messages.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::{ClaimSpec, Metadata, View};

view! {
    /// A PersistentVolumeClaim whose volume is to be cloned.
    CloneSource: Namespaced "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" {
        /// The desired volume.
        spec: ClaimSpec,
        /// The current state.
        status: CloneSourceStatus,
    }
}

/// The complete `status` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloneSourceStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: String,
    /// The access modes of its volume.
    pub access_modes: Vec<String>,
    /// The capacity of its volume.
    pub capacity: BTreeMap<String, String>,
    /// The conditions.
    pub conditions: Vec<ClaimCondition>,
    /// The allocated size, also during a resize.
    pub allocated_resources: BTreeMap<String, String>,
    /// The state of a resize.
    pub allocated_resource_statuses: BTreeMap<String, String>,
    /// The VolumeAttributesClass of its volume.
    pub current_volume_attributes_class_name: Option<String>,
    /// The change of the VolumeAttributesClass in progress.
    pub modify_volume_status: Option<ModifyVolumeStatus>,
}

/// One condition of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimCondition {
    /// The condition's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last checked.
    pub last_probe_time: Option<Time>,
    /// When it last changed.
    pub last_transition_time: Option<Time>,
    /// The machine-readable reason.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
}

/// A change of the VolumeAttributesClass in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModifyVolumeStatus {
    /// The new class.
    pub target_volume_attributes_class_name: String,
    /// The state of the change.
    pub status: String,
}
