use serde_json::{Value, json};

use super::{
    testing::{cluster, dependencies, find, find_for, gated},
    *,
};
use crate::csi_provisioner::testing::{reads, request, settings, settings_with, source};

/// What a claim with this spec names, or the error.
async fn identified(spec: &Value, gate: bool) -> Result<Option<(SourceKind, String)>, String> {
    let settings = settings_with(&[], |it| it.gates.cross_namespace_volume_data_source = gate);
    let request = request(spec, &json!({}));
    let reads = reads(&cluster(vec![]));
    let named = identify(&reads, &settings, &request).await.map_err(|why| match why {
        NotPrepared::Failed(failure) => {
            assert!(failure.is_finished, "as in external-provisioner: {failure}");
            failure.to_string()
        }
        NotPrepared::Ignored { kind, .. } => format!("populator of {kind}"),
        other => panic!("{other:?}"),
    });
    named.map(|named| {
        let NamedSource { kind, namespace, name } = named?.source;
        Some((kind, format!("{namespace}/{name}")))
    })
}

fn named(group: Option<&str>, kind: &str, name: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": name})
}

const GROUP: Option<&str> = Some(SNAPSHOT_GROUP);

#[tokio::test]
async fn sources_are_distinguished_by_kind_and_group() {
    let wrong_group = |group: &str| {
        Err(format!(
            "the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, Got {group}"
        ))
    };
    let nameless = || Err("the PVC source not found for PVC data".to_owned());
    let populator = |kind: &str| Err(format!("populator of {kind}"));
    let snapshot = Ok(Some((SourceKind::Snapshot, "shop/n".to_owned())));
    let claim = || Ok(Some((SourceKind::Claim, "shop/n".to_owned())));
    for (source, expected) in [
        (named(GROUP, "VolumeSnapshot", "n"), snapshot),
        (named(Some("example.com"), "VolumeSnapshot", "n"), wrong_group("example.com")),
        (named(None, "VolumeSnapshot", "n"), wrong_group("")),
        (named(None, "PersistentVolumeClaim", "n"), claim()),
        (named(Some(""), "PersistentVolumeClaim", "n"), claim()),
        // Another group's kind of that name.
        (
            named(Some("example.com"), "PersistentVolumeClaim", "n"),
            populator("PersistentVolumeClaim"),
        ),
        (named(Some("example.com"), "Backup", "n"), populator("Backup")),
        (named(Some("example.com"), "Backup", ""), nameless()),
        (named(Some("example.com"), "VolumeSnapshot", ""), nameless()),
    ] {
        for field in ["dataSource", "dataSourceRef"] {
            assert_eq!(identified(&json!({field: source}), true).await, expected, "{source}");
        }
    }
    assert_eq!(identified(&json!({}), true).await, Ok(None));
}

#[tokio::test]
async fn the_older_field_wins_and_is_of_the_claims_own_namespace() {
    let spec = json!({
        "dataSource": named(None, "PersistentVolumeClaim", "old"),
        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "new", "namespace": "other"},
    });
    for gate in [false, true] {
        let expected = Ok(Some((SourceKind::Claim, "shop/old".to_owned())));
        assert_eq!(identified(&spec, gate).await, expected);
    }
}

#[tokio::test]
async fn a_source_namespace_needs_the_gate_even_where_it_is_the_claims_own() {
    let refused = "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled";
    for (namespace, without, with) in [
        (json!("shop"), Err(refused.to_owned()), Ok(())),
        (json!("other"), Err(refused.to_owned()), Err("error getting ReferenceGrants in other namespace from api server: \"referencegrants?&limit=500\" not found".to_owned())),
        (json!(""), Ok(()), Ok(())),
        (Value::Null, Ok(()), Ok(())),
    ] {
        let spec = json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "n", "namespace": namespace}});
        assert_eq!(identified(&spec, false).await.map(drop), without, "{namespace}");
        assert_eq!(identified(&spec, true).await.map(drop), with, "{namespace}");
    }
}

#[test]
fn the_content_source_matches_the_kind() {
    let reported = |kind| {
        let named = NamedSource { kind, ..source().named };
        content_source(&Source { named, ..source() }).r#type.unwrap()
    };
    let snapshot = content::SnapshotSource { snapshot_id: "snap-handle".into() };
    assert_eq!(reported(SourceKind::Snapshot), content::Type::Snapshot(snapshot));
    let volume = content::VolumeSource { volume_id: "snap-handle".into() };
    assert_eq!(reported(SourceKind::Claim), content::Type::Volume(volume));
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
    let mut objects = vec![(
        "/apis/gateway.networking.k8s.io/v1beta1/namespaces/other/referencegrants?&limit=500"
            .into(),
        json!({"items": grants}),
    )];
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

#[tokio::test]
async fn an_open_call_of_a_claim_that_lost_access_is_marked() {
    for (granted, forfeited) in [(true, false), (false, true)] {
        let reads = reads(&cluster(around(granted, None)));
        let open = open(Some(source()), true);
        let named = identify(&reads, &gated(), &open).await.unwrap().unwrap();
        assert_eq!(named.access_revoked, forfeited);
    }
}

const GRANTS: &str =
    "/apis/gateway.networking.k8s.io/v1beta1/namespaces/other/referencegrants?&limit=500";

fn from(group: &str, kind: &str, namespace: &str) -> Value {
    json!({"group": group, "kind": kind, "namespace": namespace})
}

fn to(group: &str, kind: &str, name: Option<&str>) -> Value {
    json!({"group": group, "kind": kind, "name": name})
}

/// A claim of namespace shop whose source is in `namespace`.
fn spec(namespace: &str) -> Value {
    json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap", "namespace": namespace}})
}

#[tokio::test]
async fn the_grants_of_the_sources_namespace_are_read_and_no_others() {
    let grant = json!({"spec": {
        "from": [from("", "PersistentVolumeClaim", "shop")],
        "to": [to("snapshot.storage.k8s.io", "VolumeSnapshot", None)],
    }});
    let server = cluster(vec![(GRANTS.into(), json!({"items": [{"spec": {}}, grant]}))]);
    let reported = find(&server, &spec("other")).await.unwrap_err().to_string();
    assert!(
        reported.contains("error getting snapshot snap"),
        "the grant was not enough: {reported}"
    );
    assert_eq!(server.requests()[0].url, GRANTS);
}

#[tokio::test]
async fn without_a_grant_the_source_is_refused_and_not_read() {
    let server = cluster(vec![(GRANTS.into(), json!({"items": []}))]);
    let failure = find(&server, &spec("other")).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "accessing other/snap of VolumeSnapshot dataSource from shop/data isn't allowed"
    );
    assert_eq!(dependencies(&failure), ["referencegrants other/*"]);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn unreadable_grants_do_not_count() {
    let server = cluster(vec![(GRANTS.into(), json!("you may not"))]);
    let reported = find(&server, &spec("other")).await.unwrap_err().to_string();
    assert_eq!(
        reported,
        "error getting ReferenceGrants in other namespace from api server: you may not"
    );
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
