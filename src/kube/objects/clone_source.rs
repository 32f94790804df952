//! A view of a claim that is the source of a clone, with its complete status for error messages.

use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;
use serde::Deserialize;

use super::{ClaimSpec, Metadata, View};

view! {
    /// A PersistentVolumeClaim whose volume is to be cloned.
    CloneSource: Namespaced "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" {
        /// The desired volume.
        spec: ClaimSpec,
        /// The current state.
        status: PersistentVolumeClaimStatus,
    }
}
