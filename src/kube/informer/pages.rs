//! One page of a list, read object by object while it is received.
//!
//! No more of the answer is held than one object and what came with its last bytes, so a page may
//! be large. It should be: a page costs a kube-apiserver as much as hundreds of objects. An object that
//! cannot be read is [`Tolerant::Unreadable`]; an answer that ends early or is no list is an [`AnswerError`].

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

mod buffer;
mod json;

use http_body::Frame;
use http_body_util::BodyExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;

use super::{failure::AnswerError, tolerant::Tolerant};
use crate::kube::{connection::transport::ResponseBody, error::ApiError, objects::View};

/// A page whose answer is being received.
pub(super) struct Page {
    body: ResponseBody,
    reader: json::Reader,
}

/// A part of a page.
pub(super) enum Part<V> {
    /// The metadata of the list: once, before or after the objects.
    Head(ListMeta),
    /// An object.
    Object(Tolerant<V>),
    /// The end of the page.
    End,
}

impl Page {
    /// The page in this body.
    pub(super) fn new(body: ResponseBody) -> Self {
        Self { body, reader: json::Reader::default() }
    }

    /// Waits for the next part.
    pub(super) async fn next<V: View>(&mut self) -> Result<Part<V>, AnswerError> {
        loop {
            if let Some(part) = self.reader.next()? {
                return Ok(part);
            }
            let frame = self.body.frame().await.transpose().map_err(ApiError::from_transport)?;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) if !data.is_empty() => self.reader.push(&data)?,
                // An empty frame is not the end.
                Some(_) => {}
                None => self.reader.push(&[])?,
            }
        }
    }
}
