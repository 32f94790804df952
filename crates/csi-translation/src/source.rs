//! The sources of in-tree plugins in PersistentVolumes.

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFilePersistentVolumeSource,
    CinderPersistentVolumeSource, GCEPersistentDiskVolumeSource, PersistentVolumeSpec,
    PortworxVolumeSource, RBDPersistentVolumeSource, VsphereVirtualDiskVolumeSource,
};

/// The source of an in-tree plugin in a PersistentVolume.
#[derive(Debug, Clone, PartialEq)]
pub enum InTreeSource {
    /// `kubernetes.io/aws-ebs`.
    AwsEbs(AWSElasticBlockStoreVolumeSource),
    /// `kubernetes.io/azure-disk`.
    AzureDisk(AzureDiskVolumeSource),
    /// `kubernetes.io/azure-file`.
    AzureFile(AzureFilePersistentVolumeSource),
    /// `kubernetes.io/cinder`.
    Cinder(CinderPersistentVolumeSource),
    /// `kubernetes.io/gce-pd`.
    GcePd(GCEPersistentDiskVolumeSource),
    /// `kubernetes.io/portworx-volume`.
    Portworx(PortworxVolumeSource),
    /// `kubernetes.io/rbd`.
    Rbd(RBDPersistentVolumeSource),
    /// `kubernetes.io/vsphere-volume`.
    Vsphere(VsphereVirtualDiskVolumeSource),
}

impl InTreeSource {
    /// The in-tree source in the spec of a PersistentVolume.
    pub fn of(spec: &PersistentVolumeSpec) -> Option<Self> {
        let sources = [
            spec.aws_elastic_block_store.clone().map(Self::AwsEbs),
            spec.azure_disk.clone().map(Self::AzureDisk),
            spec.azure_file.clone().map(Self::AzureFile),
            spec.cinder.clone().map(Self::Cinder),
            spec.gce_persistent_disk.clone().map(Self::GcePd),
            spec.portworx_volume.clone().map(Self::Portworx),
            spec.rbd.clone().map(Self::Rbd),
            spec.vsphere_volume.clone().map(Self::Vsphere),
        ];
        sources.into_iter().flatten().next()
    }

    /// The volume's id in the source; the server's defaulting does not change it.
    pub fn id(&self) -> &str {
        match self {
            Self::AwsEbs(source) => &source.volume_id,
            Self::AzureDisk(source) => &source.disk_uri,
            Self::AzureFile(source) => &source.share_name,
            Self::Cinder(source) => &source.volume_id,
            Self::GcePd(source) => &source.pd_name,
            Self::Portworx(source) => &source.volume_id,
            Self::Rbd(source) => &source.image,
            Self::Vsphere(source) => &source.volume_path,
        }
    }
}
