//! The keys of StorageClass parameters that are reserved for the provisioner.
//!
//! Their meaning belongs to `parameters` and `secrets`.

/// Parameters with this prefix are for the provisioner, never for the driver.
pub(super) const RESERVED_PREFIX: &str = "csi.storage.k8s.io/";
/// The file system type.
pub(super) const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// Its older name, in any case; also passed to the driver.
pub(super) const OLD_FS_TYPE: &str = "fstype";

/// Whether a key with the reserved prefix is known.
pub(super) fn is_known(key: &str) -> bool {
    key == FS_TYPE || SecretKeys::ALL.iter().any(|keys| key == keys.name || key == keys.namespace)
}

/// The parameters that name the secret for one use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SecretKeys {
    /// The use's name in messages.
    pub(super) label: &'static str,
    /// The key of the name's template.
    pub(super) name: &'static str,
    /// The key of the namespace's template.
    pub(super) namespace: &'static str,
    /// The older keys of both, still supported; also passed to the driver.
    pub(super) deprecated: Option<(&'static str, &'static str)>,
}

macro_rules! secret_keys {
    ($label:literal, $infix:literal) => {
        SecretKeys {
            label: $label,
            name: concat!("csi.storage.k8s.io/", $infix, "-name"),
            namespace: concat!("csi.storage.k8s.io/", $infix, "-namespace"),
            deprecated: None,
        }
    };
    ($label:literal, $infix:literal, $old:literal) => {
        SecretKeys {
            deprecated: Some((concat!($old, "Name"), concat!($old, "Namespace"))),
            ..secret_keys!($label, $infix)
        }
    };
}

impl SecretKeys {
    /// Used for every use that a class names no secret for.
    pub(super) const DEFAULT: Self = secret_keys!("Default", "secret");
    /// For CreateVolume and DeleteVolume.
    pub(super) const PROVISIONER: Self =
        secret_keys!("Provisioner", "provisioner-secret", "csiProvisionerSecret");
    /// For ControllerPublishVolume.
    pub(super) const CONTROLLER_PUBLISH: Self = secret_keys!(
        "ControllerPublish",
        "controller-publish-secret",
        "csiControllerPublishSecret"
    );
    /// For NodeStageVolume.
    pub(super) const NODE_STAGE: Self =
        secret_keys!("NodeStage", "node-stage-secret", "csiNodeStageSecret");
    /// For NodePublishVolume.
    pub(super) const NODE_PUBLISH: Self =
        secret_keys!("NodePublish", "node-publish-secret", "csiNodePublishSecret");
    /// For ControllerExpandVolume.
    pub(super) const CONTROLLER_EXPAND: Self =
        secret_keys!("ControllerExpand", "controller-expand-secret");
    /// For NodeExpandVolume.
    pub(super) const NODE_EXPAND: Self = secret_keys!("NodeExpand", "node-expand-secret");
    /// For ControllerModifyVolume.
    pub(super) const CONTROLLER_MODIFY: Self =
        secret_keys!("ControllerModify", "controller-modify-secret");
    /// For DeleteVolume, with the feature gate `CephRBDExtensions`; reserved only with the gate.
    pub(super) const DELETION: Self = secret_keys!("Deletion", "delete-secret");

    /// The keys that are valid in every class.
    pub(super) const ALL: [Self; 8] = [
        Self::DEFAULT,
        Self::PROVISIONER,
        Self::CONTROLLER_PUBLISH,
        Self::NODE_STAGE,
        Self::NODE_PUBLISH,
        Self::CONTROLLER_EXPAND,
        Self::NODE_EXPAND,
        Self::CONTROLLER_MODIFY,
    ];
}
