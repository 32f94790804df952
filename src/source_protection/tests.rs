//! Protecting and freeing against a scripted API server, under paused time.

use std::ops::Range;

use serde_json::{Value, json};

use super::{
    testing::{DRIVER, SETTINGS, protection},
    *,
};
use crate::{
    kube::{
        Listed,
        testing::{Answer, Server},
    },
    logging::testing::logged,
};

fn source() -> NamedSource {
    NamedSource { kind: SourceKind::Snapshot, namespace: "ns".into(), name: "s".into() }
}

/// The snapshot `s` on a server that stores its finalizers; the requests with these numbers are
/// answered with 500.
fn server(fails: Range<usize>) -> Server {
    losing_server(fails, 0..0)
}

/// As `server`; requests with the numbers `lost` are executed, but their responses are lost.
fn losing_server(fails: Range<usize>, lost: Range<usize>) -> Server {
    let finalizers = Mutex::new(Value::Null);
    Server::new(move |number, seen| {
        if fails.contains(&number) {
            return Answer::status(500);
        }
        let mut finalizers = finalizers.lock();
        if seen.method == "PATCH" {
            *finalizers = seen.json()["metadata"]["finalizers"].clone();
        }
        if lost.contains(&number) {
            return Answer::none();
        }
        let items = json!({"metadata": {}, "items": []});
        let snapshot = json!({"metadata": {"namespace": "ns", "name": "s", "uid": "u",
                                           "resourceVersion": "7", "finalizers": *finalizers}});
        Answer::json(200, if seen.url.contains('?') { &items } else { &snapshot })
    })
}

fn origin() -> NamedSource {
    NamedSource { kind: SourceKind::Claim, name: "origin".into(), ..source() }
}

/// The end of a list that has shown all claims that are known.
fn all_listed() -> InformerEvent<Claim> {
    let any = Claim::default();
    InformerEvent::InitDone(Listed::of(&[any]))
}

