//! Protecting and freeing against a scripted API server, under paused time.

use std::ops::Range;

use serde_json::{Value, json};

use super::{
    testing::{DRIVER, SETTINGS, protection},
    *,
};
use crate::kube::{
    Listed,
    testing::{Answer, Server},
};

fn source() -> NamedSource {
    NamedSource { kind: SourceKind::Snapshot, namespace: "ns".into(), name: "s".into() }
}

/// The snapshot `s` on a server that stores its finalizers; the requests with these numbers are
/// answered with 500.
fn server(fails: Range<usize>) -> Server {
    let finalizers = Mutex::new(Value::Null);
    Server::new(move |number, seen| {
        if fails.contains(&number) {
            return Answer::status(500);
        }
        let mut finalizers = finalizers.lock();
        if seen.method == "PATCH" {
            *finalizers = seen.json()["metadata"]["finalizers"].clone();
        }
        let items = json!({"metadata": {}, "items": []});
        let snapshot = json!({"metadata": {"namespace": "ns", "name": "s", "uid": "u",
                                           "resourceVersion": "7", "finalizers": *finalizers}});
        Answer::json(200, if seen.url.contains('?') { &items } else { &snapshot })
    })
}

/// The end of a list that has shown all claims that are known.
fn all_listed() -> InformerEvent<Claim> {
    let any = Claim::default();
    InformerEvent::InitDone(Listed::of(&[any]))
}

/// Source protection with running workers.
fn working(server: &Server) -> (Protection, CancellationToken, tokio::task::JoinHandle<()>) {
    let protection = protection(server, SETTINGS);
    protection.on_event(&all_listed());
    let worker = protection.clone();
    let ended = CancellationToken::new();
    let stop = ended.clone();
    #[allow(clippy::disallowed_methods)] // a test's own task
    let work = tokio::spawn(async move { worker.work(stop).await });
    (protection, ended, work)
}

fn methods(server: &Server) -> Vec<String> {
    server.requests().into_iter().map(|seen| seen.method).collect()
}

/// A call that could not begin holds nothing, unless it repeats an open one.
#[tokio::test(start_paused = true)]
async fn an_unprotected_source_is_not_held() {
    let server = server(0..1);
    let protection = protection(&server, SETTINGS);
    assert!(protection.protect("a", &source(), "u").await.is_err());
    assert!(protection.0.holders.lock().finalizer_found(&source(), "u"));
    protection.protect("a", &source(), "u").await.unwrap();
    assert!(matches!(
        protection.protect("a", &source(), "other").await,
        Err(Unprotected::Gone(gone)) if gone == source()
    ));
    assert!(
        !protection.0.holders.lock().finalizer_found(&source(), "u"),
        "the first is open still"
    );
}

/// Others can take it off at any time.
#[tokio::test(start_paused = true)]
async fn however_many_calls_begin_a_source_is_read_again_once_in_a_while() {
    let server = server(0..0);
    let protection = protection(&server, SETTINGS);
    for read in 0..3 {
        for claim in 0..100 {
            protection.protect(&claim.to_string(), &source(), "u").await.unwrap();
        }
        let expected = [vec!["GET", "PATCH"], vec!["GET"; read]].concat();
        assert_eq!(methods(&server), expected);
        sleep(Duration::from_secs(60)).await;
    }
}

/// Its claim is deleted while the finalizer is written, and the process ends then: nobody else would free the
/// snapshot.
#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_claim_ends_while_it_is_protected_is_freed() {
    let server = server(0..0);
    let (protection, ended, work) = working(&server);
    let guarded = source();
    let ends = async { protection.claim_finished("a", true) };
    let (protected, ()) = tokio::join!(protection.protect("a", &guarded, "u"), ends);
    protected.unwrap();
    ended.cancel();
    work.await.unwrap();
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"]);
    assert_eq!(server.requests()[3].json()["metadata"]["finalizers"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_failed_removal_is_retried() {
    let server = server(2..5);
    let (protection, ended, work) = working(&server);
    protection.protect("a", &source(), "u").await.unwrap();
    protection.claim_finished("a", true);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "GET", "GET", "GET", "PATCH"]);
    assert_eq!(server.requests()[6].json()["metadata"]["finalizers"], Value::Null);
    ended.cancel();
    work.await.unwrap();
}

