use serde_json::{Value, json};

use super::*;
use crate::testing::{
    Term, affinity, affinity_of, allowed, class, csi, handle, in_tree, parameters,
};

const KUBERNETES_ZONE: &str = "topology.kubernetes.io/zone";
const KUBERNETES_REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

#[test]
fn parameters_of_classes() {
    let table = [
        (json!({}), json!({})),
        (json!({"foo": "bar"}), json!({"foo": "bar"})),
        (json!({"fstype": "ext3"}), json!({"csi.storage.k8s.io/fstype": "ext3"})),
        (
            json!({"FsType": "xfs", "csi.storage.k8s.io/fstype": "ext3"}),
            json!({"csi.storage.k8s.io/fstype": "xfs"}),
        ),
        (
            json!({"iopsPerGB": "100"}),
            json!({"iopsPerGB": "100", "allowautoiopspergbincrease": "true"}),
        ),
        (json!({"zone": "a", "Zones": "b", "type": "gp2"}), json!({"type": "gp2"})),
    ];
    for (given, expected) in table {
        assert_eq!(parameters(&PLUGIN, &given), expected, "{given}");
    }
}

#[test]
fn zones_of_classes_become_topologies() {
    let topologies = |parameters: Value, allowed: Value| {
        class(&PLUGIN, &parameters, &allowed).map(|class| class["topologies"].clone())
    };
    assert_eq!(topologies(json!({}), json!([])), Ok(json!([])));
    assert_eq!(topologies(json!({"zone": "a,b"}), json!([])), Ok(json!([[[ZONE, ["a,b"]]]])));
    // Split at commas and nothing else.
    assert_eq!(topologies(json!({"ZONES": "a, b"}), json!([])), Ok(json!([[[ZONE, ["a", " b"]]]])));
    assert_eq!(topologies(json!({"zones": ""}), json!([])), Ok(json!([[[ZONE, [""]]]])));
    for key in [KUBERNETES_ZONE, BETA_ZONE, ZONE] {
        assert_eq!(topologies(json!({}), allowed(key, &["a"])), Ok(json!([[[ZONE, ["a"]]]])));
    }
    assert_eq!(topologies(json!({}), allowed("rack", &["r"])), Ok(json!([[["rack", ["r"]]]])));
    assert_eq!(
        topologies(json!({"zone": "a"}), allowed(ZONE, &["a"])),
        Err("cannot simultaneously set allowed topologies and zone/zones parameters".into())
    );
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let made = in_tree(
        &PLUGIN,
        &json!({"volumeHandle": "vol-1", "fsType": "xfs", "readOnly": true,
                "volumeAttributes": {"partition": "3", "identity": "lost"}}),
        &affinity(&[&[(ZONE, &["us-east-1b"])], &[(ZONE, &["us-east-1a"]), ("rack", &["r"])]]),
    )
    .unwrap();
    assert_eq!(
        made["spec"]["awsElasticBlockStore"],
        json!({"volumeID": "vol-1", "fsType": "xfs", "readOnly": true, "partition": 3})
    );
    assert_eq!(
        made["spec"]["nodeAffinity"],
        affinity(&[
            &[(KUBERNETES_ZONE, &["us-east-1b"]), (KUBERNETES_REGION, &["us-east-1"])],
            &[
                (KUBERNETES_ZONE, &["us-east-1a"]),
                ("rack", &["r"]),
                (KUBERNETES_REGION, &["us-east-1"])
            ],
        ])
    );
    assert_eq!(
        made["metadata"]["labels"],
        json!({KUBERNETES_ZONE: "us-east-1a__us-east-1b", KUBERNETES_REGION: "us-east-1"})
    );
}

#[test]
fn volumes_of_several_regions_get_no_label_for_one() {
    let terms = affinity(&[&[(ZONE, &["us-east-1a"])], &[(ZONE, &["us-west-2a"])]]);
    let made = in_tree(&PLUGIN, &json!({"volumeHandle": "vol-1"}), &terms).unwrap();
    assert_eq!(made["metadata"]["labels"], json!({KUBERNETES_ZONE: "us-east-1a__us-west-2a"}));
}

