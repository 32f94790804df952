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
    key == FS_TYPE
        || SecretKind::ALL.iter().any(|kind| {
            let keys = kind.keys();
            key == keys.name || key == keys.namespace
        })
}

/// What a secret is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretKind {
    /// Used for every kind that a class does not name.
    Default,
    /// CreateVolume and DeleteVolume.
    Provisioner,
    /// ControllerPublishVolume.
    ControllerPublish,
    /// NodeStageVolume.
    NodeStage,
    /// NodePublishVolume.
    NodePublish,
    /// ControllerExpandVolume.
    ControllerExpand,
    /// NodeExpandVolume.
    NodeExpand,
    /// ControllerModifyVolume.
    ControllerModify,
    /// DeleteVolume, with the feature gate `CephRBDExtensions`; its keys are reserved only with the
    /// gate.
    Deletion,
}

/// The parameters that name a kind of secret.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecretKeys {
    /// The kind's name in messages.
    pub(super) label: &'static str,
    /// The key of the name's template.
    pub(super) name: &'static str,
    /// The key of the namespace's template.
    pub(super) namespace: &'static str,
    /// The older keys of both, still supported; also passed to the driver.
    pub(super) deprecated: Option<(&'static str, &'static str)>,
}

impl SecretKind {
    /// The keys that are valid in every class.
    pub(super) const ALL: [Self; 8] = [
        Self::Default,
        Self::Provisioner,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
        Self::ControllerModify,
    ];

    pub(super) const fn keys(self) -> SecretKeys {
        macro_rules! keys {
            ($label:literal, $infix:literal, $deprecated:expr) => {
                SecretKeys {
                    label: $label,
                    name: concat!("csi.storage.k8s.io/", $infix, "-name"),
                    namespace: concat!("csi.storage.k8s.io/", $infix, "-namespace"),
                    deprecated: $deprecated,
                }
            };
        }
        match self {
            Self::Default => keys!("Default", "secret", None),
            Self::Provisioner => keys!(
                "Provisioner",
                "provisioner-secret",
                Some(("csiProvisionerSecretName", "csiProvisionerSecretNamespace"))
            ),
            Self::ControllerPublish => keys!(
                "ControllerPublish",
                "controller-publish-secret",
                Some(("csiControllerPublishSecretName", "csiControllerPublishSecretNamespace"))
            ),
            Self::NodeStage => keys!(
                "NodeStage",
                "node-stage-secret",
                Some(("csiNodeStageSecretName", "csiNodeStageSecretNamespace"))
            ),
            Self::NodePublish => keys!(
                "NodePublish",
                "node-publish-secret",
                Some(("csiNodePublishSecretName", "csiNodePublishSecretNamespace"))
            ),
            Self::ControllerExpand => keys!("ControllerExpand", "controller-expand-secret", None),
            Self::NodeExpand => keys!("NodeExpand", "node-expand-secret", None),
            Self::ControllerModify => keys!("ControllerModify", "controller-modify-secret", None),
            Self::Deletion => keys!("Deletion", "delete-secret", None),
        }
    }
}
