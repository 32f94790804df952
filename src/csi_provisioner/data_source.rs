//! What a volume is made from, where it is not made empty.
//!
//! Owns telling the kinds apart. A kind that some populator fills is left to it (reference 3.9).
//! Promises that no claim that names a source ever gets an empty volume.

use crate::{
    controller::provisioner::{Failure, NotAsked},
    kube_api::views::{Claim, ObjectReference},
};

/// Lets a claim without a source pass.
pub(super) fn check(claim: &Claim) -> Result<(), NotAsked> {
    let Some(source) = claim.spec.data_source.as_ref().or(claim.spec.data_source_ref.as_ref())
    else {
        return Ok(());
    };
    Err(refusal(source))
}

fn refusal(source: &ObjectReference) -> NotAsked {
    match source.kind.as_str() {
        "VolumeSnapshot" | "PersistentVolumeClaim" => NotAsked::Failed(Failure::new(format!(
            "this version of csi-provisioner does not make volumes from a {} yet; use the original for claims with a data source",
            source.kind
        ))),
        kind => NotAsked::Ignored {
            reason: format!(
                "data source ({kind}) is not handled by the provisioner, assuming an external populator will provision it"
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(spec: &serde_json::Value) -> Option<NotAsked> {
        check(&serde_json::from_value(json!({"spec": spec})).unwrap()).err()
    }

    #[test]
    fn a_claim_with_a_source_never_gets_an_empty_volume() {
        assert!(outcome(&json!({})).is_none());
        for field in ["dataSource", "dataSourceRef"] {
            for kind in ["VolumeSnapshot", "PersistentVolumeClaim"] {
                assert!(matches!(
                    outcome(&json!({field: {"kind": kind, "name": "n"}})),
                    Some(NotAsked::Failed(_))
                ));
            }
            let populated = outcome(
                &json!({field: {"kind": "Backup", "name": "n", "apiGroup": "example.com"}}),
            );
            assert!(matches!(populated, Some(NotAsked::Ignored { .. })));
        }
    }
}
