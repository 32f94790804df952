//! One sweep over a scripted API server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    kube_api::{
        Sighting,
        testing::{Answer, Server, client, logged, random},
        views::Claim,
    },
    metrics::Metrics,
    protection::{Parts, Settings},
    runtime::{Tasks, TokioSpawner},
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

/// The same; the snapshots `refused` cannot be written.
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

fn protection(server: &Server) -> Protection {
    let settings = Settings {
        restores: true,
        clones: true,
        workers: 1,
        sweep_interval: Some(Duration::from_secs(300)),
        retry_start: Duration::from_secs(1),
        retry_max: Duration::from_secs(1),
        peers: false,
    };
    let tasks = Tasks::new(Arc::new(TokioSpawner)).0;
    let metrics = Metrics::new().unwrap();
    Protection::new(Parts { client: client(server), metrics, random: random(), tasks, settings })
}

/// The snapshots whose finalizers a sweep has written.
fn written(server: &Server) -> Vec<String> {
    let patches = server.seen().into_iter().filter(|seen| seen.method == "PATCH");
    patches.map(|seen| seen.url.rsplit('/').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn what_nobody_needs_is_freed_and_nothing_else() {
    let snapshots = ["orphan", "known", "unseen", "begun"].map(|name| snapshot(name, &[OURS]));
    let snapshots = [&snapshots[..], &[snapshot("foreign", &["other"])]].concat();
    // No watch has shown the second claim yet.
    let server = server(snapshots, vec![claim("k", "known"), claim("n", "unseen")]);
    let protection = protection(&server);
    let known: Claim = serde_json::from_value(claim("k", "known")).unwrap();
    protection.observe(&Sighting::Listed(known));
    let begun =
        NamedSource { kind: SourceKind::Snapshot, namespace: "ns".into(), name: "begun".into() };
    protection.take("of a claim that is gone", &begun, "begun").await.unwrap();
    protection.sweep_once().await.unwrap();
    assert_eq!(written(&server), ["orphan"]);
}

/// What is stored may break a rule that came later; then every write of it is refused.
#[tokio::test]
async fn a_snapshot_that_cannot_be_written_keeps_no_other_and_is_told() {
    let snapshots = ["a", "b", "c", "d"].map(|name| snapshot(name, &[OURS]));
    let server = refusing_server(snapshots.into(), vec![], &["a", "c"]);
    let error = protection(&server).sweep_once().await.unwrap_err();
    assert_eq!(error.to_string(), "a is invalid", "the first one");
    assert_eq!(written(&server), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_cluster_without_orphans_costs_one_list() {
    let server = server(vec![snapshot("s", &["other"])], vec![]);
    protection(&server).sweep_once().await.unwrap();
    let urls: Vec<String> = server.seen().into_iter().map(|seen| seen.url).collect();
    assert_eq!(urls, ["/apis/snapshot.storage.k8s.io/v1/volumesnapshots?limit=500"]);
}

/// Snapshots may come to the cluster later, and rights may.
#[tokio::test]
async fn a_missing_kind_is_passed_over_and_a_missing_right_told_once() {
    for (code, reason, lines) in [(404, "NotFound", 0), (403, "Forbidden", 1)] {
        let (log, _guard) = logged();
        let server = Server::new(move |_, _| Answer::refusal(code, reason, "no"));
        let (protection, told) = (protection(&server), AtomicBool::new(false));
        for _ in 0..3 {
            tell(&protection.sweep_once().await.unwrap_err(), &told);
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
