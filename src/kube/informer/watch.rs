//! The events of one watch, read while they are received.
//!
//! In protobuf each event is a frame: its length in four bytes, and a `WatchEvent` whose object is in an envelope. In
//! JSON each event is a line. An object that cannot be read is [`Tolerant::Unreadable`]; an event that cannot be read
//! is an error. A connection that breaks in the middle ends the events: the next watch goes on where this one ended.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

use std::io;

use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream::BoxStream};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use super::{failure::AnswerError, tolerant::Tolerant};
use crate::kube::{
    client::{
        MAX_ANSWER,
        watch::{WatchEvent, broken_event, json_events, reader},
    },
    connection::transport::ResponseBody,
    encoding::Encoding,
    error::ApiError,
    objects::{
        View,
        kind::Kind,
        protobuf::{Envelope, Fault, NAMES, STATUS, nested, read},
    },
};

/// The events of one watch, until it ends.
pub(super) type Events<V> = BoxStream<'static, Result<WatchEvent<Tolerant<V>>, AnswerError>>;

/// Fields of a `WatchEvent`.
const TYPE: u64 = 1;
const OBJECT: u64 = 2;
/// The one field of a `RawExtension`, which an event's object is in.
const RAW_EXTENSION: u64 = 1;

/// The events in the body of an answer.
pub(super) fn events<V: View>(encoding: Encoding, body: ResponseBody) -> Events<V> {
    match encoding {
        Encoding::Json => {
            json_events(Kind::of::<V>().resource(), body).map_err(AnswerError::from).boxed()
        }
        Encoding::Protobuf => {
            let frames = LengthDelimitedCodec::builder().max_frame_length(MAX_ANSWER).new_codec();
            FramedRead::new(reader(body), frames)
                .filter_map(|frame| {
                    ready(match frame {
                        Ok(frame) => Some(read_frame(&frame)),
                        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                            Some(Err(AnswerError::TooLarge))
                        }
                        Err(error) => broken_event(error).map(|error| Err(error.into())),
                    })
                })
                .boxed()
        }
    }
}

/// Reads an event in protobuf.
fn read_frame<V: View>(frame: &[u8]) -> Result<WatchEvent<Tolerant<V>>, AnswerError> {
    let object = Envelope::of(nested(nested(frame, OBJECT)?, RAW_EXTENSION)?)?;
    Ok(match nested(frame, TYPE)? {
        b"ADDED" | b"MODIFIED" => WatchEvent::Applied(read_object(object)?),
        b"DELETED" => WatchEvent::Deleted(read_object(object)?),
        b"BOOKMARK" => WatchEvent::Bookmark(read(object.raw, NAMES)?),
        b"ERROR" => return Err(ApiError::Refused(Box::new(read(object.raw, STATUS)?)).into()),
        _ => return Err(Fault::Unexpected.into()),
    })
}

fn read_object<V: View>(object: Envelope<'_>) -> Result<Tolerant<V>, AnswerError> {
    if object.kind != V::KIND.as_bytes() {
        return Err(AnswerError::OtherKind);
    }
    Ok(Tolerant::read_protobuf(object.raw))
}

#[cfg(test)]
mod tests;
