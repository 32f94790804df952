//! The view of pods.

use serde::Deserialize;

use super::{Metadata, View};

view! {
    /// A Pod: what shows whether it works.
    Pod: Namespaced "" "v1" "Pod" "pods" {
        /// The current state.
        status: PodStatus,
    }
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// The containers.
    pub container_statuses: Vec<ContainerStatus>,
}

/// The state of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// Whether it is ready.
    pub ready: bool,
    /// How often it was started again.
    pub restart_count: u32,
}
