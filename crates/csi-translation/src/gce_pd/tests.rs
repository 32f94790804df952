use serde_json::{Value, json};

use super::*;
use crate::testing::{affinity, affinity_of, csi, handle, in_tree};

const KUBERNETES_ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

#[test]
fn what_follows_the_name_in_a_handle_and_an_empty_partition_are_ignored() {
    let handle = "projects/p/zones/z/disks/disk-3/and/more";
    let volume = json!({"volumeHandle": handle, "volumeAttributes": {"partition": ""}});
    let made = in_tree(&PLUGIN, &volume, &json!(null)).unwrap();
    assert_eq!(made["spec"]["gcePersistentDisk"], json!({"pdName": "disk-3"}));
}

#[test]
fn a_zone_of_another_form_is_an_error() {
    let terms = affinity(&[&[(ZONE, &["us-central1"])]]);
    assert_eq!(
        in_tree(&PLUGIN, &json!({"volumeHandle": "a/b/c/d/e/f"}), &terms).unwrap_err(),
        "failed to translate topology. PV:pv. Error:Failed to handle region topology. error: zone in unexpected format, expected: {locale}-{region}-{zone}, got: us-central1"
    );
}

#[test]
fn ids_follow_the_labels() {
    let id = |labels: &Value| {
        let spec = json!({"gcePersistentDisk": {"pdName": "pd"}});
        handle(&PLUGIN, &json!({"metadata": {"labels": labels}, "spec": spec}))
    };
    let table = [
        (json!({}), "zones/UNSPECIFIED"),
        (json!({KUBERNETES_ZONE: "us-east1-a"}), "zones/us-east1-a"),
        (json!({BETA_ZONE: "us-central1-a__us-central1-c"}), "regions/us-central1"),
        // Only here the older label takes precedence.
        (json!({KUBERNETES_ZONE: "new-a-b", BETA_ZONE: "old-a-b"}), "zones/old-a-b"),
        (json!({KUBERNETES_ZONE: "new-a-b", BETA_ZONE: ""}), "zones/new-a-b"),
    ];
    for (labels, place) in table {
        let expected = format!("projects/UNSPECIFIED/{place}/disks/pd");
        assert_eq!(id(&labels), Ok(expected), "{labels}");
    }
    assert_eq!(
        id(&json!({KUBERNETES_ZONE: "us-central1-a__us-east1-b"})),
        Err("failed to get region from zones: multiple or no regions gotten from zones, got: map[us-central1:{} us-east1:{}]".into())
    );
}

#[test]
fn a_volume_of_the_plugin_shows_its_partition_and_zone() {
    let volume = |disk: Value| json!({"metadata": {"labels": {KUBERNETES_ZONE: "us-east1-a"}}, "spec": {"gcePersistentDisk": disk}});
    let partition = |disk| csi(&PLUGIN, &volume(disk)).unwrap().attributes[PARTITION].clone();
    assert_eq!(partition(json!({"pdName": "pd", "partition": 2})), "2");
    let bare = json!({"pdName": "pd"});
    assert_eq!(partition(bare.clone()), "", "no partition is an empty text");
    assert_eq!(affinity_of(&PLUGIN, &volume(bare)), affinity(&[&[(ZONE, &["us-east1-a"])]]));
}

#[test]
fn a_disk_is_the_same_with_or_without_its_project() {
    let reported = key("projects/p/zones/us-east1-a/disks/pd");
    assert_eq!(reported, key("projects/UNSPECIFIED/zones/us-east1-a/disks/pd"));
    assert_ne!(reported, key("projects/p/zones/us-east1-b/disks/pd"));
    assert_ne!(reported, key("projects/p/regions/us-east1/disks/pd"));
    assert_eq!((key("odd"), key("projects/odd")), ("odd", "projects/odd"));
}
