//! Translation errors, in external-provisioner's words.

/// Why a class or a PersistentVolume can't be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// Zones as parameters and as allowed topologies: ambiguous.
    #[error("cannot simultaneously set allowed topologies and zone/zones parameters")]
    ZonesTwice,
    /// A class of ceph's rbd without its administrator's secret.
    #[error("missing Ceph admin secret name")]
    NoAdminSecret,
    /// A class of ceph's rbd that does not say where its cluster is.
    #[error("missing Ceph monitors")]
    NoMonitors,
    /// The PersistentVolume has no CSI source.
    #[error("pv is nil or CSI source not defined on pv")]
    NotOfCsi,
    /// The PersistentVolume is not of the plugin that the driver took over from.
    #[error(
        "the PersistentVolume is not of the in-tree plugin {0}, from which the driver took over"
    )]
    OtherPlugin(&'static str),
    /// A partition that is not a number.
    #[error("{lead} to convert partition {partition} to integer: {why}")]
    Partition {
        /// The first word, which differs between plugins.
        lead: &'static str,
        /// The value.
        partition: String,
        /// Go's parse error.
        why: String,
    },
    /// A volume id of GCE with too few elements.
    #[error("failed to get id components.Got: {got}, wanted 6 components or more. ")]
    DiskIdElements {
        /// The number of elements.
        got: usize,
    },
    /// A URI of Azure without a disk name.
    #[error("could not get disk name from {uri}, correct format: {format}")]
    DiskUri {
        /// The URI.
        uri: String,
        /// The pattern it should match.
        format: &'static str,
    },
    /// A volume id of Azure file without account and share.
    #[error("error parsing volume id: {quoted}, should at least contain two #")]
    ShareId {
        /// The id, quoted.
        quoted: String,
    },
    /// The namespace of an Azure file share's secret is unknown.
    #[error("could not find a secret namespace in PersistentVolumeSource or ClaimRef")]
    NoSecretNamespace,
    /// An Azure disk of a kind that the driver does not support.
    #[error("kind({0}) is not supported in csi migration")]
    DiskKind(String),
    /// A malformed id of an EBS volume.
    #[error("failed to translate Kubernetes ID to EBS Volume ID {0}")]
    EbsId(String),
    /// The zones of a disk do not determine a region.
    #[error("failed to get region from zones: {0}")]
    DiskRegion(NoRegion),
    /// The zones of a new volume do not determine a region.
    #[error(
        "failed to translate topology. PV:{volume}. Error:Failed to handle region topology. error: {why}"
    )]
    Region {
        /// The PersistentVolume's name.
        volume: String,
        /// The cause.
        why: NoRegion,
    },
}

/// Why zones do not determine a region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRegion {
    /// There are none.
    #[error("no zones specified")]
    NoZones,
    /// A zone that is not one of AWS.
    #[error("Unexpected zone format: {0} is not a valid AWS zone")]
    Aws(String),
    /// A zone that is not one of GCE.
    #[error("zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {0}")]
    Gce(String),
    /// Zones of several regions.
    #[error("multiple or no regions gotten from zones, got: {0}")]
    Several(String),
}
