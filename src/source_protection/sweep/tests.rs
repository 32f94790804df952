//! One sweep over a scripted API server.

use serde_json::{Value, json};

use super::*;
use crate::{
    kube::{
        InformerEvent,
        objects::Claim,
        testing::{Answer, Server},
    },
    logging::testing::logged,
    source_protection::{
        ProtectionSettings,
        testing::{DRIVER, SETTINGS, protection},
    },
};

const OURS: &str = SourceKind::Snapshot.finalizer();

fn snapshot(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "7",
                        "finalizers": finalizers}})
}

/// A pending claim of whatever driver.
fn claim(uid: &str, snapshot: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": uid, "uid": uid},
           "spec": {"dataSource": {"kind": "VolumeSnapshot", "name": snapshot}},
           "status": {"phase": "Pending"}})
}

/// A server with these snapshots and claims.
fn server(snapshots: Vec<Value>, claims: Vec<Value>) -> Server {
    refusing_server(snapshots, claims, &[])
}

/// As `server`; writes to the snapshots `refused` fail.
fn refusing_server(
    snapshots: Vec<Value>,
    claims: Vec<Value>,
    refused: &'static [&'static str],
) -> Server {
    Server::new(move |_, seen| {
        let list = |items: &[Value]| Answer::json(200, &json!({"metadata": {}, "items": items}));
        let path = seen.url.split('?').next().unwrap_or_default();
        match path.rsplit_once('/').unwrap_or_default() {
            (_, "volumesnapshots") => list(&snapshots),
            (_, "persistentvolumeclaims") => list(&claims),
            (_, name) if seen.method == "PATCH" && refused.contains(&name) => {
                Answer::refusal(422, "Invalid", &format!("{name} is invalid"))
            }
            (_, name) => {
                let found = snapshots.iter().find(|snapshot| snapshot["metadata"]["name"] == name);
                Answer::json(200, found.unwrap_or(&Value::Null))
            }
        }
    })
}

/// The snapshots whose finalizers a sweep has written.
fn written(server: &Server) -> Vec<String> {
    let patches = server.requests().into_iter().filter(|seen| seen.method == "PATCH");
    let name = |url: &str| Some(url.split('?').next()?.rsplit('/').next()?.to_owned());
    patches.filter_map(|seen| name(&seen.url)).collect()
}

#[tokio::test]
async fn only_unneeded_snapshots_are_freed() {
    let snapshots = ["orphan", "known", "unseen", "begun"].map(|name| snapshot(name, &[OURS]));
    let snapshots = [&snapshots[..], &[snapshot("foreign", &["other"])]].concat();
    // The watch has not delivered the second claim yet.
    let server = server(snapshots, vec![claim("k", "known"), claim("n", "unseen")]);
    let protection = protection(&server, SETTINGS);
    let known: Claim = serde_json::from_value(claim("k", "known")).unwrap();
    protection.on_event(&InformerEvent::InitApply(known));
    let begun =
        NamedSource { kind: SourceKind::Snapshot, namespace: "ns".into(), name: "begun".into() };
    protection.protect("of a claim that is gone", &begun, "begun").await.unwrap();
    protection.sweep_once(&mut Observed::default()).await.unwrap();
    assert_eq!(written(&server), ["orphan"]);
}

