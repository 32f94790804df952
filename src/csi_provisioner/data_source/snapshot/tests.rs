use serde_json::{Value, json};
use testkit::merged;

use super::*;
use crate::csi_provisioner::{
    data_source::testing::{cluster, dependencies, find, find_for, gated},
    testing::{DRIVER, request},
};

const MODE_KEY: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

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

async fn refusal(snapshot: &Value, content: &Value, claim: &Value) -> String {
    let reported = found(snapshot, content, claim).await.unwrap_err().to_string();
    let prefix = "error getting handle for DataSource Type VolumeSnapshot by Name snap: ";
    reported.strip_prefix(prefix).unwrap_or_else(|| panic!("{reported}")).to_owned()
}

#[tokio::test]
async fn a_good_snapshot_is_restored_by_its_handle() {
    let source = found(&json!({}), &json!({}), &json!({})).await.unwrap();
    let named =
        NamedSource { kind: SourceKind::Snapshot, namespace: "shop".into(), name: "snap".into() };
    let expected = Source { named, uid: "snap-uid".into(), handle: "handle".into() };
    assert_eq!(source, expected);
}

#[tokio::test]
async fn errors_have_external_provisioners_texts_and_order() {
    let nothing = json!({});
    let gone =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other"]}});
    let unbound = json!({"status": {"boundVolumeSnapshotContentName": null}});
    let unready = json!({"status": {"readyToUse": false}});
    let others = |change: Value| json!({"spec": {"volumeSnapshotRef": change, "driver": "other"}});
    let bound_elsewhere =
        "snapshotcontent content for snapshot snap is bound to a different snapshot";
    let not_ready = "snapshot snap is not Ready".to_owned();
    let half = json!({"resources": {"requests": {"storage": "512Mi"}}});
    let table = [
        (merged(gone.clone(), &unbound), nothing.clone(), nothing.clone(), "snapshot snap is being deleted".to_owned()),
        (merged(unbound, &unready), nothing.clone(), nothing.clone(), "snapshot snap not bound".into()),
        (json!({"status": null}), nothing.clone(), nothing.clone(), "snapshot snap not bound".into()),
        (nothing.clone(), others(json!({"uid": "later"})), nothing.clone(), bound_elsewhere.into()),
        (nothing.clone(), others(json!({"namespace": "other"})), nothing.clone(), bound_elsewhere.into()),
        (nothing.clone(), others(json!({"name": "other"})), nothing.clone(), bound_elsewhere.into()),
        (unready.clone(), json!({"spec": {"driver": "other"}}), nothing.clone(),
         "snapshotcontent content for snapshot snap is not handled by CSI driver of StorageClass fast".into()),
        (unready, json!({"status": null}), nothing.clone(), not_ready.clone()),
        (json!({"status": {"readyToUse": null}}), nothing.clone(), nothing.clone(), not_ready),
        (nothing.clone(), json!({"status": null}), half.clone(), "snapshot handle snap is not available".into()),
        (nothing.clone(), nothing.clone(), json!({"resources": {}}),
         "error getting capacity for PVC data when creating snapshot snap".into()),
        (nothing.clone(), nothing.clone(), half,
         "requested volume size 536870912 is less than the size 1073741824 for the source snapshot snap".into()),
        (json!({"status": {"restoreSize": 2_000_000_000}}), nothing.clone(), nothing.clone(),
         "requested volume size 1073741824 is less than the size 2000000000 for the source snapshot snap".into()),
        (nothing.clone(), nothing.clone(), json!({"resources": {"requests": {"storage": "20E"}}}),
         "requested volume size 0 is less than the size 1073741824 for the source snapshot snap".into()),
        (json!({"status": {"restoreSize": "much"}}), nothing.clone(), nothing.clone(),
         "the size \"much\" of snapshot snap is no quantity: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()),
    ];
    for (snapshot, content, claim, expected) in table {
        let reported = refusal(&snapshot, &content, &claim).await;
        assert_eq!(reported, expected, "{snapshot} {content} {claim}");
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
async fn an_unreadable_snapshot_or_content_is_reported_in_external_provisioners_words() {
    let of = |objects: Vec<(String, Value)>| async move {
        find(&cluster(objects), &spec()).await.unwrap_err()
    };
    let missing = of(vec![]).await;
    assert_eq!(
        missing.to_string(),
        "error getting handle for DataSource Type VolumeSnapshot by Name snap: error getting snapshot snap from api server: \"snap\" not found"
    );
    assert_eq!(dependencies(&missing), ["volumesnapshots shop/snap"]);
    let mut without_content = objects(snapshot(), json!("you may not"));
    for _ in 0..2 {
        let unread = of(without_content.clone()).await;
        assert!(
            unread
                .to_string()
                .ends_with(": error getting snapshotcontent content for snapshot snap"),
            "{unread}"
        );
        let expected = ["volumesnapshots shop/snap", "volumesnapshotcontents content"];
        assert_eq!(dependencies(&unread), expected);
        without_content.truncate(1);
    }
}

/// The content is a dependency only if it causes the failure.
#[tokio::test]
async fn a_failure_depends_on_objects_that_may_resolve_it() {
    let both = ["volumesnapshots shop/snap", "volumesnapshotcontents content"];
    let unready = json!({"status": {"readyToUse": false}});
    let failure = found(&unready, &json!({}), &json!({})).await.unwrap_err();
    assert_eq!(dependencies(&failure), both[..1]);
    for content in [json!({"status": null}), json!({"spec": {"volumeSnapshotRef": {"uid": "x"}}})] {
        let failure = found(&json!({}), &content, &json!({})).await.unwrap_err();
        assert_eq!(dependencies(&failure), both);
    }
}

#[tokio::test]
async fn a_name_from_the_snapshot_reaches_no_other_object() {
    for content in ["../volumesnapshots/snap", "content/status", "", ".."] {
        let change = json!({"status": {"boundVolumeSnapshotContentName": content}});
        let server = cluster(objects(merged(snapshot(), &change), self::content()));
        let reported = find(&server, &spec()).await.unwrap_err().to_string();
        let expected = format!("error getting snapshotcontent {content} for snapshot snap");
        assert!(reported.ends_with(&expected), "{reported}");
        assert_eq!(server.requests().len(), 1, "{content:?} was asked for");
    }
}

#[tokio::test]
async fn the_volume_mode_changes_only_with_permission() {
    let prefix = "requested volume shop/data modifies the mode of the source volume but does not have permission to do so. ";
    let unparsable = |text: &str| {
        format!(
            "failed to convert {MODE_KEY} annotation value to boolean with error: strconv.ParseBool: parsing {text:?}: invalid syntax"
        )
    };
    let absent = format!("{MODE_KEY} annotation is not present on snapshotcontent content");
    let denied = format!("{MODE_KEY} is set to false on snapshotcontent content");
    let annotated = |value: &str| json!({"annotations": {MODE_KEY: value}});
    let table = [
        (Some("Block"), Some("Filesystem"), json!({}), Some(absent.clone())),
        (Some("Filesystem"), Some("Block"), json!({}), Some(absent.clone())),
        (Some("Odd"), Some("Block"), json!({}), Some(absent)),
        (Some("Block"), Some("Filesystem"), annotated("false"), Some(denied.clone())),
        (Some("Block"), Some("Filesystem"), annotated("F"), Some(denied)),
        (Some("Block"), Some("Filesystem"), annotated("yes"), Some(unparsable("yes"))),
        (Some("Block"), Some("Filesystem"), annotated(""), Some(unparsable(""))),
        (Some("Block"), Some("Filesystem"), annotated("True"), None),
        (Some("Block"), Some("Filesystem"), annotated("1"), None),
        (Some("Block"), Some("Block"), annotated("false"), None),
        (None, Some("Block"), json!({}), None),
        (Some("Block"), None, json!({}), None),
    ];
    for (source, wanted, metadata, expected) in table {
        let content = json!({"metadata": metadata, "spec": {"sourceVolumeMode": source}});
        let claim = json!({"volumeMode": wanted});
        let reported = found(&json!({}), &content, &claim).await.err().map(|why| why.to_string());
        let reported = reported.map(|reported| reported.split_once(prefix).unwrap().1.to_owned());
        assert_eq!(reported, expected, "{source:?} {wanted:?} {metadata}");
    }
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
