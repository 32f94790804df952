//! One page of a list, read object by object while it is received.
//!
//! No more of the answer is held than one object and what came with its last bytes, so a page may
//! be large. It should be: a page costs a kube-apiserver as much as hundreds of objects. An object that
//! cannot be read is [`Tolerant::Unreadable`]; an answer that ends early or is no list is a [`PageError`].

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

mod buffer;
mod json;
mod protobuf;

use http::Request;
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube::{Client, api::ListMeta, client::Body};

use super::{answer::Answer, tolerant::Tolerant};
use crate::kube::{
    encoding::Encoding,
    objects::{View, protobuf::Fault},
};

/// Why an answer is no list of the kind. Holds nothing of its content.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    /// Its content type is not protobuf, and it is not JSON.
    #[error("the list is no JSON")]
    Json(#[from] serde_json::Error),
    /// Its content type is protobuf, and it is no list in protobuf.
    #[error("the list is no protobuf as expected: {0}")]
    Protobuf(#[from] Fault),
    /// It is protobuf of another kind.
    #[error("the answer is another kind than the list asked for")]
    OtherKind,
    /// It ended early.
    #[error("the list ends in the middle")]
    Ends,
    /// One object, or what surrounds the objects, exceeds the bound.
    #[error("an object of the list, or what stands around the objects, is larger than 32 MiB")]
    TooLarge,
}

impl From<PageError> for kube::Error {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Json(error) => Self::SerdeError(error),
            error => Self::Service(error.into()),
        }
    }
}

/// A page whose answer is being received.
pub(super) struct Page {
    body: Body,
    reader: Reader,
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

enum Reader {
    Json(json::Reader),
    Protobuf(protobuf::Reader),
}

impl Page {
    /// Sends the request of a page, which accepts protobuf as well as JSON if `in_protobuf`. Returns
    /// once the answer has begun.
    pub(super) async fn request(
        client: &Client,
        request: Request<Vec<u8>>,
        in_protobuf: bool,
    ) -> kube::Result<Self> {
        let answer = Answer::request(client, request, "list", in_protobuf).await?;
        Ok(Self { body: answer.body, reader: Reader::new(answer.encoding) })
    }

    /// Waits for the next part.
    pub(super) async fn next<V: View>(&mut self) -> kube::Result<Part<V>> {
        loop {
            if let Some(part) = self.reader.next()? {
                return Ok(part);
            }
            match self.body.frame().await.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) if !data.is_empty() => self.reader.push(&data)?,
                // An empty frame is not the end.
                Some(_) => {}
                None => self.reader.push(&[])?,
            }
        }
    }
}

impl Reader {
    fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::Reader::default()),
            Encoding::Protobuf => Self::Protobuf(protobuf::Reader::default()),
        }
    }

    /// Appends received bytes; an empty slice means the end of the answer.
    fn push(&mut self, bytes: &[u8]) -> Result<(), PageError> {
        match self {
            Self::Json(reader) => reader.push(bytes),
            Self::Protobuf(reader) => reader.push(bytes),
        }
    }

    /// Reads the next part; returns none if more bytes are needed for it.
    fn next<V: View>(&mut self) -> Result<Option<Part<V>>, PageError> {
        match self {
            Self::Json(reader) => reader.next(),
            Self::Protobuf(reader) => reader.next(),
        }
    }
}
