//! The protection finalizer of PersistentVolumes: when it comes, when it goes, when a volume is
//! due for deletion.
//!
//! Owns the decision, a pure function of the volume (reference 4.3 and 4.4), and the patch bodies.
//! Leaves sending them to `volumes`.

use serde_json::{Value, json};

use crate::kube::objects::{View as _, Volume};

/// Keeps a PersistentVolume until its volume is deleted at the driver.
pub const PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// What is due for a volume of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Put the protection finalizer on.
    Protect,
    /// Take the protection finalizer off, without touching the volume itself.
    Unprotect,
    /// Somebody deleted the PersistentVolume before its claim was bound to it: take the protection
    /// finalizer off, if the claim still waits, and let it ask anew (safety rule 13).
    LetGo,
    /// Delete the volume at the driver, then the PersistentVolume.
    Delete,
}

/// What is due for `volume`, which is ours.
pub fn due(volume: &Volume) -> Due {
    let protected = volume.has_finalizer(PROTECTION);
    let terminating = volume.is_terminating();
    match (volume.spec.persistent_volume_reclaim_policy.as_str(), volume.status.phase.as_str()) {
        ("Delete", "Bound") if !protected && !terminating => Due::Protect,
        // Somebody who deleted the PersistentVolume before its claim, unprotected, took the
        // volume's fate into their own hands.
        ("Delete", "Released") if protected || !terminating => Due::Delete,
        ("Delete", "" | "Pending" | "Available")
            if protected && terminating && is_claimed(volume) =>
        {
            Due::LetGo
        }
        ("Retain" | "Recycle", _) if protected => Due::Unprotect,
        _ => Due::Nothing,
    }
}

/// Whether the volume is meant for one certain claim.
fn is_claimed(volume: &Volume) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|claim| !claim.uid.is_empty())
}

/// The strategic merge patch that puts the protection finalizer on the volume, behind those that it
/// was seen with: an API server puts what comes without an order first.
pub fn protect(volume: &Volume) -> Value {
    let seen = volume.metadata.finalizers.iter().flatten().map(String::as_str);
    let order: Vec<&str> = seen.chain([PROTECTION]).collect();
    json!({"metadata": {
        "uid": volume.uid(), "finalizers": [PROTECTION], "$setElementOrder/finalizers": order,
    }})
}

/// The strategic merge patch that takes it off, and leaves what others put beside it meanwhile.
pub fn unprotect(uid: &str) -> Value {
    json!({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [PROTECTION]}})
}

/// The same, for as long as the volume stands as it was seen: the driver still has it.
pub fn unprotect_as_seen(volume: &Volume) -> Value {
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
    fn one_deleted_before_its_claim_was_bound_is_let_go() {
        for phase in ["", "Pending", "Available"] {
            let mut volume = volume("Delete", phase, true, true);
            assert_eq!(due(&volume), Due::Nothing, "it is for nobody");
            let claim = |uid: &str| serde_json::from_value(json!({"uid": uid})).unwrap();
            volume.spec.claim_ref = Some(claim(""));
            assert_eq!(due(&volume), Due::Nothing, "anybody's of that name");
            volume.spec.claim_ref = Some(claim("u"));
            assert_eq!(due(&volume), Due::LetGo);
            volume.metadata.deletion_timestamp = None;
            assert_eq!(due(&volume), Due::Nothing, "it is being bound");
        }
    }

    #[test]
    fn patches_name_the_uid_and_touch_only_our_finalizer() {
        let held: Volume =
            serde_json::from_value(json!({"metadata": {"uid": "u", "finalizers": ["other"]}}))
                .unwrap();
        let on = json!({"metadata": {
            "uid": "u", "finalizers": [PROTECTION],
            "$setElementOrder/finalizers": ["other", PROTECTION],
        }});
        assert_eq!(protect(&held), on);
        let off = unprotect("u");
        assert_eq!(off["metadata"]["$deleteFromPrimitiveList/finalizers"], json!([PROTECTION]));
        assert_eq!(off["metadata"].get("finalizers"), None);
        let seen =
            serde_json::from_value(json!({"metadata": {"uid": "u", "resourceVersion": "7"}}));
        let mut as_seen = unprotect_as_seen(&seen.unwrap());
        assert_eq!(as_seen["metadata"]["resourceVersion"].take(), json!("7"));
        as_seen["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        assert_eq!(as_seen, off);
    }
}
