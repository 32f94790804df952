use serde_json::{Value, json};

use super::*;
use crate::testing::{Term, affinity, affinity_of, class, handle, in_tree};

const KUBERNETES_ZONE: &str = "topology.kubernetes.io/zone";
const KUBERNETES_REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

#[test]
fn of_parameters_that_mean_the_same_one_counts() {
    let table = [
        (
            json!({"FsType": "xfs", "csi.storage.k8s.io/fstype": "ext3"}),
            json!({"csi.storage.k8s.io/fstype": "xfs"}),
            json!([]),
        ),
        (json!({"zone": "a,b"}), json!({}), json!([[[ZONE, ["a,b"]]]])),
        (json!({"zone": "a", "Zones": "b"}), json!({}), json!([[[ZONE, ["b"]]]])),
        (json!({"zones": ""}), json!({}), json!([[[ZONE, [""]]]])),
    ];
    for (given, parameters, topologies) in table {
        let expected = json!({"parameters": parameters, "topologies": topologies});
        assert_eq!(class(&PLUGIN, &given, &json!([])), Ok(expected), "{given}");
    }
}

#[test]
fn volumes_of_several_regions_get_no_label_for_one() {
    let terms = affinity(&[&[(ZONE, &["us-east-1a"])], &[(ZONE, &["us-west-2a"])]]);
    let made = in_tree(&PLUGIN, &json!({"volumeHandle": "vol-1"}), &terms).unwrap();
    assert_eq!(made["metadata"]["labels"], json!({KUBERNETES_ZONE: "us-east-1a__us-west-2a"}));
}

#[test]
fn a_foreign_volume_is_an_error() {
    let start =
        "failed to translate topology. PV:pv. Error:Failed to handle region topology. error: ";
    let table: [(Term<'_>, &str); 2] = [
        (&[("rack", &["r"])], "no zones specified"),
        (
            &[(ZONE, &["us-west-2a", "us-east-1a"])],
            "multiple or no regions gotten from zones, got: map[us-east-1:{} us-west-2:{}]",
        ),
    ];
    for (term, why) in table {
        let refused = in_tree(&PLUGIN, &json!({"volumeHandle": "v"}), &affinity(&[term]));
        assert_eq!(refused, Err(format!("{start}{why}")));
    }
}

#[test]
fn ids_of_volumes() {
    let id =
        |id: &str| handle(&PLUGIN, &json!({"spec": {"awsElasticBlockStore": {"volumeID": id}}}));
    for (given, expected) in [
        ("aws:///vol-02399794d890f9375", "vol-02399794d890f9375"),
        ("aws://us-west-2a//vol-1/", "vol-1"),
        ("aws://us-west-2a/vol-1-a_b", "vol-1-a_b"),
        ("aws://us_east.1/vol-1", "vol-1"),
        ("whatever/it is", "whatever/it is"),
    ] {
        assert_eq!(id(given).as_deref(), Ok(expected));
    }
    let start = "failed to translate Kubernetes ID to EBS Volume ID Invalid";
    let odd = ["aws://us-west-2a/02399794d890f9375", "aws://z/vol-1/x", "aws://vol-1", "aws://"];
    // Go's library takes the last two.
    for odd in odd.into_iter().chain(["aws://z/vol-1?q", "aws://z/vol-1%2d"]) {
        assert_eq!(id(odd), Err(format!("{start} format for AWS volume ({odd})")));
    }
    assert_eq!(
        id("aws://us east/vol-1"),
        Err(format!(
            r#"{start} disk name (aws://us east/vol-1): parse "aws://us east/vol-1": invalid character " " in host name"#
        ))
    );
}

/// csi-translation-lib's cases for all drivers whose only topology is a zone.
#[test]
fn topology_of_the_plugins_volumes() {
    let of = |labels: &Value, affinity: &Value| {
        let spec = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "nodeAffinity": affinity});
        affinity_of(&PLUGIN, &json!({"metadata": {"labels": labels}, "spec": spec}))
    };
    let (none, nothing) = (json!({}), json!(null));
    let zone = json!({KUBERNETES_ZONE: "a"});
    let table = [
        (&none, nothing.clone(), nothing.clone()),
        // Labels, without affinity.
        (&zone, nothing.clone(), affinity(&[&[(ZONE, &["a"])]])),
        (&json!({BETA_ZONE: "b__ a____b"}), nothing.clone(), affinity(&[&[(ZONE, &["a", "b"])]])),
        (&json!({KUBERNETES_ZONE: "__"}), nothing.clone(), nothing.clone()),
        (&json!({KUBERNETES_ZONE: "a", BETA_ZONE: "b"}), nothing, affinity(&[&[(ZONE, &["a"])]])),
        // The label is added to every term without zones.
        (
            &zone,
            affinity(&[&[("rack", &["r"])], &[("rack", &["s"])]]),
            affinity(&[&[("rack", &["r"]), (ZONE, &["a"])], &[("rack", &["s"]), (ZONE, &["a"])]]),
        ),
        // Affinity takes precedence; its older keys are removed.
        (
            &zone,
            affinity(&[&[(KUBERNETES_ZONE, &["of-affinity"])]]),
            affinity(&[&[(ZONE, &["of-affinity"])]]),
        ),
        (
            &none,
            affinity(&[&[(BETA_ZONE, &["a"]), (BETA_REGION, &["r"])]]),
            affinity(&[&[(ZONE, &["a"]), (KUBERNETES_REGION, &["r"])]]),
        ),
        // Of both keys the newer takes precedence.
        (
            &none,
            affinity(&[&[(BETA_ZONE, &["b"]), (KUBERNETES_ZONE, &["a"])]]),
            affinity(&[&[(BETA_ZONE, &["b"]), (ZONE, &["a"])]]),
        ),
    ];
    for (labels, given, expected) in table {
        assert_eq!(of(labels, &given), expected, "{labels} {given}");
    }
}

#[test]
fn regions_of_zones() {
    let table: [(&[&str], Option<&str>); 8] = [
        (&["us-west-2a", "us-west-2b"], Some("us-west-2")),
        (&["us-gov-east-1a"], Some("us-gov-east-1")),
        (&["us-east-1-wl1-bos-wlz-1"], Some("us-east-1")),
        (&["us-west-2-lax-1a"], Some("us-west-2")),
        (&["us-west-2"], None),
        (&["us-west-2ab"], None),
        (&["us-west"], None),
        (&["us-west-ü"], None),
    ];
    for (zones, expected) in table {
        assert_eq!(region_of(zones).ok().as_deref(), expected, "{zones:?}");
    }
}
