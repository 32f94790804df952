use serde_json::{Value, json};

use super::*;
use crate::testing::{Term, affinity, affinity_of, in_tree};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

#[test]
fn labels_have_the_first_zone_and_region_of_several_terms() {
    let [zone, region] = PLACES;
    let terms: [Term<'_>; 2] =
        [&[(region, &["r1"]), (zone, &["z2"])], &[(region, &["r1"]), (zone, &["z1"])]];
    let made = in_tree(&PLUGIN, &json!({"volumeHandle": "lost"}), &affinity(&terms)).unwrap();
    assert_eq!(
        made["spec"]["nodeAffinity"],
        affinity(&[&[(REGION, &["r1"]), (ZONE, &["z2"])], &[(REGION, &["r1"]), (ZONE, &["z1"])]])
    );
    assert_eq!(made["metadata"]["labels"], json!({ZONE: "z1", REGION: "r1"}));
    // The API server refuses a volume without a path.
    assert_eq!(made["spec"]["vsphereVolume"], json!({"volumePath": ""}));
}

#[test]
fn topology_of_the_plugins_volumes() {
    let [zone, region] = PLACES;
    let of = |labels: Value, affinity: Value| {
        let spec = json!({"vsphereVolume": {"volumePath": "p"}, "nodeAffinity": affinity});
        affinity_of(&PLUGIN, &json!({"metadata": {"labels": labels}, "spec": spec}))
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
