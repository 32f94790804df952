use serde_json::json;

use super::*;
use crate::testing::{affinity, affinity_of, handle, in_tree, parameters};

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
fn a_volume_keeps_its_affinity_as_it_is() {
    let terms = affinity(&[&[("any", &["v"])]]);
    let csi = json!({"volumeHandle": "id", "fsType": "ext4", "readOnly": true,
                     "volumeAttributes": {"attached": "no"}, "nodeStageSecretRef": {"name": "lost"}});
    let made = in_tree(&PLUGIN, &csi, &terms).unwrap();
    assert_eq!(
        made["spec"],
        json!({"portworxVolume": {"volumeID": "id", "fsType": "ext4", "readOnly": true}, "nodeAffinity": terms})
    );
    assert_eq!(handle(&PLUGIN, &made), Ok("id".to_owned()));
    assert_eq!(affinity_of(&PLUGIN, &made), terms);
}
