//! Tests of single requests against a scripted API server.

mod odd_names;

use serde_json::json;

use super::*;
use crate::kube::{
    objects::{Claim, StorageClass, Volume},
    testing::{Answer, End, Server, client},
};

fn claim() -> Value {
    json!({"metadata": {"name": "data", "namespace": "sc", "uid": "u"}, "spec": {"volumeName": "pv"}})
}

fn data() -> Name<'static> {
    Name::namespaced("sc", "data").unwrap()
}

/// Sends a GET to a server that gives this answer.
async fn get(answer: Answer) -> Result<Claim, ApiError> {
    client(&Server::new(move |_, _| answer.clone())).get(data()).await
}

#[tokio::test]
async fn a_read_returns_the_fields_of_the_view() {
    let server = Server::new(|_, _| Answer::json(200, &claim()));
    let read: Claim = client(&server).get(data()).await.unwrap();
    assert_eq!((read.uid(), read.spec.volume_name.as_deref()), ("u", Some("pv")));
    let raw = client(&server).get_raw(&Kind::of::<Claim>(), data()).await.unwrap();
    assert_eq!(raw, claim());
    for request in server.requests() {
        assert_eq!(
            (&*request.method, &*request.url),
            ("GET", "/api/v1/namespaces/sc/persistentvolumeclaims/data")
        );
        assert_eq!(request.header("accept"), "application/json");
    }
}

#[tokio::test]
async fn writes_have_the_methods_urls_and_media_types_of_the_api() {
    let server = Server::new(|_, _| Answer::json(200, &json!({"metadata": {"name": "pv"}})));
    let client = client(&server);
    let (pv, body) = (Name::cluster("pv").unwrap(), json!({"a": 1}));
    let created: Volume = client.create(None, &body).await.unwrap();
    assert_eq!(created.name(), "pv");
    let _: Claim = client.create(Some("sc"), &body).await.unwrap();
    let _: Claim = client.replace_raw(data(), &body).await.unwrap();
    let _: Volume = client.patch(pv, &Patch::Merge(body.clone())).await.unwrap();
    let _: StorageClass = client.patch(pv, &Patch::Strategic(body.clone())).await.unwrap();
    let requests = server.requests();
    let sent: Vec<_> = requests
        .iter()
        .map(|request| {
            let (path, query) = request.url.split_once('?').unwrap();
            assert_eq!(query.trim_start_matches('&'), "fieldValidation=Ignore");
            (&*request.method, path, request.header("content-type"))
        })
        .collect();
    assert_eq!(
        sent,
        [
            ("POST", "/api/v1/persistentvolumes", "application/json"),
            ("POST", "/api/v1/namespaces/sc/persistentvolumeclaims", "application/json"),
            ("PUT", "/api/v1/namespaces/sc/persistentvolumeclaims/data", "application/json"),
            ("PATCH", "/api/v1/persistentvolumes/pv", "application/merge-patch+json"),
            (
                "PATCH",
                "/apis/storage.k8s.io/v1/storageclasses/pv",
                "application/strategic-merge-patch+json"
            ),
        ]
    );
    assert!(requests.iter().all(|request| request.json() == body));
}

#[tokio::test]
async fn a_created_object_that_cannot_be_read_may_exist() {
    let server = Server::new(|_, _| Answer::json(201, &json!({"metadata": 7})));
    let error = client(&server).create::<Volume>(None, &json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the API server's answer about persistentvolumes: not the expected fields (at line 1 column 13)"
    );
    assert!(error.is_unclear());
}

#[tokio::test]
async fn a_delete_has_the_uid_as_precondition() {
    let server =
        Server::new(|_, _| Answer::json(200, &json!({"kind": "Status", "status": "Success"})));
    let client = client(&server);
    client.delete::<Claim>(data(), Some("u")).await.unwrap();
    client.delete::<Claim>(data(), None).await.unwrap();
    let options = |number: usize| server.requests()[number].json();
    assert_eq!(options(0), json!({"preconditions": {"uid": "u"}}));
    assert_eq!(options(1), json!({}));
}

#[tokio::test]
async fn a_delete_returns_the_remaining_finalizers() {
    let finalizers = |answer: Value| async move {
        let server = Server::new(move |_, _| Answer::json(200, &answer));
        client(&server).delete::<Claim>(data(), Some("u")).await.unwrap()
    };
    let kept = json!({"kind": "PersistentVolumeClaim", "metadata": {"uid": "u", "finalizers": ["a", "b"]}});
    assert_eq!(finalizers(kept).await, ["a", "b"]);
    for gone in
        [json!({"metadata": {"uid": "u"}}), json!({"kind": "Status", "metadata": {}}), json!("odd")]
    {
        assert!(finalizers(gone).await.is_empty());
    }
}

