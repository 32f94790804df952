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

    fn modes(modes: &[&str], single_node_multi_writer: bool) -> Result<Vec<Mode>, String> {
        let claim: Claim = serde_json::from_value(json!({"spec": {"accessModes": modes}})).unwrap();
        volume_capabilities(&claim, &StorageClass::default(), "", single_node_multi_writer)
            .map(|capabilities| {
                capabilities.iter().map(|c| c.access_mode.unwrap().mode()).collect()
            })
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn each_mode_maps_on_its_own() {
        let all = ["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany"];
        let (reader, writer) = (Mode::MultiNodeReaderOnly, Mode::MultiNodeMultiWriter);
        let plain = vec![Mode::SingleNodeWriter, Mode::SingleNodeWriter, reader, writer];
        let multi = vec![Mode::SingleNodeMultiWriter, Mode::SingleNodeSingleWriter, reader, writer];
        assert_eq!(modes(&all, false), Ok(plain));
        assert_eq!(modes(&all, true), Ok(multi));
        assert_eq!(modes(&[], false), Ok(vec![]));
        // external-provisioner's mapping library would refuse some combinations, but is called with
        // one mode at a time.
        for (multi, pod) in [(false, Mode::SingleNodeWriter), (true, Mode::SingleNodeSingleWriter)]
        {
            let (pods, reads) = ("ReadWriteOncePod", "ReadOnlyMany");
            assert_eq!(modes(&[pods, reads], multi), Ok(vec![pod, reader]));
            assert_eq!(modes(&[reads, pods], multi), Ok(vec![reader, pod]));
        }
        assert_eq!(modes(&["ReadWriteMany"; 2], true), Ok(vec![writer; 2]), "one for each");
        assert!(modes(&["ReadWriteOnce", "readwriteonce"], true).is_err());
        assert!(modes(&[""], false).is_err());
        assert_eq!(
            modes(&["ReadMaybe"], false),
            Err("unsupported AccessMode combination: [ReadMaybe]".into())
        );
    }

    #[test]
    fn block_claims_have_no_file_system() {
        let claim: Claim = serde_json::from_value(
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}}),
        )
        .unwrap();
        let class: StorageClass =
            serde_json::from_value(json!({"mountOptions": ["discard"]})).unwrap();
        let block = volume_capabilities(&claim, &class, "ext4", false).unwrap();
        assert_eq!(block[0].access_type, Some(AccessType::Block(BlockVolume {})));
        let mount = volume_capabilities(
            &Claim {
                spec: crate::kube::objects::ClaimSpec { volume_mode: None, ..claim.spec },
                ..claim
            },
            &class,
            "ext4",
            false,
        )
        .unwrap();
        let Some(AccessType::Mount(mount)) = &mount[0].access_type else { panic!("{mount:?}") };
        assert_eq!(
            (mount.fs_type.as_str(), mount.mount_flags.as_slice()),
            ("ext4", ["discard".to_owned()].as_slice())
        );
    }
}
