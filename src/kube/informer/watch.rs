//! The events of one watch, read while they are received.
//!
//! In protobuf each event is a frame: its length in four bytes, and a `WatchEvent` whose object is in an envelope. In
//! JSON each event is a line. An object that cannot be read is [`Tolerant::Unreadable`]; an event that cannot be read
//! is an error. A connection that breaks in the middle ends the events: the next watch goes on where this one ended.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

use std::{error::Error, io};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream::BoxStream};
use http_body::Body;
use http_body_util::BodyExt as _;
use kube::{
    api::{TypeMeta, WatchEvent},
    core::{
        Status,
        watch::{Bookmark, BookmarkMeta},
    },
};
use serde::Deserialize;
use tokio_util::{
    codec::{FramedRead, LengthDelimitedCodec, LinesCodec, LinesCodecError},
    io::StreamReader,
};
use tower::BoxError;

use super::tolerant::Tolerant;
use crate::kube::{
    encoding::Encoding,
    objects::{
        View,
        protobuf::{Envelope, Fault, NAMES, STATUS, nested, read},
    },
};

/// The events of one watch, until it ends.
pub(super) type Events<V> = BoxStream<'static, kube::Result<WatchEvent<Tolerant<V>>>>;

/// The longest event, in bytes: far more than a server accepts for one object.
const MAX_EVENT: usize = 32 << 20;

/// Fields of a `WatchEvent`.
const TYPE: u64 = 1;
const OBJECT: u64 = 2;
/// The one field of a `RawExtension`, which an event's object is in.
const RAW_EXTENSION: u64 = 1;

/// Why an event in protobuf cannot be read. Holds nothing of its content.
#[derive(Debug, thiserror::Error)]
pub(super) enum EventError {
    /// It is no protobuf as expected.
    #[error("the event is no protobuf as expected: {0}")]
    Protobuf(#[from] Fault),
    /// Its object is of another kind.
    #[error("the event is about another kind than the one watched")]
    OtherKind,
}

/// The events in the body of an answer.
pub(super) fn events<V, B>(encoding: Encoding, body: B) -> Events<V>
where
    V: View,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let bytes = StreamReader::new(body.into_data_stream().map_err(|error| broken(error.into())));
    match encoding {
        Encoding::Json => FramedRead::new(bytes, LinesCodec::new_with_max_length(MAX_EVENT))
            .filter_map(|line| {
                let event = match line {
                    Ok(line) => event_of_line(&line),
                    Err(error) => ended(not_a_line(error)),
                };
                ready(event)
            })
            .boxed(),
        Encoding::Protobuf => {
            let frames = LengthDelimitedCodec::builder().max_frame_length(MAX_EVENT).new_codec();
            FramedRead::new(bytes, frames)
                .filter_map(|frame| {
                    let event = match frame {
                        Ok(frame) => Some(event_of_frame(&frame)),
                        Err(error) => ended(error),
                    };
                    ready(event)
                })
                .boxed()
        }
    }
}

/// The error of a broken connection. One that breaks in the middle of an answer is `UnexpectedEof`, however a library
/// reports it.
fn broken(error: BoxError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = cause {
        let is_eof = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if is_eof || error.to_string().contains("unexpected EOF during chunk") {
            return io::ErrorKind::UnexpectedEof.into();
        }
        cause = error.source();
    }
    io::Error::other(error)
}

fn not_a_line(error: LinesCodecError) -> io::Error {
    match error {
        LinesCodecError::Io(error) => error,
        error @ LinesCodecError::MaxLineLengthExceeded => io::Error::other(error),
    }
}

/// What a broken connection means: nothing if it broke in the middle of an event, since that ends a watch.
fn ended<T>(error: io::Error) -> Option<kube::Result<T>> {
    (error.kind() != io::ErrorKind::UnexpectedEof).then(|| Err(kube::Error::ReadEvents(error)))
}

/// Reads an event in JSON; returns none if it is the beginning of one, at which the answer ended.
fn event_of_line<V: View>(line: &str) -> Option<kube::Result<WatchEvent<Tolerant<V>>>> {
    match serde_json::from_str(line) {
        Ok(event) => Some(Ok(event)),
        Err(error) if error.is_eof() => None,
        // Some proxies send an error without an event around it.
        Err(error) => Some(Err(match serde_json::from_str::<Status>(line) {
            Ok(status) => kube::Error::Api(status.boxed()),
            Err(_) => kube::Error::SerdeError(error),
        })),
    }
}

/// Reads an event in protobuf.
fn event_of_frame<V: View>(frame: &[u8]) -> kube::Result<WatchEvent<Tolerant<V>>> {
    read_frame(frame).map_err(|error| kube::Error::Service(error.into()))
}

fn read_frame<V: View>(frame: &[u8]) -> Result<WatchEvent<Tolerant<V>>, EventError> {
    let object = Envelope::of(nested(nested(frame, OBJECT)?, RAW_EXTENSION)?)?;
    Ok(match nested(frame, TYPE)? {
        b"ADDED" => WatchEvent::Added(read_object(object)?),
        b"MODIFIED" => WatchEvent::Modified(read_object(object)?),
        b"DELETED" => WatchEvent::Deleted(read_object(object)?),
        b"BOOKMARK" => WatchEvent::Bookmark(read_bookmark(object)?),
        b"ERROR" => WatchEvent::Error(read::<Status>(object.raw, STATUS)?.boxed()),
        _ => return Err(Fault::Unexpected.into()),
    })
}

fn read_object<V: View>(object: Envelope<'_>) -> Result<Tolerant<V>, EventError> {
    if object.kind != V::KIND.as_bytes() {
        return Err(EventError::OtherKind);
    }
    Ok(Tolerant::read_protobuf(object.raw))
}

fn read_bookmark(object: Envelope<'_>) -> Result<Bookmark, Fault> {
    #[derive(Deserialize)]
    struct Versioned {
        metadata: BookmarkMeta,
    }
    let Versioned { metadata } = read(object.raw, NAMES)?;
    Ok(Bookmark { types: TypeMeta::default(), metadata })
}

#[cfg(test)]
mod tests;