#[tokio::test]
async fn a_refusal_prints_only_the_servers_message() {
    let message = "persistentvolumeclaims \"data\" not found";
    let error = get(Answer::refusal(404, "NotFound", message)).await.unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!(
        error.refusal().map(|status| (status.code, &*status.reason)),
        Some((404, "NotFound"))
    );
    assert!(error.is_not_found() && !error.is_unclear());
}

#[tokio::test]
async fn the_reason_wins_over_the_code() {
    let error = get(Answer::refusal(409, "AlreadyExists", "m")).await.unwrap_err();
    assert!(error.is_already_exists() && !error.is_conflict());
    let error = get(Answer::refusal(409, "Conflict", "m")).await.unwrap_err();
    assert!(error.is_conflict() && !error.is_already_exists());
    let error = get(Answer::refusal(409, "OfAnotherVersion", "m")).await.unwrap_err();
    assert!(error.is_conflict());
    assert!(get(Answer::refusal(403, "Forbidden", "m")).await.unwrap_err().is_forbidden());
    assert!(get(Answer::refusal(422, "Invalid", "m")).await.unwrap_err().is_invalid());
}

#[tokio::test]
async fn an_answer_that_is_no_status_gets_client_gos_message() {
    let html =
        Answer::status(502).header("content-type", "text/html").chunk(0, "<h1>Bad Gateway</h1>\n");
    for (answer, reason, message) in [
        (
            html,
            "InternalError",
            "an error on the server (\"<h1>Bad Gateway</h1>\") has prevented the request from succeeding (get persistentvolumeclaims data)",
        ),
        (
            Answer::status(404),
            "NotFound",
            "the server could not find the requested resource (get persistentvolumeclaims data)",
        ),
        (
            Answer::json(429, &json!({"odd": true})),
            "",
            "the server responded with the status code 429 but did not return more information (get persistentvolumeclaims data)",
        ),
        (
            Answer::json(500, &json!({"secret": "s"})),
            "InternalError",
            "an error on the server (\"unknown\") has prevented the request from succeeding (get persistentvolumeclaims data)",
        ),
        (
            Answer::status(418),
            "",
            "the server responded with the status code 418 but did not return more information (get persistentvolumeclaims data)",
        ),
    ] {
        let error = get(answer).await.unwrap_err();
        assert_eq!(error.refusal().map(|status| &*status.reason), Some(reason));
        assert_eq!(error.to_string(), message);
    }
}

#[tokio::test]
async fn a_refusal_with_a_broken_body_is_a_refusal() {
    let error = get(Answer::status(409).chunk(0, "{\"kind\":").end(End::Broken)).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
}

#[tokio::test]
async fn a_long_answer_that_is_no_status_is_cut() {
    let long = "x".repeat(1 << 20);
    let error = get(Answer::status(500).header("content-type", "text/plain").chunk(0, long))
        .await
        .unwrap_err();
    assert!(error.to_string().len() < 2200);
}

#[tokio::test]
async fn the_error_of_an_unreadable_answer_has_none_of_its_content() {
    let mut odd = claim();
    odd["spec"] = json!({"accessModes": "hunter2"});
    let error = get(Answer::json(200, &odd)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(
        "cannot read the API server's answer about persistentvolumeclaims data: not the expected fields (at line 1"
    ));
    assert!(!text.contains("hunter2") && error.is_unclear());
}

#[tokio::test]
async fn an_answer_is_read_up_to_a_limit() {
    let endless =
        (0..80).fold(Answer::status(200), |answer, _| answer.chunk(0, " ".repeat(1 << 19)));
    let error = get(endless).await.unwrap_err();
    assert!(error.to_string().ends_with("is larger than 32 MiB"), "{error}");
}

#[tokio::test]
async fn a_missing_or_partial_answer_is_unclear() {
    for answer in [Answer::none(), Answer::status(200).chunk(0, "{").end(End::Broken)] {
        let error = get(answer).await.unwrap_err();
        assert!(matches!(error, ApiError::NoAnswer(_)) && error.is_unclear());
        assert_eq!(error.to_string(), "no answer from the API server: connection reset by peer");
        assert_eq!(error.code(), None);
    }
}

#[tokio::test]
async fn an_odd_or_missing_namespace_sends_nothing() {
    let server = Server::new(|_, _| Answer::status(200));
    let client = client(&server);
    let error = client.create::<Claim>(Some("../x"), &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid namespace \"../x\": [may not contain '/']");
    assert!(!error.is_unclear());
    let error = client.create::<Claim>(None, &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "an empty namespace may not be set during creation");
    let error = client.get::<Claim>(Name::cluster("data").unwrap()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "an empty namespace may not be set when a resource name is provided"
    );
    assert!(server.requests().is_empty());
}
