//! Edits against a scripted API server, under paused time.

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::kube::{
    objects::Claim,
    testing::{Answer, RecordedRequest, Server, client},
};

fn claim(version: &str) -> Value {
    json!({"metadata": {"name": "data", "namespace": "sc", "uid": "u", "resourceVersion": version,
                        "finalizers": ["other"]},
           "spec": {"fieldOfNextYear": {"kept": true}}})
}

/// Edits the claim `u` with the function `with`.
async fn edit(
    server: &Server,
    with: impl FnMut(&mut Value) -> Edit,
) -> Result<Edited<Claim>, ApiError> {
    client(server).edit(Name::namespaced("sc", "data").unwrap(), "u", with).await
}

fn add_finalizer(object: &mut Value) -> Edit {
    object["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("ours"));
    Edit::Write
}

fn conflict() -> Answer {
    Answer::refusal(409, "Conflict", "the object has been modified")
}

fn methods(server: &Server) -> Vec<String> {
    server.requests().into_iter().map(|request| request.method).collect()
}

fn echo(request: &RecordedRequest) -> Answer {
    Answer::json(200, &request.json())
}

/// A server that has the claim, and takes what is written.
fn echoing() -> Server {
    let found = |number| if number == 0 { Some(Answer::json(200, &claim("7"))) } else { None };
    Server::new(move |number, request| found(number).unwrap_or_else(|| echo(request)))
}

#[tokio::test]
async fn unknown_fields_survive_an_edit() {
    let server = echoing();
    let Edited::Written(written) = edit(&server, add_finalizer).await.unwrap() else {
        panic!("not written")
    };
    assert!(written.has_finalizer("ours"));
    let mut expected = claim("7");
    expected["metadata"]["finalizers"] = json!(["other", "ours"]);
    let put = &server.requests()[1];
    assert_eq!((&*put.method, put.json()), ("PUT", expected));
}

#[tokio::test]
async fn what_is_put_back_names_its_object_and_version_whatever_the_edit_did() {
    let server = echoing();
    let strip = |object: &mut Value| {
        object["metadata"] = json!({"name": "data", "resourceVersion": "0"});
        Edit::Write
    };
    edit(&server, strip).await.unwrap();
    let put = server.requests()[1].json();
    assert_eq!(put["metadata"], json!({"name": "data", "uid": "u", "resourceVersion": "7"}));
}

#[tokio::test]
async fn another_object_of_the_name_is_left_alone() {
    let server = Server::new(|_, _| {
        let mut other = claim("7");
        other["metadata"]["uid"] = json!("another");
        Answer::json(200, &other)
    });
    let edited = edit(&server, |_| panic!("not the object meant")).await.unwrap();
    assert!(matches!(edited, Edited::Gone));
    assert_eq!(methods(&server), ["GET"]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_begins_anew_with_the_read() {
    let server = Server::new(|number, request| match (number, &*request.method) {
        (_, "GET") => Answer::json(200, &claim(&number.to_string())),
        (1 | 3, _) => conflict(),
        (_, _) => echo(request),
    });
    let versions = Mutex::new(Vec::new());
    let edited = edit(&server, |object| {
        versions.lock().push(object["metadata"]["resourceVersion"].clone());
        add_finalizer(object)
    });
    assert!(matches!(edited.await.unwrap(), Edited::Written(_)));
    assert_eq!(*versions.lock(), ["0", "2", "4"]);
    assert_eq!(methods(&server), ["GET", "PUT"].repeat(3));
    assert_eq!(server.requests()[5].json()["metadata"]["resourceVersion"], "4");
}

#[tokio::test(start_paused = true)]
async fn after_five_conflicts_an_edit_fails() {
    let server = Server::new(|_, request| {
        if request.method == "GET" { Answer::json(200, &claim("7")) } else { conflict() }
    });
    let start = Instant::now();
    assert!(edit(&server, add_finalizer).await.unwrap_err().is_conflict());
    assert_eq!(methods(&server), ["GET", "PUT"].repeat(5));
    let waited = start.elapsed();
    assert!((150..=300).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test]
async fn a_missing_object_is_gone_and_an_unclear_write_is_not_retried() {
    let missing = || Answer::refusal(404, "NotFound", "not found");
    let found = || Answer::json(200, &claim("7"));
    for (read, write, sent, is_gone) in [
        (missing(), missing(), 1, true),
        (found(), missing(), 2, true),
        (found(), Answer::none(), 2, false),
    ] {
        let server =
            Server::new(move |number, _| if number == 0 { read.clone() } else { write.clone() });
        match edit(&server, add_finalizer).await {
            Ok(edited) => assert!(is_gone && matches!(edited, Edited::Gone), "{edited:?}"),
            Err(error) => assert!(!is_gone && error.is_unclear(), "{error}"),
        }
        assert_eq!(methods(&server)[..], ["GET", "PUT"][..sent]);
    }
}

#[tokio::test]
async fn an_answer_without_uid_or_version_is_not_written_back() {
    for field in ["uid", "resourceVersion"] {
        let server = Server::new(move |_, _| {
            let mut nameless = claim("7");
            nameless["metadata"][field] = json!("");
            Answer::json(200, &nameless)
        });
        assert!(matches!(edit(&server, add_finalizer).await, Err(ApiError::Unreadable { .. })));
        assert_eq!(methods(&server), ["GET"]);
    }
}

/// Edits an object with `finalizers` by a patch; returns the request and its body.
async fn patched(
    finalizers: Value,
    edit: impl FnMut(&mut Value) -> Edit,
) -> (RecordedRequest, Value) {
    let server = Server::new(move |number, _| {
        let mut claim = claim("7");
        claim["metadata"]["finalizers"] = finalizers.clone();
        assert!(number < 2);
        Answer::json(200, &claim)
    });
    let name = Name::namespaced("sc", "data").unwrap();
    let by = WriteBy::PatchOfFinalizers;
    let edited = client(&server).edit_by::<Claim>(by, name, "u", edit).await.unwrap();
    assert!(matches!(edited, Edited::Written(_)));
    let patch = server.requests().pop().unwrap();
    let body = patch.json();
    (patch, body)
}

#[tokio::test]
async fn a_patch_of_finalizers_holds_nothing_else_but_object_and_version() {
    let (patch, body) = patched(json!(["other"]), add_finalizer).await;
    assert_eq!(
        (&*patch.method, patch.header("content-type")),
        ("PATCH", "application/merge-patch+json")
    );
    let expected = json!({"uid": "u", "resourceVersion": "7", "finalizers": ["other", "ours"]});
    assert_eq!(body, json!({"metadata": expected}));
    let clear = |object: &mut Value| {
        object["metadata"]["finalizers"] = json!([]);
        Edit::Write
    };
    let (_, body) = patched(json!(["ours"]), clear).await;
    assert_eq!(body["metadata"]["finalizers"], Value::Null, "no empty list is left");
}