/// Starts the workers, until the token is cancelled.
fn at_work(protection: &Protection) -> CancellationToken {
    protection.on_event(&all_listed());
    let worker = protection.clone();
    let ended = CancellationToken::new();
    let stop = ended.clone();
    #[allow(clippy::disallowed_methods)] // a test's own task
    tokio::spawn(async move { worker.work(stop).await });
    ended
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

/// Many claims at once, and their retries, cost one write.
#[tokio::test(start_paused = true)]
async fn a_protected_source_is_not_written_again() {
    let server = server(0..0);
    let protection = protection(&server, SETTINGS);
    let guarded = source();
    let takes = (0..20).map(|claim| {
        let (protection, guarded) = (&protection, &guarded);
        async move { protection.protect(&(claim % 10).to_string(), guarded, "u").await }
    });
    assert!(futures::future::join_all(takes).await.into_iter().all(|taken| taken.is_ok()));
    assert_eq!(methods(&server), ["GET", "PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_call_removes_the_finalizer_at_once() {
    let server = server(0..0);
    let (protection, ended, work) = working(&server);
    for claim in ["a", "b"] {
        protection.protect(claim, &source(), "u").await.unwrap();
    }
    protection.claim_finished("a");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(methods(&server), ["GET", "PATCH"], "b needs it");
    // The process ends together with the last call.
    protection.claim_finished("b");
    ended.cancel();
    work.await.unwrap();
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"]);
    assert_eq!(server.requests()[3].json()["metadata"]["finalizers"], Value::Null);
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

/// Its claim is deleted while the finalizer is written: nobody else would free the snapshot.
#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_claim_ends_while_it_is_protected_is_freed() {
    let server = server(0..0);
    let (protection, ended, work) = working(&server);
    let guarded = source();
    let ends = async { protection.claim_finished("a") };
    let (protected, ()) = tokio::join!(protection.protect("a", &guarded, "u"), ends);
    protected.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"]);
    assert_eq!(server.requests()[3].json()["metadata"]["finalizers"], Value::Null);
    ended.cancel();
    work.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_removal_is_retried() {
    let server = server(2..5);
    let (protection, ended, work) = working(&server);
    protection.protect("a", &source(), "u").await.unwrap();
    protection.claim_finished("a");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "GET", "GET", "GET", "PATCH"]);
    assert_eq!(server.requests()[6].json()["metadata"]["finalizers"], Value::Null);
    ended.cancel();
    work.await.unwrap();
}

/// The write that frees the snapshot is executed, and its response is lost.
#[tokio::test(start_paused = true)]
async fn a_call_after_an_unanswered_removal_protects_again() {
    let server = losing_server(0..0, 3..4);
    let (protection, ended, work) = working(&server);
    protection.protect("a", &source(), "u").await.unwrap();
    protection.claim_finished("a");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"], "it is not tried again yet");
    protection.protect("b", &source(), "u").await.unwrap();
    protection.protect("b", &source(), "u").await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let all = ["GET", "PATCH", "GET", "PATCH", "GET", "PATCH"];
    assert_eq!(methods(&server), all, "written once, and kept by the next try");
    let ours = json!([SourceKind::Snapshot.finalizer()]);
    assert_eq!(server.requests()[5].json()["metadata"]["finalizers"], ours);
    protection.claim_finished("b");
    ended.cancel();
    work.await.unwrap();
    assert_eq!(server.requests()[7].json()["metadata"]["finalizers"], Value::Null);
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
    protection.claim_finished("a");
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
    protection.claim_finished("a");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(methods(&server), ["GET", "PATCH"]);
    protection.on_event(&all_listed());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"]);
}

/// A server with the claim `origin`, whose volume is of this driver, and with grants for claims of
/// the namespace `x` in its first `granted` responses.
fn origin_server(driver: &'static str, granted: usize) -> Server {
    let asked = Mutex::new(0);
    Server::new(move |_, seen| match seen.url.rsplit('/').collect::<Vec<_>>()[..] {
        ["referencegrants?&limit=500", ..] => {
            let mut asked = asked.lock();
            *asked += 1;
            let grant = json!({"spec": {"from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": "x"}],
                                        "to": [{"group": "", "kind": "PersistentVolumeClaim"}]}});
            let items = if *asked <= granted { json!([grant]) } else { json!([]) };
            Answer::json(200, &json!({"metadata": {}, "items": items}))
        }
        ["pv", ..] => {
            let csi = json!({"driver": driver, "volumeHandle": "h"});
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

/// Delivers a pending clone of it, in this namespace.
fn show_clone(protection: &Protection, namespace: &str) {
    let reference = json!({"kind": "PersistentVolumeClaim", "name": "origin", "namespace": "ns"});
    for claim in [
        deleted_origin(),
        json!({"metadata": {"namespace": namespace, "name": "clone", "uid": "c"},
               "spec": {"dataSourceRef": reference}, "status": {"phase": "Pending"}}),
    ] {
        protection.on_event(&InformerEvent::Apply(serde_json::from_value(claim).unwrap()));
    }
}

fn counted(server: &Server, method: &str, url: &str) -> usize {
    let seen = server.requests();
    seen.iter().filter(|seen| seen.method == method && seen.url.contains(url)).count()
}

/// Grants are read with growing delays.
#[tokio::test(start_paused = true)]
async fn a_claim_of_another_namespace_keeps_a_deleted_source_as_long_as_the_grant_exists() {
    let server = origin_server(DRIVER, 4);
    let settings = ProtectionSettings {
        retry: Backoff::new(SETTINGS.retry.start, Duration::from_secs(300)),
        timeout: None,
        ..SETTINGS
    };
    let protection = protection(&server, settings);
    show_clone(&protection, "x");
    let ended = at_work(&protection);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(counted(&server, "GET", "referencegrants"), 4, "at 0, 1, 3 and 7 s");
    assert_eq!(counted(&server, "PUT", ""), 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(counted(&server, "PUT", "/namespaces/ns/persistentvolumeclaims/origin"), 1);
    ended.cancel();
}

/// Anybody can make many claims that name what he has deleted in his namespace.
#[tokio::test(start_paused = true)]
async fn sources_that_are_freed_at_once_cost_one_list_of_their_namespaces_grants() {
    let server = origin_server(DRIVER, 0);
    let protection = protection(&server, SETTINGS);
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
    let ended = at_work(&protection);
    sleep(Duration::from_millis(500)).await;
    for number in 0..20 {
        assert!(counted(&server, "GET", &format!("persistentvolumeclaims/origin-{number}")) > 0);
    }
    assert_eq!(counted(&server, "GET", "referencegrants"), 1);
    ended.cancel();
}

/// The other provisioner shares the finalizer, and only it knows its calls.
#[tokio::test(start_paused = true)]
async fn a_source_of_another_driver_is_left_to_that_drivers_provisioner() {
    for namespace in ["x", "ns"] {
        let server = origin_server("other.example.com", 0);
        let protection = protection(&server, SETTINGS);
        show_clone(&protection, namespace);
        let ended = at_work(&protection);
        sleep(Duration::from_secs(7200)).await;
        assert_eq!(counted(&server, "PUT", ""), 0, "{namespace}");
        assert!(counted(&server, "GET", "persistentvolumes/pv") > 0, "{namespace}");
        ended.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_source_that_claims_name_is_released_after_the_time_out_and_that_is_reported() {
    let (log, _guard) = logged();
    let server = origin_server(DRIVER, 0);
    let protection = protection(&server, SETTINGS);
    show_clone(&protection, "ns");
    protection.protect("another", &origin(), "u").await.unwrap();
    let ended = at_work(&protection);
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(counted(&server, "PUT", ""), 0, "a call is open");
    protection.claim_finished("another");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(counted(&server, "PUT", "/namespaces/ns/persistentvolumeclaims/origin"), 1);
    let count = r#"provisioner_sources_released_total{reason="protection_timeout"} 1"#;
    assert!(protection.0.deps.metrics.text().contains(count));
    let reported = log.text();
    let warned = reported.lines().find(|line| line.contains("ERROR") && line.contains("ns/origin"));
    assert!(warned.is_some_and(|line| line.contains("1 pending claim")), "{reported}");
    ended.cancel();
}

/// A process that has just started has not observed the source yet.
#[tokio::test(start_paused = true)]
async fn a_source_is_not_released_before_this_process_has_seen_it_for_five_minutes() {
    let server = origin_server(DRIVER, 0);
    let protection = protection(&server, SETTINGS);
    show_clone(&protection, "ns");
    sleep(Duration::from_secs(7200)).await;
    let ended = at_work(&protection);
    sleep(Duration::from_secs(290)).await;
    assert_eq!(counted(&server, "PUT", ""), 0);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(counted(&server, "PUT", ""), 1);
    ended.cancel();
}
