//! PersistentVolumes of in-tree plugins, as far as CSI drivers took over from them.
//!
//! Owns which part of a PersistentVolume's spec such a plugin's volume stands in, and reading it.
//! A cluster without such volumes pays one empty pointer for each PersistentVolume that is kept.
//! Leaves what the parts mean to `migration`.

use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::{ClaimReference, CsiSource, VolumeSpec};

/// Declares the plugins once, for reading views and whole objects alike.
macro_rules! in_tree_sources {
    ($($(#[$doc:meta])* $plugin:ident { $field:ident: $source:ident, id: $id:ident },)*) => {
        /// An in-tree plugin's part of a PersistentVolume.
        #[derive(Debug, Clone, PartialEq)]
        pub enum InTreeSource {
            $($(#[$doc])* $plugin(core::$source),)*
        }

        impl InTreeSource {
            /// The in-tree part of a whole PersistentVolume's spec.
            pub fn of(spec: &core::PersistentVolumeSpec) -> Option<Self> {
                $(if let Some(source) = &spec.$field {
                    return Some(Self::$plugin(source.clone()));
                })*
                None
            }

            /// What the part calls its volume; the server's defaults do not change it.
            pub fn id(&self) -> &str {
                match self {
                    $(Self::$plugin(source) => &source.$id,)*
                }
            }
        }

        /// A PersistentVolume's spec as it is read.
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(super) struct Wire {
            claim_ref: Option<ClaimReference>,
            csi: Option<CsiSource>,
            node_affinity: Option<core::VolumeNodeAffinity>,
            persistent_volume_reclaim_policy: String,
            storage_class_name: String,
            volume_mode: Option<String>,
            $($field: Option<core::$source>,)*
        }

        impl From<Wire> for VolumeSpec {
            fn from(wire: Wire) -> Self {
                let mut in_tree = None;
                $(if let Some(source) = wire.$field {
                    in_tree = Some(Box::new(InTreeSource::$plugin(source)));
                })*
                Self {
                    claim_ref: wire.claim_ref,
                    csi: wire.csi,
                    in_tree,
                    node_affinity: wire.node_affinity,
                    persistent_volume_reclaim_policy: wire.persistent_volume_reclaim_policy,
                    storage_class_name: wire.storage_class_name,
                    volume_mode: wire.volume_mode,
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

    /// Each plugin's part as the API server writes it, with what it calls its volume.
    fn parts() -> [(&'static str, Value, &'static str); 8] {
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
    fn a_view_and_the_whole_object_read_the_same_part() {
        for (field, part, id) in parts() {
            let spec = json!({field: part});
            let view: VolumeSpec = serde_json::from_value(spec.clone()).unwrap();
            let whole: core::PersistentVolumeSpec = serde_json::from_value(spec).unwrap();
            let source = view.in_tree.as_deref().expect(field);
            assert_eq!(InTreeSource::of(&whole).as_ref(), Some(source), "{field}");
            assert_eq!(source.id(), id, "{field}");
        }
    }

    #[test]
    fn a_volume_is_known_by_what_its_own_part_calls_it() {
        let csi = ("csi", json!({"driver": "d", "volumeHandle": "h"}), "h");
        for (field, part, id) in parts().into_iter().chain([csi, ("nfs", json!({}), "")]) {
            let volume = json!({"spec": {field: part}});
            let view: Volume = serde_json::from_value(volume.clone()).unwrap();
            let whole: core::PersistentVolume = serde_json::from_value(volume).unwrap();
            assert_eq!((view.source_id(), &*Volume::source_id_of(&whole)), (id, id), "{field}");
        }
        assert_eq!(Volume::source_id_of(&core::PersistentVolume::default()), "");
    }

    #[test]
    fn volumes_of_csi_and_of_other_plugins_have_no_such_part() {
        for spec in [json!({"csi": {"driver": "d", "volumeHandle": "h"}}), json!({"nfs": {}})] {
            let view: VolumeSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(view.in_tree, None);
        }
    }
}
