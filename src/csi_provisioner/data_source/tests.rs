use serde_json::{Value, json};

use super::{
    testing::{cluster, dependencies, find, find_for, gated},
    *,
};
use crate::csi_provisioner::testing::{reads, request, settings, source};

#[tokio::test]
async fn the_older_field_wins_and_is_of_the_claims_own_namespace() {
    let spec = json!({
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "old"},
        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "new", "namespace": "other"},
    });
    let request = request(&spec, &json!({}));
    let reads = reads(&cluster(vec![]));
    for settings in [settings(&[]), gated()] {
        let found = identify(&reads, &settings, &request).await.unwrap().unwrap().source;
        let expected =
            NamedSource { kind: SourceKind::Claim, namespace: "shop".into(), name: "old".into() };
        assert_eq!(found, expected);
    }
}

/// A request for a claim that names a snapshot of another namespace, whose call is open if `source`
/// is set.
fn open(source: Option<Source>, withdrawn: bool) -> ProvisionRequest {
    let spec = json!({"dataSourceRef": {"apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": "snap", "namespace": "other"}});
    ProvisionRequest { withdrawn, source, ..request(&spec, &json!({})) }
}

/// A cluster with a grant if `granted`, and with the snapshot of this UID, if any.
fn around(granted: bool, uid: Option<&str>) -> Vec<(String, Value)> {
    let grant = json!({"spec": {
        "from": [{"kind": "PersistentVolumeClaim", "namespace": "shop"}],
        "to": [{"group": SNAPSHOT_GROUP, "kind": "VolumeSnapshot"}],
    }});
    let grants = if granted { json!([grant]) } else { json!([]) };
    let mut objects = vec![(GRANTS.to_owned(), json!({"items": grants}))];
    if let Some(uid) = uid {
        let whose = json!({"namespace": "other", "name": "snap", "uid": uid});
        let driver = &settings(&[]).driver.name;
        objects.push((
            "/apis/snapshot.storage.k8s.io/v1/namespaces/other/volumesnapshots/snap".into(),
            json!({"metadata": whose, "status": {"boundVolumeSnapshotContentName": "c", "readyToUse": true}}),
        ));
        objects.push((
            "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/c".into(),
            json!({"spec": {"driver": driver, "volumeSnapshotRef": whose}, "status": {"snapshotHandle": "snap-handle"}}),
        ));
    }
    objects
}

#[tokio::test]
async fn an_open_call_is_repeated_with_the_source_that_this_process_asked_with() {
    let asked = || Some(source());
    for (open, granted, uid, refused) in [
        // A repeated call needs no object, but it needs permission while the claim exists.
        (open(asked(), false), true, None, None),
        (open(asked(), false), true, Some("later"), None),
        (open(asked(), false), false, Some("snap-uid"), Some("isn't allowed")),
        // The volume will be discarded.
        (open(asked(), true), true, None, None),
        (open(asked(), true), false, None, None),
        (open(asked(), true), false, Some("later"), None),
        // After a restart the source is found by the checks for a new claim.
        (open(None, true), true, Some("snap-uid"), None),
        (open(None, true), true, None, Some("error getting snapshot snap from api server")),
        (open(None, true), false, Some("snap-uid"), Some("isn't allowed")),
    ] {
        let server = cluster(around(granted, uid));
        let found = find_for(&server, &gated(), &open).await;
        match refused {
            None => assert_eq!(found.unwrap().handle, "snap-handle", "{open:?} {uid:?}"),
            Some(words) => {
                let reported = found.unwrap_err().to_string();
                assert!(reported.contains(words), "{open:?} {uid:?}: {reported}");
            }
        }
    }
}

const GRANTS: &str =
    "/apis/gateway.networking.k8s.io/v1beta1/namespaces/other/referencegrants?&limit=500";

/// A claim of namespace shop whose source is in `namespace`.
fn spec(namespace: &str) -> Value {
    json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap", "namespace": namespace}})
}

#[tokio::test]
async fn without_a_grant_the_source_is_refused_and_not_read() {
    let no_grant = "accessing other/snap of VolumeSnapshot dataSource from shop/data isn't allowed";
    let unread = "error getting ReferenceGrants in other namespace from api server: you may not";
    let grant: &[_] = &["referencegrants other/*"];
    for (grants, expected, depends_on) in
        [(json!({"items": []}), no_grant, grant), (json!("you may not"), unread, &[])]
    {
        let server = cluster(vec![(GRANTS.into(), grants)]);
        let failure = find(&server, &spec("other")).await.unwrap_err();
        assert_eq!(failure.to_string(), expected);
        assert_eq!(dependencies(&failure), depends_on);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_invalid_namespace_is_not_read() {
    let server = cluster(vec![]);
    let request = request(&json!({}), &json!({}));
    let odd = GrantTarget {
        group: SNAPSHOT_GROUP,
        kind: "VolumeSnapshot",
        namespace: "../kube-system",
        name: "snap",
    };
    let refusal = access_revoked(&reads(&server), &request, &odd).await.unwrap_err();
    let reported = refusal.to_string();
    assert!(reported.starts_with("accessing ../kube-system/snap"), "{reported}");
    assert_eq!(server.requests().len(), 0);
}
