//! Taking and giving back against a scripted API server, under paused time.

use std::ops::Range;

use serde_json::{Value, json};

use super::*;
use crate::{
    kube_api::testing::{Answer, Server, client, random},
    runtime::TokioSpawner,
};

fn source() -> NamedSource {
    NamedSource { kind: SourceKind::Snapshot, namespace: "ns".into(), name: "s".into() }
}

/// The snapshot `s` on a server that keeps what is written to its finalizers; the requests with
/// these numbers are answered with 500.
fn server(fails: Range<usize>) -> Server {
    losing_server(fails, 0..0)
}

/// The same; requests with the numbers `lost` are carried out, and their answers lost.
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

fn protection(server: &Server) -> Protection {
    let settings = Settings {
        restores: true,
        clones: true,
        workers: 1,
        sweep_interval: None,
        retry_start: Duration::from_secs(1),
        retry_max: Duration::from_secs(1),
        peers: false,
    };
    Protection::new(Parts {
        client: client(server),
        metrics: Metrics::new().unwrap(),
        random: random(),
        tasks: Tasks::new(Arc::new(TokioSpawner)).0,
        settings,
    })
}

/// The same, at work.
fn working(server: &Server) -> (Protection, CancellationToken, tokio::task::JoinHandle<()>) {
    let protection = protection(server);
    protection.observe(&Sighting::Complete);
    let (worker, ended) = (protection.clone(), CancellationToken::new());
    let stop = ended.clone();
    #[allow(clippy::disallowed_methods)] // a test's own task
    let work = tokio::spawn(async move { worker.work(stop).await });
    (protection, ended, work)
}

fn methods(server: &Server) -> Vec<String> {
    server.seen().into_iter().map(|seen| seen.method).collect()
}

/// Many at once, and the polls of each, cost one write.
#[tokio::test(start_paused = true)]
async fn what_is_guarded_is_not_written_again() {
    let server = server(0..0);
    let protection = protection(&server);
    let guarded = source();
    let takes = (0..20).map(|claim| {
        let (protection, guarded) = (&protection, &guarded);
        async move { protection.take(&(claim % 10).to_string(), guarded, "u").await }
    });
    assert!(futures::future::join_all(takes).await.into_iter().all(|taken| taken.is_ok()));
    assert_eq!(methods(&server), ["GET", "PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_that_ends_gives_the_finalizer_back_at_once() {
    let server = server(0..0);
    let (protection, ended, work) = working(&server);
    for claim in ["a", "b"] {
        protection.take(claim, &source(), "u").await.unwrap();
    }
    protection.closed("a");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(methods(&server), ["GET", "PATCH"], "b needs it");
    // The end of the process comes with that of the last call.
    protection.closed("b");
    ended.cancel();
    work.await.unwrap();
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"]);
    assert_eq!(server.seen()[3].json()["metadata"]["finalizers"], Value::Null);
}

/// A call that could not begin holds nothing, unless one that it repeats is open.
#[tokio::test(start_paused = true)]
async fn a_source_that_was_not_guarded_is_not_held() {
    let server = server(0..1);
    let protection = protection(&server);
    assert!(protection.take("a", &source(), "u").await.is_err());
    assert!(protection.0.holders.lock().is_orphan(&source()));
    protection.take("a", &source(), "u").await.unwrap();
    assert!(matches!(
        protection.take("a", &source(), "other").await,
        Err(Unprotected::Gone(gone)) if gone == source()
    ));
    assert!(!protection.0.holders.lock().is_orphan(&source()), "the first is open still");
}

/// What the record of a claim names may be anybody's: it is held, and nothing is put on it.
#[tokio::test(start_paused = true)]
async fn what_is_only_held_gets_no_finalizer() {
    let server = server(0..0);
    let (protection, ended, work) = working(&server);
    protection.hold("a", &source(), "u").await.unwrap();
    assert_eq!(protection.0.holders.lock().due(&source()), Due::Keep);
    protection.closed("a");
    ended.cancel();
    work.await.unwrap();
    assert_eq!(methods(&server), ["GET"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_could_not_be_taken_off_is_tried_again() {
    let server = server(2..5);
    let (protection, ended, work) = working(&server);
    protection.take("a", &source(), "u").await.unwrap();
    protection.closed("a");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "GET", "GET", "GET", "PATCH"]);
    assert_eq!(server.seen()[6].json()["metadata"]["finalizers"], Value::Null);
    ended.cancel();
    work.await.unwrap();
}

/// The write that frees the snapshot is carried out, and nobody hears of it.
#[tokio::test(start_paused = true)]
async fn who_begins_after_a_freeing_that_was_not_answered_guards_anew() {
    let server = losing_server(0..0, 3..4);
    let (protection, ended, work) = working(&server);
    protection.take("a", &source(), "u").await.unwrap();
    protection.closed("a");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PATCH"], "it is not tried again yet");
    protection.take("b", &source(), "u").await.unwrap();
    protection.take("b", &source(), "u").await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let all = ["GET", "PATCH", "GET", "PATCH", "GET", "PATCH"];
    assert_eq!(methods(&server), all, "written once, and kept by the next try");
    let ours = json!([SourceKind::Snapshot.finalizer()]);
    assert_eq!(server.seen()[5].json()["metadata"]["finalizers"], ours);
    protection.closed("b");
    ended.cancel();
    work.await.unwrap();
    assert_eq!(server.seen()[7].json()["metadata"]["finalizers"], Value::Null);
}

/// Standbys are told what happens as well, and write nothing.
#[tokio::test(start_paused = true)]
async fn who_does_not_work_frees_nothing() {
    let server = server(0..0);
    let protection = protection(&server);
    protection.take("a", &source(), "u").await.unwrap();
    protection.closed("a");
    assert!(protection.0.snapshots.is_empty());
}
