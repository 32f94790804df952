//! What translation needs of the views: the sources of in-tree plugins that were migrated to CSI.
//!
//! A PersistentVolume of another kind costs one empty pointer. The crate `csi-translation` translates
//! the sources.

use csi_translation::{Class, InTreeSource};
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::{ClaimReference, CsiSource, StorageClass, Volume, VolumeSpec};

/// The serialized form of [`VolumeSpec`].
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawVolumeSpec {
    claim_ref: Option<ClaimReference>,
    csi: Option<CsiSource>,
    node_affinity: Option<core::VolumeNodeAffinity>,
    persistent_volume_reclaim_policy: String,
    storage_class_name: String,
    volume_mode: Option<String>,
    aws_elastic_block_store: Option<core::AWSElasticBlockStoreVolumeSource>,
    azure_disk: Option<core::AzureDiskVolumeSource>,
    azure_file: Option<core::AzureFilePersistentVolumeSource>,
    cinder: Option<core::CinderPersistentVolumeSource>,
    gce_persistent_disk: Option<core::GCEPersistentDiskVolumeSource>,
    portworx_volume: Option<core::PortworxVolumeSource>,
    rbd: Option<core::RBDPersistentVolumeSource>,
    vsphere_volume: Option<core::VsphereVirtualDiskVolumeSource>,
}

impl From<RawVolumeSpec> for VolumeSpec {
    fn from(raw: RawVolumeSpec) -> Self {
        let sources = [
            raw.aws_elastic_block_store.map(InTreeSource::AwsEbs),
            raw.azure_disk.map(InTreeSource::AzureDisk),
            raw.azure_file.map(InTreeSource::AzureFile),
            raw.cinder.map(InTreeSource::Cinder),
            raw.gce_persistent_disk.map(InTreeSource::GcePd),
            raw.portworx_volume.map(InTreeSource::Portworx),
            raw.rbd.map(InTreeSource::Rbd),
            raw.vsphere_volume.map(InTreeSource::Vsphere),
        ];
        Self {
            claim_ref: raw.claim_ref,
            csi: raw.csi,
            in_tree: sources.into_iter().flatten().next().map(Box::new),
            node_affinity: raw.node_affinity,
            persistent_volume_reclaim_policy: raw.persistent_volume_reclaim_policy,
            storage_class_name: raw.storage_class_name,
            volume_mode: raw.volume_mode,
        }
    }
}

impl StorageClass {
    /// The parts that translation changes.
    pub fn translatable(&mut self) -> Class<'_> {
        Class {
            provisioner: &mut self.provisioner,
            parameters: &mut self.parameters,
            allowed_topologies: &mut self.allowed_topologies,
        }
    }
}

impl Volume {
    /// What translation reads.
    pub fn translatable(&self) -> csi_translation::Volume<'_> {
        csi_translation::Volume {
            name: self.metadata.name.as_deref().unwrap_or_default(),
            labels: &self.metadata.labels,
            annotations: &self.metadata.annotations,
            claim_namespace: self.spec.claim_ref.as_ref().map_or("", |claim| &claim.namespace),
            node_affinity: self.spec.node_affinity.as_ref(),
            in_tree: self.spec.in_tree.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Each plugin's field and source as the API server serializes them, with the volume's id.
    fn sources() -> [(&'static str, Value, &'static str); 8] {
        [
            ("awsElasticBlockStore", json!({"volumeID": "vol-1", "partition": 1}), "vol-1"),
            ("azureDisk", json!({"diskName": "d", "diskURI": "/uri"}), "/uri"),
            ("azureFile", json!({"shareName": "share", "secretName": "s"}), "share"),
            ("cinder", json!({"volumeID": "c-1"}), "c-1"),
            ("gcePersistentDisk", json!({"pdName": "disk"}), "disk"),
            ("portworxVolume", json!({"volumeID": "px-1"}), "px-1"),
            ("rbd", json!({"image": "img", "monitors": ["m:6789"]}), "img"),
            ("vsphereVolume", json!({"volumePath": "[ds] v"}), "[ds] v"),
        ]
    }

    #[test]
    fn the_source_id_is_that_of_the_volumes_own_source() {
        let csi = ("csi", json!({"driver": "d", "volumeHandle": "h"}), "h");
        for (field, part, id) in sources().into_iter().chain([csi, ("nfs", json!({}), "")]) {
            let volume = json!({"spec": {field: part}});
            let view: Volume = serde_json::from_value(volume.clone()).unwrap();
            let whole: core::PersistentVolume = serde_json::from_value(volume).unwrap();
            assert_eq!((view.source_id(), &*Volume::source_id_of(&whole)), (id, id), "{field}");
        }
        assert_eq!(Volume::source_id_of(&core::PersistentVolume::default()), "");
    }
}
