use std::io;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use testkit::apiserver::protobuf;
use tower::BoxError;

use super::*;
use crate::kube::{
    client::watch::event_of_line,
    objects::{Claim, Volume},
};

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7"}})
}

fn expired() -> Value {
    json!({"status": "Failure", "code": 410, "reason": "Expired", "message": "too old"})
}

/// An event in each encoding.
fn event(encoding: Encoding, name: &str, kind: &str, object: &Value) -> Bytes {
    match encoding {
        Encoding::Json => format!("{{\"type\":\"{name}\",\"object\":{object}}}\n").into(),
        Encoding::Protobuf => protobuf::event(name, kind, object).unwrap(),
    }
}

/// Reads the events of an answer that is received in these pieces; a text for each event.
async fn read_pieces(encoding: Encoding, pieces: Vec<Result<Bytes, BoxError>>) -> Vec<String> {
    let frames = stream::iter(pieces).map(|piece| piece.map(Frame::data));
    events::<Claim>(encoding, StreamBody::new(frames).boxed_unsync())
        .map(|event| text(&event))
        .collect()
        .await
}

async fn read_whole(encoding: Encoding, received: impl Into<Bytes>) -> Vec<String> {
    read_pieces(encoding, vec![Ok(received.into())]).await
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
fn one_of_each(encoding: Encoding) -> Vec<u8> {
    let bookmark = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}});
    let of = |name, kind, object: &Value| event(encoding, name, kind, object);
    [
        of("ADDED", "PersistentVolumeClaim", &claim("a")),
        of("MODIFIED", "PersistentVolumeClaim", &claim("b")),
        of("DELETED", "PersistentVolumeClaim", &claim("c")),
        of("BOOKMARK", "PersistentVolumeClaim", &bookmark),
        of("ERROR", "Status", &expired()),
    ]
    .concat()
}

const EACH: [&str; 5] = ["applied a", "applied b", "deleted c", "bookmark 9", "error 410 too old"];

#[tokio::test]
async fn events_read_the_same_in_both_encodings_wherever_they_are_cut() {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let received = one_of_each(encoding);
        assert_eq!(read_whole(encoding, received.clone()).await, EACH);
        for cut in 0..received.len() {
            let (start, end) = received.split_at(cut);
            let pieces = [start, end].map(|piece| Ok(Bytes::copy_from_slice(piece)));
            assert_eq!(read_pieces(encoding, pieces.into()).await, EACH, "cut at {cut}");
        }
        let bytes = received.iter().map(|byte| Ok(Bytes::copy_from_slice(&[*byte])));
        assert_eq!(read_pieces(encoding, bytes.collect()).await, EACH, "byte by byte");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_in_the_middle_ends_without_an_error() {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let received = one_of_each(encoding);
        for cut in [received.len() - 1, received.len() - 40] {
            let eof: BoxError = io::Error::from(io::ErrorKind::UnexpectedEof).into();
            let pieces = vec![Ok(Bytes::copy_from_slice(&received[..cut])), Err(eof)];
            assert_eq!(read_pieces(encoding, pieces).await, EACH[..4]);
        }
        let pieces = vec![Ok(Bytes::from(received)), Err("connection reset by peer".into())];
        let read = read_pieces(encoding, pieces).await;
        assert_eq!(read[..5], EACH);
        assert!(read[5].contains("reset by peer"), "{read:?}");
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_keeps_its_name() {
    let mut broken = claim("b");
    broken["spec"] = json!(7);
    let line = event(Encoding::Json, "MODIFIED", "PersistentVolumeClaim", &broken);
    assert_eq!(read_whole(Encoding::Json, line).await, ["applied unreadable b"]);
    // `spec` a second time, which no server sends.
    let message =
        [&protobuf::object("PersistentVolumeClaim", &claim("b")).unwrap()[..], b"\x12\x02\x08\x01"]
            .concat();
    let frame = protobuf::event_of_message("MODIFIED", "PersistentVolumeClaim", &message);
    assert_eq!(read_whole(Encoding::Protobuf, frame).await, ["applied unreadable b"]);
}

#[tokio::test]
async fn a_frame_that_is_no_event_is_an_error() {
    let volume = event(Encoding::Protobuf, "ADDED", "PersistentVolume", &claim("a"));
    assert_eq!(
        read_whole(Encoding::Protobuf, volume).await,
        ["the answer is about another kind than the one asked for"]
    );
    for frame in [&b"\0\0\0\0"[..], b"\0\0\0\x01x", b"\0\0\0\x0a\x0a\x05ADDED\x12\x01\0"] {
        let read = read_whole(Encoding::Protobuf, frame).await;
        assert!(read.len() == 1 && read[0].contains("no protobuf as expected"), "{read:?}");
    }
    let unknown = event(Encoding::Protobuf, "RENAMED", "PersistentVolumeClaim", &claim("a"));
    assert!(read_whole(Encoding::Protobuf, unknown).await[0].contains("not the expected fields"));
    let endless = read_whole(Encoding::Protobuf, &b"\x7f\xff\xff\xff"[..]).await;
    assert!(endless.len() == 1 && endless[0].ends_with("larger than 32 MiB"), "{endless:?}");
}

#[tokio::test]
async fn a_line_that_is_longer_than_any_event_is_an_error() {
    let line = "x".repeat(MAX_ANSWER + 1);
    let read = read_whole(Encoding::Json, line).await;
    assert!(read.len() == 1 && read[0].ends_with("larger than 32 MiB"), "{read:?}");
}

#[tokio::test]
async fn a_status_instead_of_an_event_is_an_error() {
    assert_eq!(
        read_whole(Encoding::Json, expired().to_string() + "\n").await,
        ["error 410 too old"]
    );
    for line in [&b"busy\n"[..], b"\xff\n"] {
        let read = read_whole(Encoding::Json, line).await;
        assert!(read.len() == 1 && read[0].contains("not JSON"), "{read:?}");
    }
}

#[test]
fn a_volume_reads_the_same_in_both_encodings() {
    let volume =
        crate::kube::objects::protobuf::samples::volume("v", "CSI", &json!({"driver": "d"}));
    let frame = protobuf::event("ADDED", "PersistentVolume", &volume).unwrap();
    let in_protobuf = read_frame::<Volume>(&frame[4..]).unwrap();
    let line = event(Encoding::Json, "ADDED", "PersistentVolume", &volume);
    let in_json =
        event_of_line::<Tolerant<Volume>>("", str::from_utf8(&line).unwrap()).unwrap().unwrap();
    match (in_protobuf, in_json) {
        (WatchEvent::Applied(Tolerant::Read(one)), WatchEvent::Applied(Tolerant::Read(other))) => {
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
        read => panic!("{read:?}"),
    }
}