/// A pending claim is delivered while the snapshot is read, and is deleted without a call.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_delivered_during_a_removal_keeps_the_source_only_while_it_exists() {
    let ours = json!([SourceKind::Snapshot.finalizer()]);
    let snapshot = json!({"metadata": {"namespace": "ns", "name": "s", "uid": "u",
                                       "resourceVersion": "7", "finalizers": ours}});
    let reference = json!({"apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": "s"});
    let claim: Claim = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "restore", "uid": "c"},
        "spec": {"dataSource": reference}, "status": {"phase": "Pending"},
    }))
    .unwrap();
    let observer = Arc::new(Mutex::new(None::<Protection>));
    let (reader, delivered) = (Arc::clone(&observer), InformerEvent::Apply(claim.clone()));
    let server = Server::new(move |number, seen| match (&*seen.method, seen.url.contains('?')) {
        ("GET", true) => Answer::json(200, &json!({"metadata": {}, "items": []})),
        ("GET", false) => {
            if number == 2
                && let Some(protection) = &*reader.lock()
            {
                protection.on_event(&delivered);
            }
            Answer::json(200, &snapshot)
        }
        _ => Answer::json(200, &seen.json()),
    });
    let (protection, ended, work) = working(&server);
    *observer.lock() = Some(protection.clone());
    protection.protect("a", &source(), "u").await.unwrap();
    protection.claim_finished("a", true);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(methods(&server), ["GET", "GET", "GET"], "the claim needs the source");
    protection.on_event(&InformerEvent::Delete(claim));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(methods(&server).last().map(String::as_str), Some("PATCH"), "nobody needs it");
    observer.lock().take();
    ended.cancel();
    work.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_freed_before_all_claims_are_listed() {
    let server = server(0..0);
    let protection = protection(&server, SETTINGS);
    let worker = protection.clone();
    #[allow(clippy::disallowed_methods)] // a test's own task
    tokio::spawn(async move { worker.work(CancellationToken::new()).await });
    protection.protect("a", &source(), "u").await.unwrap();
    protection.claim_finished("a", true);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(methods(&server), ["GET", "PATCH"]);
    protection.on_event(&all_listed());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"]);
}

/// A server with the claim `origin`, whose volume is of this driver, and without grants.
fn origin_server() -> Server {
    Server::new(move |_, seen| match seen.url.rsplit('/').collect::<Vec<_>>()[..] {
        ["referencegrants?&limit=500", ..] => {
            Answer::json(200, &json!({"metadata": {}, "items": []}))
        }
        ["pv", ..] => {
            let csi = json!({"driver": DRIVER, "volumeHandle": "h"});
            Answer::json(200, &json!({"spec": {"csi": csi, "claimRef": {"uid": "u"}}}))
        }
        _ if seen.method == "PUT" => Answer::json(200, &seen.json()),
        _ => Answer::json(200, &deleted_origin()),
    })
}

/// The claim `origin`, deleted long ago.
fn deleted_origin() -> Value {
    json!({"metadata": {"namespace": "ns", "name": "origin", "uid": "u", "resourceVersion": "7",
                        "finalizers": [SourceKind::Claim.finalizer()],
                        "deletionTimestamp": "1969-01-01T00:00:00Z"},
           "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})
}

fn counted(server: &Server, method: &str, url: &str) -> usize {
    let seen = server.requests();
    seen.iter().filter(|seen| seen.method == method && seen.url.contains(url)).count()
}

/// Anybody can make many claims that name what he has deleted in his namespace.
#[tokio::test(start_paused = true)]
async fn sources_that_are_freed_at_once_cost_one_list_of_their_namespaces_grants() {
    let server = origin_server();
    let (protection, ended, _) = working(&server);
    for number in 0..20 {
        let (origin, clone) = (format!("origin-{number}"), format!("clone-{number}"));
        let mut deleted = deleted_origin();
        deleted["metadata"]["name"] = json!(origin);
        deleted["metadata"]["uid"] = json!(origin);
        let reference = json!({"kind": "PersistentVolumeClaim", "name": origin, "namespace": "ns"});
        let pending = json!({"metadata": {"namespace": "x", "name": clone, "uid": clone},
                             "spec": {"dataSourceRef": reference}});
        for claim in [deleted, pending] {
            protection.on_event(&InformerEvent::Apply(serde_json::from_value(claim).unwrap()));
        }
    }
    sleep(Duration::from_millis(500)).await;
    for number in 0..20 {
        assert!(counted(&server, "GET", &format!("persistentvolumeclaims/origin-{number}")) > 0);
    }
    assert_eq!(counted(&server, "GET", "referencegrants"), 1);
    ended.cancel();
}
