use serde_json::{Value, json};
use testkit::merged;

use super::*;
use crate::csi_provisioner::{
    data_source::testing::{cluster, dependencies, find, find_for, gated},
    testing::{DRIVER, request},
};

fn snapshot() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "snap", "uid": "snap-uid"},
        "status": {"boundVolumeSnapshotContentName": "content", "readyToUse": true, "restoreSize": "1Gi"},
    })
}

fn content() -> Value {
    json!({
        "metadata": {"name": "content"},
        "spec": {"driver": DRIVER, "volumeSnapshotRef": {"namespace": "shop", "name": "snap", "uid": "snap-uid"}},
        "status": {"snapshotHandle": "handle"},
    })
}

/// A claim of 1Gi that names the snapshot.
fn spec() -> Value {
    json!({"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"}})
}

fn objects(snapshot: Value, content: Value) -> Vec<(String, Value)> {
    let root = "/apis/snapshot.storage.k8s.io/v1";
    vec![
        (format!("{root}/namespaces/shop/volumesnapshots/snap"), snapshot),
        (format!("{root}/volumesnapshotcontents/content"), content),
    ]
}

/// The source of a claim, with these changes to valid objects.
async fn found(snapshot: &Value, content: &Value, claim: &Value) -> Result<Source, Failure> {
    let objects = objects(merged(self::snapshot(), snapshot), merged(self::content(), content));
    find(&cluster(objects), &merged(spec(), claim)).await
}

/// Where two things are wrong, the one that is named first. A failure depends on the content only where that
/// may resolve it.
#[tokio::test]
async fn errors_have_external_provisioners_texts_and_order() {
    let nothing = || json!({});
    let going =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other"]}});
    let unbound = json!({"status": {"boundVolumeSnapshotContentName": null}});
    let ready = |ready: Value| json!({"status": {"readyToUse": ready}});
    let others = |change: Value| json!({"spec": {"volumeSnapshotRef": change, "driver": "other"}});
    let of_driver = json!({"spec": {"driver": "other"}});
    let bare = || json!({"status": null});
    let size = |size: Value| json!({"status": {"restoreSize": size}});
    let wants = |storage: &str| json!({"resources": {"requests": {"storage": storage}}});
    let elsewhere = "snapshotcontent content for snapshot snap is bound to a different snapshot";
    let not_ours = "snapshotcontent content for snapshot snap is not handled by CSI driver of StorageClass fast";
    let smaller = |requested: &str, size: &str| {
        format!(
            "requested volume size {requested} is less than the size {size} for the source snapshot snap"
        )
    };
    let [half, large, none] = [
        smaller("536870912", "1073741824"),
        smaller("1073741824", "2000000000"),
        smaller("0", "1073741824"),
    ];
    let odd = "the size \"much\" of snapshot snap is no quantity: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let table = [
        (merged(going, &unbound), nothing(), nothing(), "snapshot snap is being deleted", 1),
        (merged(unbound, &ready(json!(false))), nothing(), nothing(), "snapshot snap not bound", 1),
        (bare(), nothing(), nothing(), "snapshot snap not bound", 1),
        (nothing(), others(json!({"uid": "later"})), nothing(), elsewhere, 2),
        (nothing(), others(json!({"namespace": "other"})), nothing(), elsewhere, 2),
        (nothing(), others(json!({"name": "other"})), nothing(), elsewhere, 2),
        (ready(json!(false)), of_driver, nothing(), not_ours, 1),
        (ready(json!(false)), bare(), nothing(), "snapshot snap is not Ready", 1),
        (ready(Value::Null), nothing(), nothing(), "snapshot snap is not Ready", 1),
        (nothing(), bare(), wants("512Mi"), "snapshot handle snap is not available", 2),
        (
            nothing(),
            nothing(),
            json!({"resources": {}}),
            "error getting capacity for PVC data when creating snapshot snap",
            1,
        ),
        (nothing(), nothing(), wants("512Mi"), &half, 1),
        (nothing(), nothing(), wants("20E"), &none, 1),
        (size(json!(2_000_000_000)), nothing(), nothing(), &large, 1),
        (size(json!("much")), nothing(), nothing(), odd, 1),
    ];
    let objects = ["volumesnapshots shop/snap", "volumesnapshotcontents content"];
    for (snapshot, content, claim, expected, depends_on) in table {
        let failure = found(&snapshot, &content, &claim).await.unwrap_err();
        let prefix = "error getting handle for DataSource Type VolumeSnapshot by Name snap: ";
        assert_eq!(
            failure.to_string(),
            format!("{prefix}{expected}"),
            "{snapshot} {content} {claim}"
        );
        assert_eq!(dependencies(&failure), objects[..depends_on], "{expected}");
    }
}

#[tokio::test]
async fn unchecked_fields_and_equal_sizes_pass() {
    let table = [
        // A deleted snapshot with our finalizer can still be restored.
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [PROTECTION]}}),
            json!({}),
            json!({}),
        ),
        (json!({"status": {"restoreSize": null}}), json!({}), json!({"resources": {}})),
        (
            json!({"status": {"restoreSize": "1Gi"}}),
            json!({}),
            json!({"resources": {"requests": {"storage": "2Gi"}}}),
        ),
        (
            json!({"status": {"error": {"message": "bad"}}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"readyToUse": false}}),
            json!({}),
        ),
    ];
    for (snapshot, content, claim) in table {
        let source = found(&snapshot, &content, &claim).await;
        assert_eq!(source.unwrap().handle, "handle", "{snapshot}");
    }
    let empty = json!({"status": {"snapshotHandle": ""}});
    assert_eq!(found(&json!({}), &empty, &json!({})).await.unwrap().handle, "");
}

#[tokio::test]
async fn without_the_flag_the_volume_mode_is_not_checked() {
    let content = merged(content(), &json!({"spec": {"sourceVolumeMode": "Block"}}));
    let request = request(&merged(spec(), &json!({"volumeMode": "Filesystem"})), &json!({}));
    let server = cluster(objects(snapshot(), content));
    assert!(find_for(&server, &gated(), &request).await.is_err());
    let mut lenient = gated();
    lenient.flags.prevent_volume_mode_conversion = false;
    assert!(find_for(&server, &lenient, &request).await.is_ok());
}
