use serde_json::{Value, json};

use super::*;
use crate::testing::{Term, affinity, affinity_of, allowed, class, csi, in_tree, parameters};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

#[test]
fn parameters_of_classes() {
    let table = [
        (json!({}), json!({MARK: "true"})),
        (json!({"unknownparam": "value"}), json!({MARK: "true"})),
        (json!({"csi.storage.k8s.io/fstype": "ext4"}), json!({MARK: "true"})),
        (json!({"fsType": "ext4"}), json!({"csi.storage.k8s.io/fstype": "ext4", MARK: "true"})),
        (
            json!({"storagePolicyName": "gold", "Datastore": "vsan", "diskformat": "thin"}),
            json!({"storagepolicyname": "gold", "datastore-migrationparam": "vsan",
                   "diskformat-migrationparam": "thin", MARK: "true"}),
        ),
        (
            json!({"hostFailuresToTolerate": "1", "forceProvisioning": "yes", "cacheReservation": "25",
                   "diskStripes": "4", "objectSpaceReservation": "10", "iopsLimit": "32"}),
            json!({"hostfailurestotolerate-migrationparam": "1", "forceprovisioning-migrationparam": "yes",
                   "cachereservation-migrationparam": "25", "diskstripes-migrationparam": "4",
                   "objectspacereservation-migrationparam": "10", "iopslimit-migrationparam": "32",
                   MARK: "true"}),
        ),
        (json!({"CSIMigration": "false"}), json!({MARK: "true"})),
    ];
    for (given, expected) in table {
        assert_eq!(parameters(&PLUGIN, &given), expected, "{given}");
    }
}

#[test]
fn zones_of_classes_are_renamed_and_regions_are_not() {
    let topologies = |allowed| class(&PLUGIN, &json!({}), &allowed).unwrap()["topologies"].clone();
    for key in [ZONE, BETA_ZONE] {
        assert_eq!(topologies(allowed(key, &["z1"])), json!([[[PLACES[0], ["z1"]]]]));
    }
    for key in [REGION, BETA_REGION] {
        assert_eq!(topologies(allowed(key, &["r1"])), json!([[[key, ["r1"]]]]));
    }
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let [zone, region] = PLACES;
    let csi = json!({"volumeHandle": "lost", "fsType": "xfs", "readOnly": true,
                     "volumeAttributes": {PATH: "[ds] v/x.vmdk", "type": "vSphere CNS"}});
    let terms: [Term<'_>; 2] =
        [&[(region, &["r1"]), (zone, &["z2"])], &[(region, &["r1"]), (zone, &["z1"])]];
    let made = in_tree(&PLUGIN, &csi, &affinity(&terms)).unwrap();
    assert_eq!(
        made["spec"]["vsphereVolume"],
        json!({"volumePath": "[ds] v/x.vmdk", "fsType": "xfs"})
    );
    assert_eq!(
        made["spec"]["nodeAffinity"],
        affinity(&[&[(REGION, &["r1"]), (ZONE, &["z2"])], &[(REGION, &["r1"]), (ZONE, &["z1"])]])
    );
    assert_eq!(made["metadata"]["labels"], json!({ZONE: "z1", REGION: "r1"}), "the first of each");
}

/// The API server rejects it: a path is required.
#[test]
fn a_volume_without_a_path_becomes_one_without() {
    let made = in_tree(&PLUGIN, &json!({"volumeHandle": "id"}), &json!(null)).unwrap();
    assert_eq!(made["spec"]["vsphereVolume"], json!({"volumePath": ""}));
    assert_eq!(made["metadata"], json!({"name": "pv"}), "no labels");
}

#[test]
fn a_volume_of_the_plugin_is_one_of_the_driver() {
    let translated = |disk: Value| {
        let translated = csi(&PLUGIN, &json!({"spec": {"vsphereVolume": disk}})).unwrap();
        serde_json::to_value(translated.source).unwrap()
    };
    assert_eq!(
        translated(json!({"volumePath": "[ds] v", "fsType": "ext4", "storagePolicyName": "gold",
                          "storagePolicyID": "1"})),
        json!({"driver": DRIVER, "volumeHandle": "[ds] v", "fsType": "ext4",
               "volumeAttributes": {"storagepolicyname": "gold"}})
    );
    assert_eq!(
        translated(json!({"volumePath": "[ds] v", "storagePolicyName": ""})),
        json!({"driver": DRIVER, "volumeHandle": "[ds] v", "volumeAttributes": {}})
    );
}

#[test]
fn topology_of_the_plugins_volumes() {
    let [zone, region] = PLACES;
    let of = |labels: Value, affinity: Value| {
        affinity_of(
            &PLUGIN,
            &json!({"metadata": {"labels": labels},
                    "spec": {"vsphereVolume": {"volumePath": "p"}, "nodeAffinity": affinity}}),
        )
    };
    assert_eq!(of(json!({}), json!(null)), json!(null));
    let both = affinity(&[&[(zone, &["z1"]), (region, &["r1"])]]);
    for (zone_key, region_key) in [(ZONE, REGION), (BETA_ZONE, BETA_REGION)] {
        assert_eq!(of(json!({zone_key: "z1", region_key: "r1"}), json!(null)), both);
        let terms = affinity(&[&[(zone_key, &["z1"]), (region_key, &["r1"])]]);
        assert_eq!(of(json!({}), terms), both);
    }
    assert_eq!(
        of(json!({ZONE: "z1__z2", REGION: ""}), json!(null)),
        affinity(&[&[(zone, &["z1__z2"])]]),
        "a label is one zone"
    );
}
