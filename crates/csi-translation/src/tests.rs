//! Properties of every plugin: which driver it belongs to, and that translating there and back
//! loses only what the single plugins' tables say.

use k8s_openapi::api::core::v1::PersistentVolume;
use proptest::prelude::*;
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

/// A driver's answer as a PersistentVolume, with the expected result of translating it there and
/// back.
#[derive(Debug, Clone)]
struct Answer {
    plugin: &'static Plugin,
    handle: String,
    attributes: Value,
    /// The expected handle afterwards.
    back: String,
    /// The driver's zone key, and zones.
    zone_key: &'static str,
    zones: Vec<String>,
}

fn answer(plugin: &'static Plugin, handle: String, zone_key: &'static str) -> Answer {
    Answer {
        plugin,
        back: handle.clone(),
        handle,
        attributes: json!({}),
        zone_key,
        zones: Vec::new(),
    }
}

/// Words that may occur in ids.
fn word() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9.-]{0,12}"
}

fn answers() -> impl Strategy<Value = Answer> {
    let zones = |of: &'static [&'static str]| {
        proptest::sample::subsequence(of, 0..=of.len())
            .prop_map(|zones| zones.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let ebs = (word(), 0..4_u8, zones(&["us-east-1a", "us-east-1b", "us-east-1c"])).prop_map(
        |(id, partition, zones)| Answer {
            attributes: json!({"partition": partition.to_string()}),
            zones,
            ..answer(&aws_ebs::PLUGIN, format!("vol-{id}"), "topology.ebs.csi.aws.com/zone")
        },
    );
    let gce = (word(), word(), zones(&["eu-west1-a", "eu-west1-b"])).prop_map(
        |(project, disk, zones)| {
            let place = match zones.as_slice() {
                [] => "zones/UNSPECIFIED".to_owned(),
                [zone] => format!("zones/{zone}"),
                _ => "regions/eu-west1".to_owned(),
            };
            Answer {
                // A PersistentVolume of the plugin does not contain the project.
                back: format!("projects/UNSPECIFIED/{place}/disks/{disk}"),
                zones,
                ..answer(
                    &gce_pd::PLUGIN,
                    format!("projects/{project}/{place}/disks/{disk}"),
                    "topology.gke.io/zone",
                )
            }
        },
    );
    let cinder = (word(), zones(&["nova", "other"])).prop_map(|(id, zones)| Answer {
        zones,
        ..answer(&cinder::PLUGIN, id, "topology.cinder.csi.openstack.org/zone")
    });
    let azure_disk =
        (word(), word(), zones(&["westeurope-1", ""])).prop_map(|(group, disk, zones)| {
            let uri = format!(
                "/subscriptions/s/resourceGroups/{group}/providers/Microsoft.Compute/disks/{disk}"
            );
            Answer { zones, ..answer(&azure_disk::PLUGIN, uri, "topology.disk.csi.azure.com/zone") }
        });
    let azure_file = (word(), word(), word()).prop_map(|(group, account, share)| Answer {
        // The id of such a volume ends in its name and its secret's namespace.
        back: format!("{group}#{account}#{share}#pv#default"),
        ..answer(&azure_file::PLUGIN, format!("{group}#{account}#{share}"), "none")
    });
    let vsphere = (word(), word(), zones(&["z1", "z2"])).prop_map(|(id, path, zones)| Answer {
        // The plugin identifies volumes by their path only.
        back: format!("[ds] {path}"),
        attributes: json!({"initialvolumefilepath": format!("[ds] {path}")}),
        zones,
        ..answer(&vsphere::PLUGIN, id, "topology.csi.vmware.com/zone")
    });
    let portworx = word().prop_map(|id| answer(&portworx::PLUGIN, id, "none"));
    let ceph = (word(), word()).prop_map(|(id, pool)| Answer {
        attributes: json!({"imageName": format!("csi-vol-{id}"), "pool": pool, "clusterID": "c"}),
        ..answer(&rbd::PLUGIN, format!("0001-{id}"), "none")
    });
    prop_oneof![ebs, gce, cinder, azure_disk, azure_file, vsphere, portworx, ceph]
}

impl Answer {
    /// The node affinity for the driver's zones, one term each.
    fn affinity(&self) -> Value {
        let term = |zone: &String| json!({"matchExpressions": [{"key": self.zone_key, "operator": "In", "values": [zone]}]});
        match self.zones.as_slice() {
            [] => json!(null),
            zones => {
                json!({"required": {"nodeSelectorTerms": zones.iter().map(term).collect::<Vec<_>>()}})
            }
        }
    }
}

/// Removes regions, which the plugins' volumes contain and the drivers' need not.
fn without_regions(affinity: Option<VolumeNodeAffinity>) -> Value {
    let mut affinity = serde_json::to_value(affinity).unwrap();
    let terms = affinity.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        let expressions = term["matchExpressions"].as_array_mut().unwrap();
        expressions.retain(|it| it["key"] != topology::REGION);
    }
    affinity
}

proptest! {
    #[test]
    fn a_driver_finds_its_volume_again(
        answer in answers(),
        fs_type in proptest::option::of("ext4|xfs"),
        read_only in any::<bool>(),
    ) {
        let csi = json!({"driver": answer.plugin.driver, "volumeHandle": answer.handle, "fsType": fs_type,
                         "readOnly": read_only, "volumeAttributes": answer.attributes});
        let affinity = answer.affinity();
        let made = json!({"metadata": {"name": "pv"}, "spec": {"csi": csi, "nodeAffinity": affinity}});
        let made: PersistentVolume = serde_json::from_value(made).unwrap();
        let in_tree = Migration(answer.plugin).to_in_tree(made.clone()).unwrap();
        // As the API server stores it and a watch delivers it.
        let stored = serde_json::to_value(&in_tree).unwrap();
        let CsiVolume { handle, attributes, node_affinity } = to_csi(answer.plugin, &stored).unwrap();
        prop_assert_eq!(&handle, &answer.back);
        prop_assert_eq!(without_regions(node_affinity), affinity);
        // It shows all that it was made of.
        let mut again = made;
        let csi = again.spec.as_mut().unwrap().csi.as_mut().unwrap();
        (csi.volume_handle, csi.volume_attributes) = (handle, Some(attributes));
        prop_assert_eq!(Migration(answer.plugin).to_in_tree(again).unwrap(), in_tree);
    }
}
