use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::*;
use crate::testing::{affinity, affinity_of, csi, in_tree, parameters, translated};

#[test]
fn one_secret_becomes_all_but_the_one_for_changes() {
    let given = json!({"repl": "1", "OpenStorage.io/auth-secret-name": "tok",
                       "openstorage.io/auth-secret-namespace": "${pvc.namespace}"});
    let mut expected = json!({"repl": "1"});
    for purpose in PURPOSES {
        expected[format!("csi.storage.k8s.io/{purpose}-secret-name")] = json!("tok");
        expected[format!("csi.storage.k8s.io/{purpose}-secret-namespace")] =
            json!("${pvc.namespace}");
    }
    assert_eq!(parameters(&PLUGIN, &given), expected);
}

#[test]
fn other_parameters_stay() {
    for given in [json!({}), json!({"fsType": "xfs", "repl": "2"})] {
        assert_eq!(parameters(&PLUGIN, &given), given);
    }
    let class = translated(&PLUGIN, StorageClass::default()).unwrap();
    assert_eq!(
        class.provisioner, DRIVER,
        "unlike other plugins' classes, as in external-provisioner"
    );
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let terms = affinity(&[&[("any", &["v"])]]);
    let csi = json!({"volumeHandle": "id", "fsType": "ext4", "readOnly": true,
                     "volumeAttributes": {"attached": "no"}, "nodeStageSecretRef": {"name": "lost"}});
    let made = in_tree(&PLUGIN, &csi, &terms).unwrap();
    assert_eq!(
        made["spec"],
        json!({"portworxVolume": {"volumeID": "id", "fsType": "ext4", "readOnly": true}, "nodeAffinity": terms})
    );
}

#[test]
fn a_volume_of_the_plugin_is_one_of_the_driver() {
    let terms = affinity(&[&[("any", &["v"])]]);
    let mut volume = json!({"spec": {
        "portworxVolume": {"volumeID": "id", "fsType": "ext4", "readOnly": true}, "nodeAffinity": terms}});
    let translated =
        |volume: &Value| serde_json::to_value(csi(&PLUGIN, volume).unwrap().source).unwrap();
    let bare = json!({"driver": DRIVER, "volumeHandle": "id", "fsType": "ext4"});
    assert_eq!(translated(&volume), bare);
    assert_eq!(affinity_of(&PLUGIN, &volume), terms);
    volume["metadata"]["annotations"] = json!({AUTH_SECRET_NAME: "tok"});
    assert_eq!(translated(&volume), bare, "half a secret is none");
    volume["metadata"]["annotations"][AUTH_SECRET_NAMESPACE] = json!("ns");
    let secret = json!({"name": "tok", "namespace": "ns"});
    assert_eq!(
        translated(&volume),
        json!({"driver": DRIVER, "volumeHandle": "id", "fsType": "ext4",
               "controllerPublishSecretRef": secret, "nodeStageSecretRef": secret,
               "nodePublishSecretRef": secret, "controllerExpandSecretRef": secret,
               "nodeExpandSecretRef": secret})
    );
}
