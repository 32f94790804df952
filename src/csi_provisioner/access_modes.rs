//! Access modes and access type.
//!
//! Maps them to CSI's `VolumeCapability`. Pure.

use crate::{
    controller::provisioner::Failure,
    csi::proto::{
        VolumeCapability,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    },
    kube::objects::{Claim, StorageClass},
};

/// One capability for each of the claim's access modes, in the claim's order.
///
/// # Errors
/// external-provisioner's text for an unknown mode.
pub(super) fn volume_capabilities(
    claim: &Claim,
    class: &StorageClass,
    fs_type: &str,
    single_node_multi_writer: bool,
) -> Result<Vec<VolumeCapability>, Failure> {
    let access_type = access_type(claim, class, fs_type);
    claim
        .spec
        .access_modes
        .iter()
        .map(|mode| {
            let mode = i32::from(csi_mode(mode, single_node_multi_writer)?);
            Ok(VolumeCapability {
                access_mode: Some(AccessMode { mode }),
                access_type: Some(access_type.clone()),
            })
        })
        .collect()
}

/// Maps each mode independently, as external-provisioner does.
fn csi_mode(mode: &str, single_node_multi_writer: bool) -> Result<Mode, Failure> {
    Ok(match (mode, single_node_multi_writer) {
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
        ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
        ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
        ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
        (other, _) => {
            return Err(Failure::new(format!("unsupported AccessMode combination: [{other}]")));
        }
    })
}

fn access_type(claim: &Claim, class: &StorageClass, fs_type: &str) -> AccessType {
    if is_block(claim) {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: class.mount_options.clone(),
            volume_mount_group: String::new(),
        })
    }
}

/// Whether the claim asks for a raw block device.
pub(super) fn is_block(claim: &Claim) -> bool {
    claim.spec.volume_mode.as_deref() == Some("Block")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_modes_are_refused() {
        let refusal = |modes: &[&str]| {
            let claim = serde_json::from_value(json!({"spec": {"accessModes": modes}})).unwrap();
            volume_capabilities(&claim, &StorageClass::default(), "", true).unwrap_err().to_string()
        };
        assert_eq!(refusal(&["ReadMaybe"]), "unsupported AccessMode combination: [ReadMaybe]");
        assert!(refusal(&["ReadWriteOnce", "readwriteonce"]).contains("[readwriteonce]"));
        assert!(refusal(&[""]).ends_with("[]"));
    }
}