#[test]
fn a_foreign_volume_is_an_error() {
    let refused = |csi: Value, terms: Value| in_tree(&PLUGIN, &csi, &terms).unwrap_err();
    assert_eq!(
        refused(json!({"volumeHandle": "v", "volumeAttributes": {"partition": ""}}), json!(null)),
        r#"failed to convert partition  to integer: strconv.Atoi: parsing "": invalid syntax"#
    );
    let start =
        "failed to translate topology. PV:pv. Error:Failed to handle region topology. error: ";
    let table: [(Term<'_>, &str); 3] = [
        (&[(ZONE, &["nowhere"])], "Unexpected zone format: nowhere is not a valid AWS zone"),
        (&[("rack", &["r"])], "no zones specified"),
        (
            &[(ZONE, &["us-west-2a", "us-east-1a"])],
            "multiple or no regions gotten from zones, got: map[us-east-1:{} us-west-2:{}]",
        ),
    ];
    for (term, why) in table {
        let refused = refused(json!({"volumeHandle": "v"}), affinity(&[term]));
        assert_eq!(refused, format!("{start}{why}"));
    }
}

#[test]
fn ids_of_volumes() {
    let id =
        |id: &str| handle(&PLUGIN, &json!({"spec": {"awsElasticBlockStore": {"volumeID": id}}}));
    let own = || Ok("vol-02399794d890f9375".to_owned());
    assert_eq!(id("vol-02399794d890f9375"), own());
    assert_eq!(id("aws:///vol-02399794d890f9375"), own());
    assert_eq!(id("aws://us-west-2a/vol-02399794d890f9375"), own());
    assert_eq!(id("aws://us-west-2a//vol-02399794d890f9375/"), own());
    assert_eq!(id("aws://us-west-2a/vol-1-a_b"), Ok("vol-1-a_b".to_owned()));
    assert_eq!(id("aws://us_east.1/vol-1"), Ok("vol-1".to_owned()));
    assert_eq!(id("whatever/it is"), Ok("whatever/it is".to_owned()));
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

#[test]
fn a_volume_of_the_plugin_is_one_of_the_driver() {
    let translated = csi(
        &PLUGIN,
        &json!({"spec": {"awsElasticBlockStore":
            {"volumeID": "aws://z/vol-1", "fsType": "ext4", "readOnly": true, "partition": 2}}}),
    );
    assert_eq!(
        serde_json::to_value(translated.unwrap().source).unwrap(),
        json!({"driver": DRIVER, "volumeHandle": "vol-1", "fsType": "ext4", "readOnly": true,
               "volumeAttributes": {"partition": "2"}})
    );
}

/// csi-translation-lib's cases for all drivers whose only topology is a zone.
#[test]
fn topology_of_the_plugins_volumes() {
    let ebs = json!({"volumeID": "vol-1"});
    let of = |labels: Value, affinity: &Value| {
        affinity_of(
            &PLUGIN,
            &json!({"metadata": {"labels": labels},
                    "spec": {"awsElasticBlockStore": ebs, "nodeAffinity": affinity}}),
        )
    };
    let nothing = json!(null);
    assert_eq!(of(json!({}), &nothing), nothing);
    // Labels, without affinity.
    assert_eq!(of(json!({KUBERNETES_ZONE: "a"}), &nothing), affinity(&[&[(ZONE, &["a"])]]));
    assert_eq!(of(json!({BETA_ZONE: "b__ a____b"}), &nothing), affinity(&[&[(ZONE, &["a", "b"])]]));
    assert_eq!(of(json!({KUBERNETES_ZONE: "__"}), &nothing), nothing);
    assert_eq!(
        of(json!({KUBERNETES_ZONE: "a", BETA_ZONE: "b"}), &nothing),
        affinity(&[&[(ZONE, &["a"])]])
    );
    // The label is added to every term without zones.
    assert_eq!(
        of(json!({KUBERNETES_ZONE: "a"}), &affinity(&[&[("rack", &["r"])], &[("rack", &["s"])]])),
        affinity(&[&[("rack", &["r"]), (ZONE, &["a"])], &[("rack", &["s"]), (ZONE, &["a"])]])
    );
    // Affinity takes precedence; its older keys are removed.
    assert_eq!(
        of(json!({KUBERNETES_ZONE: "label"}), &affinity(&[&[(KUBERNETES_ZONE, &["a"])]])),
        affinity(&[&[(ZONE, &["a"])]])
    );
    assert_eq!(
        of(json!({}), &affinity(&[&[(BETA_ZONE, &["a"]), (BETA_REGION, &["r"])]])),
        affinity(&[&[(ZONE, &["a"]), (KUBERNETES_REGION, &["r"])]])
    );
    // Of both keys the newer takes precedence.
    assert_eq!(
        of(json!({}), &affinity(&[&[(BETA_ZONE, &["b"]), (KUBERNETES_ZONE, &["a"])]])),
        affinity(&[&[(BETA_ZONE, &["b"]), (ZONE, &["a"])]])
    );
}

#[test]
fn regions_of_zones() {
    let table: [(&[&str], Option<&str>); 10] = [
        (&["us-west-2a", "us-west-2b"], Some("us-west-2")),
        (&["us-gov-east-1a"], Some("us-gov-east-1")),
        (&["us-east-1-wl1-bos-wlz-1"], Some("us-east-1")),
        (&["us-west-2-lax-1a"], Some("us-west-2")),
        (&[], None),
        (&["us-west-2a", "us-east-1a"], None),
        (&["us-west-2"], None),
        (&["us-west-2ab"], None),
        (&["us-west"], None),
        (&["us-west-ü"], None),
    ];
    for (zones, expected) in table {
        assert_eq!(region_of(zones).ok().as_deref(), expected, "{zones:?}");
    }
}
