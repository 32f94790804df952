//! Why something can't be translated, in the original's words.

/// Why a class or a PersistentVolume can't be told in the other form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// Zones as parameters and as allowed topologies: which holds is unknown.
    #[error("cannot simultaneously set allowed topologies and zone/zones parameters")]
    ZonesTwice,
    /// A class of ceph's rbd without its administrator's secret.
    #[error("missing Ceph admin secret name")]
    NoAdminSecret,
    /// A class of ceph's rbd that does not say where its cluster is.
    #[error("missing Ceph monitors")]
    NoMonitors,
    /// The PersistentVolume to be translated has no CSI part.
    #[error("pv is nil or CSI source not defined on pv")]
    NotOfCsi,
    /// The PersistentVolume is not of the plugin that the driver took over from.
    #[error(
        "the PersistentVolume is not of the in-tree plugin {0}, from which the driver took over"
    )]
    OtherPlugin(&'static str),
    /// A partition that is no number.
    #[error("{lead} to convert partition {partition} to integer: {why}")]
    Partition {
        /// The first word, which differs between plugins.
        lead: &'static str,
        /// What should be a number.
        partition: String,
        /// Go's words on it.
        why: String,
    },
    /// A volume id of GCE with too few elements.
    #[error("failed to get id components.Got: {got}, wanted 6 components or more. ")]
    DiskIdElements {
        /// How many there are.
        got: usize,
    },
    /// A URI of Azure that names no disk.
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
    /// Nothing says where the secret of an Azure file share is.
    #[error("could not find a secret namespace in PersistentVolumeSource or ClaimRef")]
    NoSecretNamespace,
    /// An Azure disk of a kind that the driver does not know.
    #[error("kind({0}) is not supported in csi migration")]
    DiskKind(String),
    /// The id of an EBS volume.
    #[error("failed to translate Kubernetes ID to EBS Volume ID {0}")]
    EbsId(String),
    /// Zones of a disk from which no region follows.
    #[error("failed to get region from zones: {0}")]
    DiskRegion(NoRegion),
    /// Zones of a new volume from which no region follows.
    #[error(
        "failed to translate topology. PV:{volume}. Error:Failed to handle region topology. error: {why}"
    )]
    Region {
        /// The PersistentVolume's name.
        volume: String,
        /// What is wrong with the zones.
        why: NoRegion,
    },
}

/// Why no region follows from zones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRegion {
    /// There are none.
    #[error("no zones specified")]
    NoZones,
    /// A zone that is none of AWS.
    #[error("Unexpected zone format: {0} is not a valid AWS zone")]
    Aws(String),
    /// A zone that is none of GCE.
    #[error("zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {0}")]
    Gce(String),
    /// Zones of several regions; these.
    #[error("multiple or no regions gotten from zones, got: {0}")]
    Several(String),
}
