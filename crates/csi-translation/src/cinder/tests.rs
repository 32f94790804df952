use serde_json::json;

use super::*;
use crate::testing::{affinity, affinity_of, allowed, class, csi, in_tree};

#[test]
fn classes() {
    let table = [
        (json!({}), json!([]), json!({}), json!([])),
        (
            json!({"fstype": "ext3"}),
            json!([]),
            json!({"csi.storage.k8s.io/fstype": "ext3"}),
            json!([]),
        ),
        // Unlike other plugins' zones: the driver supports it.
        (json!({"availability": "nova"}), json!([]), json!({"availability": "nova"}), json!([])),
        (json!({"zone": "a"}), json!([]), json!({"zone": "a"}), json!([])),
        (
            json!({"zone": "a"}),
            allowed("failure-domain.beta.kubernetes.io/zone", &["nova"]),
            json!({"zone": "a"}),
            json!([[[ZONE, ["nova"]]]]),
        ),
        (json!({}), allowed("rack", &["r"]), json!({}), json!([[["rack", ["r"]]]])),
    ];
    for (given, allowed, parameters, topologies) in table {
        let expected = json!({"parameters": parameters, "topologies": topologies});
        assert_eq!(class(&PLUGIN, &given, &allowed), Ok(expected), "{given} {allowed}");
    }
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin_without_a_region() {
    let made = in_tree(
        &PLUGIN,
        &json!({"volumeHandle": "id", "fsType": "xfs", "readOnly": true}),
        &affinity(&[&[(ZONE, &["nova"])]]),
    )
    .unwrap();
    assert_eq!(
        made["spec"]["cinder"],
        json!({"volumeID": "id", "fsType": "xfs", "readOnly": true})
    );
    let zone = "topology.kubernetes.io/zone";
    assert_eq!(made["spec"]["nodeAffinity"], affinity(&[&[(zone, &["nova"])]]));
    assert_eq!(made["metadata"]["labels"], json!({zone: "nova"}));
}

#[test]
fn a_volume_of_the_plugin_is_one_of_the_driver() {
    let volume = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "nova"}},
                        "spec": {"cinder": {"volumeID": "id", "fsType": "xfs", "readOnly": true}}});
    assert_eq!(
        serde_json::to_value(csi(&PLUGIN, &volume).unwrap().source).unwrap(),
        json!({"driver": DRIVER, "volumeHandle": "id", "fsType": "xfs", "readOnly": true})
    );
    assert_eq!(affinity_of(&PLUGIN, &volume), affinity(&[&[(ZONE, &["nova"])]]));
}
