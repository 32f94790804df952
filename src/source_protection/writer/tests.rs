//! Finalizers written to a scripted API server.

use serde_json::json;

use super::*;
use crate::{
    kube::testing::{Answer, RecordedRequest, Server, client},
    logging::testing::logged,
};

fn source(kind: SourceKind) -> NamedSource {
    NamedSource { kind, namespace: "ns".into(), name: "s".into() }
}

/// An object with these finalizers.
fn object(finalizers: &[&str], deleted: bool) -> Value {
    let deleted = deleted.then_some("2026-01-01T00:00:00Z");
    json!({"metadata": {"namespace": "ns", "name": "s", "uid": "u", "resourceVersion": "7",
                        "finalizers": finalizers, "deletionTimestamp": deleted},
           "spec": {"fieldOfNextYear": true}})
}

/// A server with one object, on which the verbs of `refused` are forbidden.
fn server(object: Value, refused: &'static [&'static str]) -> Server {
    Server::new(move |_, seen| {
        if refused.contains(&seen.method.as_str()) {
            return Answer::refusal(403, "Forbidden", "no");
        }
        match &*seen.method {
            "GET" => Answer::json(200, &object),
            _ => Answer::json(200, &seen.json()),
        }
    })
}

fn methods(server: &Server) -> Vec<String> {
    server.requests().into_iter().map(|seen| seen.method).collect()
}

fn finalizers(seen: &RecordedRequest) -> Value {
    seen.json()["metadata"]["finalizers"].clone()
}

const SNAPSHOT: SourceKind = SourceKind::Snapshot;
const CLAIM: SourceKind = SourceKind::Claim;

#[tokio::test]
async fn only_our_finalizer_is_removed_and_only_while_allowed() {
    for kind in [SNAPSHOT, CLAIM] {
        let server = server(object(&["a", kind.finalizer(), "b"], true), &[]);
        let writer = Writer::new(client(&server));
        let kept = writer.remove_finalizer(&source(kind), "u", || false).await.unwrap();
        assert_eq!(kept, Some(Edited::Unchanged(true)));
        assert_eq!(methods(&server), ["GET"], "somebody began to need it");
        let removed = writer.remove_finalizer(&source(kind), "u", || true).await.unwrap();
        assert_eq!(removed, Some(Edited::Written(false)));
        assert_eq!(finalizers(&server.requests().pop().unwrap()), json!(["a", "b"]));
        let absent = writer.remove_finalizer(&source(kind), "other", || true).await.unwrap();
        assert_eq!(absent, Some(Edited::Gone));
        assert_eq!(server.requests().len(), 4, "another object has the name: nothing is written");
    }
}

/// external-provisioner's role grants `update` on snapshots and not `patch`; that is detected once.
#[tokio::test]
async fn where_snapshots_cannot_be_patched_they_are_updated() {
    let server = server(object(&[], false), &["PATCH"]);
    let writer = Writer::new(client(&server));
    let source = source(SNAPSHOT);
    for _ in 0..2 {
        assert_eq!(writer.add_finalizer(&source, "u").await.unwrap(), Some(FinalizerOrigin::Added));
    }
    assert_eq!(methods(&server), ["GET", "PATCH", "GET", "PUT", "GET", "PUT"]);
    let put = server.requests().pop().unwrap();
    assert_eq!(put.json()["spec"], json!({"fieldOfNextYear": true}), "nothing is lost");
}

#[tokio::test]
async fn snapshots_that_cannot_be_written_are_used_unprotected_and_that_is_logged_once() {
    let (log, _guard) = logged();
    let server = server(object(&[], false), &["PATCH", "PUT"]);
    let writer = Writer::new(client(&server));
    let source = source(SNAPSHOT);
    for _ in 0..3 {
        assert_eq!(writer.add_finalizer(&source, "u").await.unwrap(), None);
    }
    assert_eq!(log.text().matches("cannot be protected").count(), 1, "{}", log.text());
}

/// The sweep removes the finalizer once that is permitted.
#[tokio::test]
async fn a_finalizer_that_cannot_be_removed_is_no_error() {
    for (finalizers, expected) in
        [(&[SNAPSHOT.finalizer()][..], None), (&[], Some(Edited::Unchanged(false)))]
    {
        let server = server(object(finalizers, false), &["PATCH", "PUT"]);
        let writer = Writer::new(client(&server));
        let removal = writer.remove_finalizer(&source(SNAPSHOT), "u", || true).await.unwrap();
        assert_eq!(removal, expected);
    }
}

/// As in external-provisioner: without the permission to update claims there are no clones.
#[tokio::test]
async fn a_claim_that_cannot_be_written_is_not_cloned() {
    let server = server(object(&[], false), &["PUT"]);
    let refused = Writer::new(client(&server)).add_finalizer(&source(CLAIM), "u").await;
    assert!(matches!(refused, Err(Unprotected::Refused(error)) if error.is_forbidden()));
}

#[tokio::test]
async fn a_terminating_object_gets_no_new_finalizer_and_keeps_its_own() {
    for kind in [SNAPSHOT, CLAIM] {
        let bare = server(object(&["a"], true), &[]);
        let writer = Writer::new(client(&bare));
        let refused = writer.add_finalizer(&source(kind), "u").await;
        assert!(matches!(refused, Err(Unprotected::Terminating(_))), "{refused:?}");
        assert_eq!(methods(&bare), ["GET"]);
        let wearing = server(object(&[kind.finalizer()], true), &[]);
        let writer = Writer::new(client(&wearing));
        assert_eq!(
            writer.add_finalizer(&source(kind), "u").await.unwrap(),
            Some(FinalizerOrigin::Existing)
        );
        assert_eq!(methods(&wearing), ["GET"]);
    }
}

#[tokio::test]
async fn a_namesake_is_another_object() {
    let server = server(object(&[SNAPSHOT.finalizer()], false), &[]);
    let writer = Writer::new(client(&server));
    let refused = writer.add_finalizer(&source(SNAPSHOT), "earlier").await;
    assert_eq!(refused.unwrap_err().to_string(), "VolumeSnapshot ns/s is gone");
    assert_eq!(methods(&server), ["GET"]);
}

/// Names are validated before they are used in a URL.
#[tokio::test]
async fn an_odd_name_is_refused_before_anything_is_sent() {
    let server = server(object(&[], false), &[]);
    let odd = NamedSource { name: "../../other/volumesnapshots/s".into(), ..source(SNAPSHOT) };
    let refused = Writer::new(client(&server)).add_finalizer(&odd, "u").await;
    assert!(matches!(refused, Err(Unprotected::Refused(ApiError::BadName(_)))), "{refused:?}");
    assert!(server.requests().is_empty());
}
