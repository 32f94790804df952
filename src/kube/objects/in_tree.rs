//! Sources of PersistentVolumes of in-tree plugins that were migrated to CSI.
//!
//! A PersistentVolume of another kind costs one empty pointer. [`migration`](crate::migration)
//! translates the sources.

use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::{ClaimReference, CsiSource, VolumeSpec};

/// Declares the plugins, for views and for complete objects.
macro_rules! in_tree_sources {
    ($($(#[$doc:meta])* $plugin:ident { $field:ident: $source:ident, id: $id:ident },)*) => {
        /// The source of an in-tree plugin in a PersistentVolume.
        #[derive(Debug, Clone, PartialEq)]
        pub enum InTreeSource {
            $($(#[$doc])* $plugin(core::$source),)*
        }

        impl InTreeSource {
            /// The number of plugins: tests have a sample of each.
            #[cfg(test)]
            pub(super) const PLUGINS: usize = [$(stringify!($plugin)),*].len();

            /// The in-tree source in the spec of a complete PersistentVolume.
            pub fn of(spec: &core::PersistentVolumeSpec) -> Option<Self> {
                $(if let Some(source) = &spec.$field {
                    return Some(Self::$plugin(source.clone()));
                })*
                None
            }

            /// The volume's id in the source; the server's defaulting does not change it.
            pub fn id(&self) -> &str {
                match self {
                    $(Self::$plugin(source) => &source.$id,)*
                }
            }
        }

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
            $($field: Option<core::$source>,)*
        }

        impl From<RawVolumeSpec> for VolumeSpec {
            fn from(raw: RawVolumeSpec) -> Self {
                let mut in_tree = None;
                $(if let Some(source) = raw.$field {
                    in_tree = Some(Box::new(InTreeSource::$plugin(source)));
                })*
                Self {
                    claim_ref: raw.claim_ref,
                    csi: raw.csi,
                    in_tree,
                    node_affinity: raw.node_affinity,
                    persistent_volume_reclaim_policy: raw.persistent_volume_reclaim_policy,
                    storage_class_name: raw.storage_class_name,
                    volume_mode: raw.volume_mode,
                }
            }
        }
    };
}

in_tree_sources! {
    /// `kubernetes.io/aws-ebs`.
    AwsEbs { aws_elastic_block_store: AWSElasticBlockStoreVolumeSource, id: volume_id },
    /// `kubernetes.io/azure-disk`.
    AzureDisk { azure_disk: AzureDiskVolumeSource, id: disk_uri },
    /// `kubernetes.io/azure-file`.
    AzureFile { azure_file: AzureFilePersistentVolumeSource, id: share_name },
    /// `kubernetes.io/cinder`.
    Cinder { cinder: CinderPersistentVolumeSource, id: volume_id },
    /// `kubernetes.io/gce-pd`.
    GcePd { gce_persistent_disk: GCEPersistentDiskVolumeSource, id: pd_name },
    /// `kubernetes.io/portworx-volume`.
    Portworx { portworx_volume: PortworxVolumeSource, id: volume_id },
    /// `kubernetes.io/rbd`.
    Rbd { rbd: RBDPersistentVolumeSource, id: image },
    /// `kubernetes.io/vsphere-volume`.
    Vsphere { vsphere_volume: VsphereVirtualDiskVolumeSource, id: volume_path },
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::objects::Volume;

    /// Each plugin's field and source as the API server serializes them, with the volume's id.
    fn sources() -> [(&'static str, Value, &'static str); InTreeSource::PLUGINS] {
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
    fn a_view_and_the_complete_object_have_the_same_source() {
        for (field, part, id) in sources() {
            let spec = json!({field: part});
            let view: VolumeSpec = serde_json::from_value(spec.clone()).unwrap();
            let whole: core::PersistentVolumeSpec = serde_json::from_value(spec).unwrap();
            let source = view.in_tree.as_deref().expect(field);
            assert_eq!(InTreeSource::of(&whole).as_ref(), Some(source), "{field}");
            assert_eq!(source.id(), id, "{field}");
        }
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

    #[test]
    fn volumes_of_csi_and_of_other_plugins_have_no_in_tree_source() {
        for spec in [json!({"csi": {"driver": "d", "volumeHandle": "h"}}), json!({"nfs": {}})] {
            let view: VolumeSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(view.in_tree, None);
        }
    }
}
