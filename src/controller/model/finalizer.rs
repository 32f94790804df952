//! Decides what is due for a PersistentVolume: deletion, or adding or removing the protection finalizer.
//! Contains the patch bodies as well. Pure functions with external-provisioner's rules.

use serde_json::{Value, json};

use crate::kube::objects::{View as _, Volume};

/// The protection finalizer: keeps a PersistentVolume until its volume is deleted at the driver.
pub const PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// What is due for a volume of this provisioner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Add the protection finalizer.
    Protect,
    /// Remove the protection finalizer and keep the volume.
    Unprotect,
    /// The PersistentVolume was deleted before its claim was bound to it: if the claim still waits,
    /// remove the protection finalizer, so that the claim gets another PersistentVolume of the same
    /// volume (safety rule 13).
    UnprotectUnbound,
    /// Delete the volume at the driver, then the PersistentVolume.
    Delete,
}

/// Returns what is due for `volume`, which belongs to this provisioner.
pub fn due(volume: &Volume) -> Due {
    let protected = volume.has_finalizer(PROTECTION);
    let terminating = volume.is_terminating();
    match (volume.spec.persistent_volume_reclaim_policy.as_str(), volume.status.phase.as_str()) {
        ("Delete", "Bound") if !protected && !terminating => Due::Protect,
        // If somebody deleted the unprotected PersistentVolume before its claim, the volume is kept.
        ("Delete", "Released") if protected || !terminating => Due::Delete,
        ("Delete", "" | "Pending" | "Available")
            if protected && terminating && is_claimed(volume) =>
        {
            Due::UnprotectUnbound
        }
        ("Retain" | "Recycle", _) if protected => Due::Unprotect,
        _ => Due::Nothing,
    }
}

/// Whether the volume is for a claim of a certain UID.
fn is_claimed(volume: &Volume) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|claim| !claim.uid.is_empty())
}

/// Returns the strategic merge patch that appends the protection finalizer. Without an order the API
/// server would put it first.
pub fn protect(volume: &Volume) -> Value {
    let present = volume.metadata.finalizers.iter().map(|name| &**name);
    let order: Vec<&str> = present.chain([PROTECTION]).collect();
    json!({"metadata": {
        "uid": volume.uid(), "finalizers": [PROTECTION], "$setElementOrder/finalizers": order,
    }})
}

/// Returns the strategic merge patch that removes the protection finalizer and no other.
pub fn unprotect(uid: &str) -> Value {
    json!({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [PROTECTION]}})
}

/// Returns the strategic merge patch that removes the protection finalizer if the PersistentVolume still
/// has this `resourceVersion`. For volumes that the driver still has.
pub fn unprotect_if_unchanged(volume: &Volume) -> Value {
    let version = &volume.metadata.resource_version;
    json!({"metadata": {
        "uid": volume.uid(), "resourceVersion": version,
        "$deleteFromPrimitiveList/finalizers": [PROTECTION],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(policy: &str, phase: &str, protected: bool, terminating: bool) -> Volume {
        let mut metadata = json!({"name": "pv"});
        if protected {
            metadata["finalizers"] = json!(["kubernetes.io/pv-protection", PROTECTION]);
        }
        if terminating {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"persistentVolumeReclaimPolicy": policy},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn what_is_due_follows_policy_phase_finalizer_and_deletion() {
        let table = [
            // policy, phase, protected, terminating
            ("Delete", "Bound", false, false, Due::Protect),
            ("Delete", "Bound", false, true, Due::Nothing),
            ("Delete", "Bound", true, false, Due::Nothing),
            ("Delete", "Bound", true, true, Due::Nothing),
            ("Delete", "Pending", false, false, Due::Nothing),
            ("Delete", "Available", true, true, Due::Nothing),
            ("Delete", "Released", false, false, Due::Delete),
            ("Delete", "Released", true, false, Due::Delete),
            ("Delete", "Released", true, true, Due::Delete),
            ("Delete", "Released", false, true, Due::Nothing),
            ("Delete", "Failed", true, false, Due::Nothing),
            ("Retain", "Bound", true, false, Due::Unprotect),
            ("Retain", "Released", true, true, Due::Unprotect),
            ("Recycle", "Available", true, false, Due::Unprotect),
            ("Retain", "Released", false, false, Due::Nothing),
            ("", "Released", true, false, Due::Nothing),
        ];
        for (policy, phase, protected, terminating, expected) in table {
            let got = due(&volume(policy, phase, protected, terminating));
            assert_eq!(
                got, expected,
                "{policy} {phase} protected={protected} terminating={terminating}"
            );
        }
    }

    #[test]
    fn a_volume_deleted_before_its_claim_was_bound_is_only_unprotected() {
        for phase in ["", "Pending", "Available"] {
            let mut volume = volume("Delete", phase, true, true);
            assert_eq!(due(&volume), Due::Nothing, "it is for no claim");
            let claim = |uid: &str| serde_json::from_value(json!({"uid": uid})).unwrap();
            volume.spec.claim_ref = Some(claim(""));
            assert_eq!(due(&volume), Due::Nothing, "it is for any claim of that name");
            volume.spec.claim_ref = Some(claim("u"));
            assert_eq!(due(&volume), Due::UnprotectUnbound);
            volume.metadata.deletion_timestamp = None;
            assert_eq!(due(&volume), Due::Nothing, "it is not deleted");
        }
    }
}
