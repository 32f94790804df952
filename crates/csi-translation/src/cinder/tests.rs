use serde_json::json;

use super::*;
use crate::testing::{affinity, affinity_of, allowed, class, in_tree};

#[test]
fn classes() {
    let beta_zone = "failure-domain.beta.kubernetes.io/zone";
    let table = [
        (
            json!({"fstype": "ext3"}),
            json!([]),
            json!({"csi.storage.k8s.io/fstype": "ext3"}),
            json!([]),
        ),
        // Unlike other plugins' zones: the driver supports them.
        (
            json!({"zone": "a", "availability": "b"}),
            allowed(beta_zone, &["nova"]),
            json!({"zone": "a", "availability": "b"}),
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
    let csi = json!({"volumeHandle": "id", "fsType": "xfs", "readOnly": true});
    let terms = affinity(&[&[(ZONE, &["nova"])]]);
    let mut made = in_tree(&PLUGIN, &csi, &terms).unwrap();
    assert_eq!(
        made["spec"]["cinder"],
        json!({"volumeID": "id", "fsType": "xfs", "readOnly": true})
    );
    let zone = "topology.kubernetes.io/zone";
    assert_eq!(made["spec"]["nodeAffinity"], affinity(&[&[(zone, &["nova"])]]));
    assert_eq!(made["metadata"]["labels"], json!({zone: "nova"}));
    made["spec"]["nodeAffinity"] = json!(null);
    assert_eq!(affinity_of(&PLUGIN, &made), terms, "by the label");
}
