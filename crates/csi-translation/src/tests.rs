//! Properties of every plugin: which driver it belongs to, and that others' volumes are not translated. That
//! translating there and back keeps a volume's identity is what the fuzz target checks.

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::*;
use crate::testing::to_csi;

/// Every plugin, including ceph's retired one.
fn all() -> impl Iterator<Item = &'static Plugin> {
    PLUGINS.into_iter().chain([&rbd::PLUGIN])
}

#[test]
fn each_driver_took_over_from_one_plugin() {
    let pairs = [
        ("ebs.csi.aws.com", "kubernetes.io/aws-ebs"),
        ("disk.csi.azure.com", "kubernetes.io/azure-disk"),
        ("file.csi.azure.com", "kubernetes.io/azure-file"),
        ("cinder.csi.openstack.org", "kubernetes.io/cinder"),
        ("pd.csi.storage.gke.io", "kubernetes.io/gce-pd"),
        ("pxd.portworx.com", "kubernetes.io/portworx-volume"),
        ("csi.vsphere.vmware.com", "kubernetes.io/vsphere-volume"),
    ];
    for (driver, in_tree) in pairs {
        for rbd in [false, true] {
            let found = Migration::of_driver(driver, rbd).map(Migration::in_tree_name);
            assert_eq!(found, Some(in_tree));
        }
    }
    assert!(Migration::of_driver("disk.example.com", true).is_none());
    // The retired plugin is included only on request.
    let rbd = |gate| Migration::of_driver("rbd.csi.ceph.com", gate).map(Migration::in_tree_name);
    assert_eq!((rbd(false), rbd(true)), (None, Some("kubernetes.io/rbd")));
}

/// A PersistentVolume of each plugin.
fn part(plugin: &Plugin) -> Value {
    match plugin.in_tree {
        "kubernetes.io/aws-ebs" => json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}),
        "kubernetes.io/azure-disk" => json!({"azureDisk": {"diskName": "d", "diskURI": "u"}}),
        "kubernetes.io/azure-file" => {
            json!({"azureFile": {"shareName": "s", "secretName": "n", "secretNamespace": "ns"}})
        }
        "kubernetes.io/cinder" => json!({"cinder": {"volumeID": "v"}}),
        "kubernetes.io/gce-pd" => json!({"gcePersistentDisk": {"pdName": "d"}}),
        "kubernetes.io/portworx-volume" => json!({"portworxVolume": {"volumeID": "v"}}),
        "kubernetes.io/rbd" => json!({"rbd": {"image": "i", "monitors": ["m"]}}),
        "kubernetes.io/vsphere-volume" => json!({"vsphereVolume": {"volumePath": "p"}}),
        other => panic!("{other}"),
    }
}

#[test]
fn only_the_plugins_own_volumes_are_translated() {
    for plugin in all() {
        for other in all() {
            let translated = to_csi(plugin, &json!({"spec": part(other)}));
            let own = plugin.in_tree == other.in_tree;
            assert_eq!(translated.is_ok(), own, "{} {}", plugin.in_tree, other.in_tree);
        }
        assert_eq!(to_csi(plugin, &json!({})), Err(Untranslatable::OtherPlugin(plugin.in_tree)));
        let none = Migration(plugin).to_in_tree(PersistentVolume::default());
        let text = none.unwrap_err().to_string();
        assert_eq!(text, "pv is nil or CSI source not defined on pv");
    }
}
