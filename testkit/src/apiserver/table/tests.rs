//! Tables as kubectl prints them.

use super::*;
use crate::apiserver::resources::{Kinds, ServerVersion};

const NOW: &str = "2030-01-01T00:10:00Z";

fn table_of(kind: &str, objects: &[Value]) -> Value {
    let kinds = Kinds::of(ServerVersion::default());
    let kind = kinds.by_name(kind).unwrap();
    table(kind, objects, &json!({"resourceVersion": "7"}), NOW.parse().unwrap())
}

/// Column name and cell of the first row, without those shown by `-o wide` only.
fn shown(kind: &str, object: &Value) -> Vec<(String, Value)> {
    let table = table_of(kind, std::slice::from_ref(object));
    let columns = table["columnDefinitions"].as_array().unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(columns.len(), cells.len());
    columns
        .iter()
        .zip(cells)
        .filter(|(column, _)| column["priority"] == 0)
        .map(|(column, cell)| (column["name"].as_str().unwrap().to_owned(), cell.clone()))
        .collect()
}

fn expect(kind: &str, object: &Value, cells: &[(&str, &str)]) {
    let shown = shown(kind, object);
    let shown: Vec<(&str, &str)> =
        shown.iter().map(|(name, cell)| (name.as_str(), cell.as_str().unwrap_or("?"))).collect();
    assert_eq!(shown, cells);
}

#[test]
fn a_volume_shows_what_kubectl_get_pv_shows() {
    let volume = json!({
        "metadata": {"name": "pv", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "rbd",
            "claimRef": {"namespace": "sc", "name": "claim"},
        },
        "status": {"phase": "Bound"},
    });
    expect(
        "PersistentVolume",
        &volume,
        &[
            ("Name", "pv"),
            ("Capacity", "1Gi"),
            ("Access Modes", "RWO,RWX"),
            ("Reclaim Policy", "Delete"),
            ("Status", "Bound"),
            ("Claim", "sc/claim"),
            ("StorageClass", "rbd"),
            ("VolumeAttributesClass", "<unset>"),
            ("Reason", ""),
            ("Age", "10m"),
        ],
    );
}

#[test]
fn a_claim_without_volume_shows_neither_capacity_nor_modes() {
    let mut claim = json!({
        "metadata": {"name": "c"}, "spec": {"storageClassName": "rbd"},
        "status": {"phase": "Pending", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    });
    expect(
        "PersistentVolumeClaim",
        &claim,
        &[
            ("Name", "c"),
            ("Status", "Pending"),
            ("Volume", ""),
            ("Capacity", ""),
            ("Access Modes", ""),
            ("StorageClass", "rbd"),
            ("VolumeAttributesClass", "<unset>"),
            ("Age", "<unknown>"),
        ],
    );
    tree::set(&mut claim, &["spec", "volumeName"], "pv".into());
    tree::set(&mut claim, &["metadata", "deletionTimestamp"], NOW.into());
    let cells = shown("PersistentVolumeClaim", &claim);
    assert_eq!(cells[1].1, "Terminating");
    assert_eq!((&cells[3].1, &cells[4].1), (&json!("1Gi"), &json!("RWO")));
}

#[test]
fn an_event_shows_the_newest_of_its_times() {
    let event = json!({
        "metadata": {"name": "c.1"}, "type": "Warning", "reason": "ProvisioningFailed",
        "involvedObject": {"kind": "PersistentVolumeClaim", "name": "c"}, "message": "no\n",
        "firstTimestamp": "2029-12-31T00:00:00Z", "lastTimestamp": "2030-01-01T00:09:30Z",
        "eventTime": null,
    });
    expect(
        "Event",
        &event,
        &[
            ("Last Seen", "30s"),
            ("Type", "Warning"),
            ("Reason", "ProvisioningFailed"),
            ("Object", "persistentvolumeclaim/c"),
            ("Message", "no"),
        ],
    );
}

#[test]
fn the_default_class_is_marked_and_unset_fields_show_their_defaults() {
    let class = json!({
        "metadata": {"name": "rbd", "annotations":
            {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "rbd.csi.ceph.com",
    });
    let cells = shown("StorageClass", &class);
    assert_eq!(cells[0].1, "rbd (default)");
    assert_eq!(cells[3].1, "Immediate");
    assert_eq!(cells[4].1, false);
}

#[test]
fn every_served_kind_shows_the_name_of_even_an_empty_object() {
    for kind in Kinds::of(ServerVersion::default()).iter() {
        let table = table_of(&kind.kind, &[json!({"metadata": {"name": "x"}})]);
        let columns = table["columnDefinitions"].as_array().unwrap();
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(columns.len(), cells.len(), "{}", kind.kind);
        assert!(cells.contains(&json!("x")), "{}", kind.kind);
    }
}

#[test]
fn each_object_is_a_row_that_carries_it_with_its_type() {
    let secret = json!({"metadata": {"name": "a"}, "type": "Opaque", "data": {"k": "", "l": ""}});
    let table = table_of("Secret", &[secret.clone(), secret]);
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);
    assert_eq!(table["rows"][1]["cells"], json!(["a", "Opaque", 2, "<unknown>"]));
    assert_eq!(table["rows"][1]["object"]["kind"], "Secret");
    assert_eq!(table["rows"][1]["object"]["apiVersion"], "v1");
}

#[test]
fn ages_are_spelled_as_kubectl_spells_them() {
    for (seconds, spelled) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600, "2d"),
        (52 * 3600, "2d4h"),
        (8 * 86_400, "8d"),
        (2 * 365 * 86_400, "2y"),
        (2 * 365 * 86_400 + 86_400, "2y1d"),
        (9 * 365 * 86_400, "9y"),
    ] {
        assert_eq!(human_duration(seconds), spelled, "{seconds}");
    }
}
