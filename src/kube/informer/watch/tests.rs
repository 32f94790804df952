use std::io;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::kube::{client::MAX_ANSWER, error::ApiError, objects::Claim};

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7"}})
}

fn expired() -> Value {
    json!({"status": "Failure", "code": 410, "reason": "Expired", "message": "too old"})
}

/// An event as a server writes it.
fn event(name: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{name}\",\"object\":{object}}}\n").into()
}

/// Reads the events of an answer that is received in these pieces; a text for each event.
async fn read_pieces(pieces: Vec<Result<Bytes, BoxError>>) -> Vec<String> {
    let frames = stream::iter(pieces).map(|piece| piece.map(Frame::data));
    events::<Claim>(StreamBody::new(frames).boxed_unsync())
        .map(|event| text(&event))
        .collect()
        .await
}

async fn read_whole(received: impl Into<Bytes>) -> Vec<String> {
    read_pieces(vec![Ok(received.into())]).await
}

fn text(event: &Result<WatchEvent<Tolerant<Claim>>, AnswerError>) -> String {
    match event {
        Ok(WatchEvent::Applied(object)) => format!("applied {}", object_text(object)),
        Ok(WatchEvent::Deleted(object)) => format!("deleted {}", object_text(object)),
        Ok(WatchEvent::Bookmark(bookmark)) => {
            format!("bookmark {}", bookmark.metadata.resource_version)
        }
        Err(AnswerError::Api(ApiError::Refused(refusal))) => {
            format!("error {} {refusal}", refusal.code)
        }
        Err(error) => error.to_string(),
    }
}

fn object_text(object: &Tolerant<Claim>) -> String {
    match object {
        Tolerant::Read(claim) => claim.name().to_owned(),
        Tolerant::Unreadable { metadata, .. } => {
            format!("unreadable {}", metadata.name.as_deref().unwrap_or_default())
        }
    }
}

/// One event of each type.
fn one_of_each() -> Vec<u8> {
    let bookmark = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}});
    [
        event("ADDED", &claim("a")),
        event("MODIFIED", &claim("b")),
        event("DELETED", &claim("c")),
        event("BOOKMARK", &bookmark),
        event("ERROR", &expired()),
    ]
    .concat()
}

const EACH: [&str; 5] = ["applied a", "applied b", "deleted c", "bookmark 9", "error 410 too old"];

#[tokio::test]
async fn events_read_the_same_wherever_they_are_cut() {
    let received = one_of_each();
    assert_eq!(read_whole(received.clone()).await, EACH);
    for cut in 0..received.len() {
        let (start, end) = received.split_at(cut);
        let pieces = [start, end].map(|piece| Ok(Bytes::copy_from_slice(piece)));
        assert_eq!(read_pieces(pieces.into()).await, EACH, "cut at {cut}");
    }
    let bytes = received.iter().map(|byte| Ok(Bytes::copy_from_slice(&[*byte])));
    assert_eq!(read_pieces(bytes.collect()).await, EACH, "byte by byte");
}

#[tokio::test]
async fn an_answer_that_breaks_in_the_middle_ends_without_an_error() {
    let received = one_of_each();
    for cut in [received.len() - 1, received.len() - 40] {
        let eof: BoxError = io::Error::from(io::ErrorKind::UnexpectedEof).into();
        let pieces = vec![Ok(Bytes::copy_from_slice(&received[..cut])), Err(eof)];
        assert_eq!(read_pieces(pieces).await, EACH[..4]);
    }
    let pieces = vec![Ok(Bytes::from(received)), Err("connection reset by peer".into())];
    let read = read_pieces(pieces).await;
    assert_eq!(read[..5], EACH);
    assert!(read[5].contains("reset by peer"), "{read:?}");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_keeps_its_name() {
    let mut broken = claim("b");
    broken["spec"] = json!(7);
    let line = event("MODIFIED", &broken);
    assert_eq!(read_whole(line).await, ["applied unreadable b"]);
}

#[tokio::test]
async fn a_line_that_is_longer_than_any_event_is_an_error() {
    let line = "x".repeat(MAX_ANSWER + 1);
    let read = read_whole(line).await;
    assert!(read.len() == 1 && read[0].ends_with("larger than 32 MiB"), "{read:?}");
}

#[tokio::test]
async fn a_status_instead_of_an_event_is_an_error() {
    assert_eq!(read_whole(expired().to_string() + "\n").await, ["error 410 too old"]);
    for line in [&b"busy\n"[..], b"\xff\n"] {
        let read = read_whole(line).await;
        assert!(read.len() == 1 && read[0].contains("not JSON"), "{read:?}");
    }
}
