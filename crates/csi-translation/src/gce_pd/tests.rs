use serde_json::{Value, json};

use super::*;
use crate::testing::{affinity, affinity_of, allowed, class, csi, handle, in_tree};

const KUBERNETES_ZONE: &str = "topology.kubernetes.io/zone";
const KUBERNETES_REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

#[test]
fn classes() {
    let table = [
        (json!({"foo": "bar"}), json!([]), json!({"foo": "bar"}), json!([])),
        (
            json!({"fstype": "myfs"}),
            json!([]),
            json!({"csi.storage.k8s.io/fstype": "myfs"}),
            json!([]),
        ),
        (json!({}), json!([]), json!({}), json!([])),
        (json!({"zone": "foo"}), json!([]), json!({}), json!([[[ZONE, ["foo"]]]])),
        (
            json!({"zones": "foo,bar,baz"}),
            json!([]),
            json!({}),
            json!([[[ZONE, ["foo", "bar", "baz"]]]]),
        ),
        (json!({}), allowed(ZONE, &["foo"]), json!({}), json!([[[ZONE, ["foo"]]]])),
        (json!({}), allowed(BETA_ZONE, &["foo"]), json!({}), json!([[[ZONE, ["foo"]]]])),
        (
            json!({"replication-type": "regional-pd"}),
            json!([]),
            json!({"replication-type": "regional-pd"}),
            json!([]),
        ),
    ];
    for (given, allowed, parameters, topologies) in table {
        let expected = json!({"parameters": parameters, "topologies": topologies});
        assert_eq!(class(&PLUGIN, &given, &allowed), Ok(expected), "{given} {allowed}");
    }
    assert!(class(&PLUGIN, &json!({"zone": "foo"}), &allowed(ZONE, &["foo"])).is_err());
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let made = in_tree(
        &PLUGIN,
        &json!({"volumeHandle": "projects/p/regions/us-central1/disks/disk-3/and/more",
                "fsType": "ext4", "volumeAttributes": {"partition": "7"}}),
        &affinity(&[&[(ZONE, &["us-central1-b"])], &[(ZONE, &["us-central1-a"])]]),
    )
    .unwrap();
    assert_eq!(
        made["spec"]["gcePersistentDisk"],
        json!({"pdName": "disk-3", "fsType": "ext4", "partition": 7})
    );
    assert_eq!(
        made["metadata"]["labels"],
        json!({KUBERNETES_ZONE: "us-central1-a__us-central1-b", KUBERNETES_REGION: "us-central1"})
    );
    let no_partition = json!({"volumeHandle": "projects/p/zones/z/disks/d", "volumeAttributes": {"partition": ""}});
    let made = in_tree(&PLUGIN, &no_partition, &json!(null)).unwrap();
    assert_eq!(made["spec"]["gcePersistentDisk"], json!({"pdName": "d"}));
}

#[test]
fn a_foreign_volume_is_an_error() {
    let refused = |csi: Value, terms: Value| in_tree(&PLUGIN, &csi, &terms).unwrap_err();
    assert_eq!(
        refused(json!({"volumeHandle": "projects/p/zones/z/disks"}), json!(null)),
        "failed to get id components.Got: 5, wanted 6 components or more. "
    );
    let disk = |partition| json!({"volumeHandle": "a/b/c/d/e/f", "volumeAttributes": {"partition": partition}});
    assert_eq!(
        refused(disk("x"), json!(null)),
        r#"Failed to convert partition x to integer: strconv.Atoi: parsing "x": invalid syntax"#
    );
    assert_eq!(
        refused(disk(""), affinity(&[&[(ZONE, &["us-central1"])]])),
        "failed to translate topology. PV:pv. Error:Failed to handle region topology. error: zone in unexpected format, expected: {locale}-{region}-{zone}, got: us-central1"
    );
}

#[test]
fn ids_follow_the_labels() {
    let id = |labels: Value| {
        handle(
            &PLUGIN,
            &json!({"metadata": {"labels": labels}, "spec": {"gcePersistentDisk": {"pdName": "pd"}}}),
        )
    };
    let table = [
        (json!({}), "zones/UNSPECIFIED"),
        (json!({BETA_ZONE: "us-east1-a"}), "zones/us-east1-a"),
        (json!({KUBERNETES_ZONE: "us-east1-a"}), "zones/us-east1-a"),
        (json!({BETA_ZONE: "us-central1-a__us-central1-c"}), "regions/us-central1"),
        (json!({KUBERNETES_ZONE: "us-central1-a__us-central1-c"}), "regions/us-central1"),
        // Only here the older label takes precedence.
        (json!({KUBERNETES_ZONE: "new-a-b", BETA_ZONE: "old-a-b"}), "zones/old-a-b"),
        (json!({KUBERNETES_ZONE: "new-a-b", BETA_ZONE: ""}), "zones/new-a-b"),
    ];
    for (labels, place) in table {
        let expected = format!("projects/UNSPECIFIED/{place}/disks/pd");
        assert_eq!(id(labels.clone()), Ok(expected), "{labels}");
    }
    assert_eq!(
        id(json!({KUBERNETES_ZONE: "us-central1-a__us-east1-b"})),
        Err("failed to get region from zones: multiple or no regions gotten from zones, got: map[us-central1:{} us-east1:{}]".into())
    );
    assert_eq!(
        id(json!({KUBERNETES_ZONE: "a__b"})),
        Err("failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: a".into())
    );
}

#[test]
fn a_volume_of_the_plugin_is_one_of_the_driver() {
    let volume = |disk: Value| json!({"metadata": {"labels": {KUBERNETES_ZONE: "us-east1-a"}}, "spec": {"gcePersistentDisk": disk}});
    let full = volume(json!({"pdName": "pd", "fsType": "ext4", "readOnly": true, "partition": 2}));
    assert_eq!(
        serde_json::to_value(csi(&PLUGIN, &full).unwrap().source).unwrap(),
        json!({"driver": DRIVER, "volumeHandle": "projects/UNSPECIFIED/zones/us-east1-a/disks/pd",
               "fsType": "ext4", "readOnly": true, "volumeAttributes": {"partition": "2"}})
    );
    let bare = volume(json!({"pdName": "pd", "partition": 0}));
    let attributes = csi(&PLUGIN, &bare).unwrap().source.volume_attributes.unwrap();
    assert_eq!(attributes["partition"], "", "no partition is an empty text");
    assert_eq!(affinity_of(&PLUGIN, &bare), affinity(&[&[(ZONE, &["us-east1-a"])]]));
}

#[test]
fn a_disk_is_the_same_with_or_without_its_project() {
    let reported = key("projects/p/zones/us-east1-a/disks/pd");
    assert_eq!(reported, key("projects/UNSPECIFIED/zones/us-east1-a/disks/pd"));
    assert_ne!(reported, key("projects/p/zones/us-east1-b/disks/pd"));
    assert_ne!(reported, key("projects/p/regions/us-east1/disks/pd"));
    assert_eq!((key("odd"), key("projects/odd")), ("odd", "projects/odd"));
}
