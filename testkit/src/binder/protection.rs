//! The finalizers of what is in use.
//!
//! Owns what the two protection controllers of kube-controller-manager do: a claim or a volume carries
//! the finalizer while it is not deleted, and loses it once it is deleted and not in use. A volume is in
//! use while it is bound; claims are never in use, as there are no Pods here.

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::{Action, change, change_volume, volumes};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// What is to be done about a claim's finalizer.
pub(super) fn of_claim(claim: &PersistentVolumeClaim) -> Option<Action> {
    mend(&claim.metadata, CLAIM, false).map(|patch| change(claim, false, patch))
}

/// What is to be done about a volume's finalizer.
pub(super) fn of_volume(volume: &PersistentVolume) -> Option<Action> {
    let used = volumes::phase(volume) == Some("Bound");
    mend(&volume.metadata, VOLUME, used).map(|patch| change_volume(volume, patch))
}

fn mend(metadata: &ObjectMeta, finalizer: &str, used: bool) -> Option<Value> {
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    let has = finalizers.iter().any(|name| name == finalizer);
    match (metadata.deletion_timestamp.is_some(), has) {
        (false, false) => finalizers.push(finalizer.to_owned()),
        (true, true) if !used => finalizers.retain(|name| name != finalizer),
        _ => return None,
    }
    Some(json!({"metadata": {"finalizers": finalizers}}))
}
