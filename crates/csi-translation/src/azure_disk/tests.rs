use serde_json::{Value, json};

use super::*;
use crate::testing::{affinity, affinity_of, allowed, class, in_tree};

const URI: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk-1";

#[test]
fn classes() {
    let zone = "topology.kubernetes.io/zone";
    let table = [
        (json!({"fsType": "xfs"}), json!([]), json!({"fsType": "xfs"}), json!([])),
        (
            json!({"zone": "westeurope-1"}),
            json!([]),
            json!({}),
            json!([[[ZONE, ["westeurope-1"]]]]),
        ),
        // Fault domains of a region without zones.
        (json!({"zones": "0,17,z1,"}), json!([]), json!({}), json!([[[ZONE, ["", "", "z1", ""]]]])),
        (json!({}), allowed(zone, &["1", "1a"]), json!({}), json!([[[ZONE, ["", "1a"]]]])),
        (json!({}), allowed("rack", &["1"]), json!({}), json!([[["rack", ["1"]]]])),
    ];
    for (given, allowed, parameters, topologies) in table {
        let expected = json!({"parameters": parameters, "topologies": topologies});
        assert_eq!(class(&PLUGIN, &given, &allowed), Ok(expected), "{given} {allowed}");
    }
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin_in_the_drivers_topology() {
    let terms = affinity(&[&[(ZONE, &["westeurope-1"])]]);
    let made = |csi: Value| {
        let made = in_tree(&PLUGIN, &csi, &terms).unwrap();
        assert_eq!(made["metadata"], json!({"name": "pv"}), "no labels");
        assert_eq!(affinity_of(&PLUGIN, &made), terms, "as it is");
        made["spec"]["azureDisk"].clone()
    };
    assert_eq!(
        made(json!({"volumeHandle": URI})),
        json!({"diskName": "disk-1", "diskURI": URI, "fsType": "", "readOnly": false, "kind": "Managed"})
    );
    assert_eq!(
        made(json!({"volumeHandle": URI, "fsType": "ext4", "readOnly": true,
                    "volumeAttributes": {"CachingMode": "None", "fsType": "xfs", "kind": "Dedicated"}})),
        json!({"diskName": "disk-1", "diskURI": URI, "fsType": "xfs", "readOnly": true,
               "kind": "Managed", "cachingMode": "None"})
    );
    assert_eq!(
        made(json!({"volumeHandle": URI, "fsType": "ext4",
                    "volumeAttributes": {"cachingmode": "", "fstype": ""}})),
        json!({"diskName": "disk-1", "diskURI": URI, "fsType": "ext4", "readOnly": false, "kind": "Managed"})
    );
}

#[test]
fn names_of_disks() {
    let table = [
        (URI, Ok("disk-1")),
        ("HTTPS://http://a/vhds/x.vhd", Ok("x.vhd")),
        ("https://a/vhds/b/vhds/c.vhd", Ok("c.vhd")),
        ("https://a/vhds/b/vhds/", Ok("b/vhds/")),
        ("xx/subscriptions//resourceGroups//providers/Microsoft.Compute/disks/d", Ok("d")),
        ("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/", Err(MANAGED_URI)),
        ("/subscriptions/resourceGroups/g/providers/Microsoft.Compute/disks/d", Err(MANAGED_URI)),
        ("/SUBSCRIPTIONS/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", Err(MANAGED_URI)),
        ("http", Err(MANAGED_URI)),
        ("", Err(MANAGED_URI)),
        ("https://a/disks/x.vhd", Err(UNMANAGED_URI)),
        ("https:/vhds/x.vhd", Err(UNMANAGED_URI)),
    ];
    for (uri, expected) in table {
        let expected = expected.map_err(|format| {
            format!("could not get disk name from {uri}, correct format: {format}")
        });
        assert_eq!(disk_name(uri).map_err(|why| why.to_string()), expected, "{uri}");
    }
}
