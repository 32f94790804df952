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
    source_protection::testing::{SETTINGS, protection},
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

/// The kind may be installed later, and permissions granted.
#[tokio::test]
async fn a_missing_kind_is_ignored_and_a_missing_right_logged_once() {
    for (code, reason, lines) in [(404, "NotFound", 0), (403, "Forbidden", 1)] {
        let (log, _guard) = logged();
        let server = Server::new(move |_, _| Answer::refusal(code, reason, "no"));
        let protection = protection(&server, SETTINGS);
        let reported = AtomicBool::new(false);
        for _ in 0..3 {
            log_list_error(
                &protection.sweep_once(&mut Observed::default()).await.unwrap_err(),
                &reported,
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
