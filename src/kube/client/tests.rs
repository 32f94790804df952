//! Tests of single requests against a scripted API server.

mod odd_names;

use serde_json::json;

use super::*;
use crate::kube::{
    objects::Claim,
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
    let internal = |text: &str| {
        format!("an error on the server ({text:?}) has prevented the request from succeeding")
    };
    let bare = |code: u16| {
        format!(
            "the server responded with the status code {code} but did not return more information"
        )
    };
    let missing = "the server could not find the requested resource".to_owned();
    let html = Answer::status(502).header("content-type", "text/html").chunk(0, "<h1>Bad</h1>\n");
    let secret = Answer::json(500, &json!({"secret": "s"}));
    for (answer, reason, message) in [
        (html, "InternalError", internal("<h1>Bad</h1>")),
        (Answer::status(404), "NotFound", missing),
        (Answer::json(429, &json!({"odd": true})), "", bare(429)),
        (secret, "InternalError", internal("unknown")),
        (Answer::status(418), "", bare(418)),
    ] {
        let error = get(answer).await.unwrap_err();
        assert_eq!(error.refusal().map(|status| &*status.reason), Some(reason));
        assert_eq!(error.to_string(), format!("{message} (get persistentvolumeclaims data)"));
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