/// A server with two snapshots that pending claims of the namespace `x` name, one of them of
/// another driver, and with this answer to requests for grants.
fn named_from_another_namespace(grants: Answer) -> Server {
    let reference = |name| json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name, "namespace": "ns"});
    let claims = ["ours", "theirs"].map(|name| {
        json!({"metadata": {"namespace": "x", "name": name, "uid": name},
               "spec": {"dataSourceRef": reference(name)}, "status": {"phase": "Pending"}})
    });
    let snapshots = ["ours", "theirs"].map(|name| {
        let mut snapshot = snapshot(name, &[OURS]);
        snapshot["status"] = json!({"boundVolumeSnapshotContentName": name});
        snapshot
    });
    Server::new(move |_, seen| {
        let path = seen.url.split('?').next().unwrap_or_default();
        let list = |items: &[Value]| Answer::json(200, &json!({"metadata": {}, "items": items}));
        match path.rsplit('/').collect::<Vec<_>>()[..] {
            ["referencegrants", "ns", ..] => grants.clone(),
            ["volumesnapshots", ..] => list(&snapshots),
            ["persistentvolumeclaims", ..] => list(&claims),
            [name, "volumesnapshotcontents", ..] => {
                let driver = if name == "ours" { DRIVER } else { "other.example.com" };
                let spec = json!({"driver": driver, "volumeSnapshotRef": {"uid": name}});
                Answer::json(200, &json!({"metadata": {"name": name}, "spec": spec}))
            }
            [name, ..] => Answer::json(200, &snapshots[usize::from(name == "theirs")]),
            [] => Answer::status(404),
        }
    })
}

/// A list with one grant for claims of the namespace.
fn grants_to(namespace: &str) -> Answer {
    let spec = json!({"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": namespace}],
                      "to": [{"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}]});
    Answer::json(200, &json!({"metadata": {}, "items": [{"metadata": {}, "spec": spec}]}))
}

#[tokio::test]
async fn a_claim_of_another_namespace_keeps_a_snapshot_only_by_a_grant() {
    let refused = || Answer::refusal(403, "Forbidden", "no");
    let table: [(Answer, bool, &[&str], bool); 4] = [
        (grants_to("x"), true, &[], true),
        (grants_to("y"), true, &["ours"], true),
        (refused(), true, &[], false),
        // Without the feature gate no grants are read.
        (refused(), false, &["ours"], true),
    ];
    for (grants, cross_namespace_sources, expected, succeeds) in table {
        let server = named_from_another_namespace(grants);
        let settings = ProtectionSettings { cross_namespace_sources, ..SETTINGS };
        let swept = protection(&server, settings).sweep_once(&mut Observed::default()).await;
        assert_eq!(swept.is_ok(), succeeds, "{swept:?}");
        assert_eq!(written(&server), expected);
    }
}

/// A stored object may violate a newer validation rule; then every write of it is rejected.
#[tokio::test]
async fn a_snapshot_that_cannot_be_written_blocks_no_other_and_is_reported() {
    let snapshots = ["a", "b", "c", "d"].map(|name| snapshot(name, &[OURS]));
    let server = refusing_server(snapshots.into(), vec![], &["a", "c"]);
    let error =
        protection(&server, SETTINGS).sweep_once(&mut Observed::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "a is invalid", "the first one");
    assert_eq!(written(&server), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_cluster_without_orphans_costs_one_list() {
    let server = server(vec![snapshot("s", &["other"])], vec![]);
    protection(&server, SETTINGS).sweep_once(&mut Observed::default()).await.unwrap();
    let urls: Vec<String> = server.requests().into_iter().map(|seen| seen.url).collect();
    assert_eq!(urls, ["/apis/snapshot.storage.k8s.io/v1/volumesnapshots?&limit=500"]);
}

/// The kind may be installed later, and permissions granted.
#[tokio::test]
async fn a_missing_kind_is_ignored_and_a_missing_right_logged_once() {
    for (code, reason, lines) in [(404, "NotFound", 0), (403, "Forbidden", 1)] {
        let (log, _guard) = logged();
        let server = Server::new(move |_, _| Answer::refusal(code, reason, "no"));
        let protection = protection(&server, SETTINGS);
        let mut reported = false;
        for _ in 0..3 {
            log_list_error(
                &protection.sweep_once(&mut Observed::default()).await.unwrap_err(),
                &mut reported,
            );
        }
        assert_eq!(log.text().lines().count(), lines, "{}", log.text());
    }
}

#[test]
fn sidecars_do_not_sweep_in_step() {
    let interval = Duration::from_secs(300);
    assert_eq!(jittered(interval, 0.0), Duration::from_secs(270));
    assert!(jittered(interval, 0.999) < Duration::from_secs(330));
}
