//! The events of one watch, read while they are received.
//!
//! Each event is a line. An object that cannot be read is [`Tolerant::Unreadable`]; an event that cannot be read
//! is an error. A connection that breaks in the middle ends the events: the next watch goes on where this one ended.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};

use super::{failure::AnswerError, tolerant::Tolerant};
use crate::kube::{
    client::watch::{WatchEvent, json_events},
    connection::transport::ResponseBody,
    objects::{View, kind::Kind},
};

/// The events of one watch, until it ends.
pub(super) type Events<V> = BoxStream<'static, Result<WatchEvent<Tolerant<V>>, AnswerError>>;

/// The events in the body of an answer.
pub(super) fn events<V: View>(body: ResponseBody) -> Events<V> {
    json_events(Kind::of::<V>().resource(), body).map_err(AnswerError::from).boxed()
}

#[cfg(test)]
mod tests;
