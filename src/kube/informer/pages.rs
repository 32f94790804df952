//! One page of a list, read object by object while it is received.
//!
//! No more of the answer is held than one object and what came with its last bytes, so a page may
//! be large. It should be: a page costs a kube-apiserver as much as hundreds of objects. Kinds with
//! a table of their message are requested in protobuf, which costs the server a third of JSON; a
//! server that does not have it answers in JSON. An object that cannot be read is
//! [`Tolerant::Unreadable`]; an answer that ends early or is no list is a [`PageError`].

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

mod buffer;
mod json;
mod protobuf;
mod refusal;

use http::{HeaderMap, HeaderValue, Request, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube::{Client, api::ListMeta, client::Body};

use super::tolerant::Tolerant;
use crate::kube::objects::{
    View,
    protobuf::{Fault, MEDIA_TYPE},
};

/// Protobuf, if the server has it.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";

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
        mut request: Request<Vec<u8>>,
        in_protobuf: bool,
    ) -> kube::Result<Self> {
        request.extensions_mut().insert("list");
        let accepted = if in_protobuf { PROTOBUF_OR_JSON } else { "application/json" };
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accepted));
        let response = client.send(request.map(Body::from)).await?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            let status = refusal::read(parts.status, is_protobuf(&parts.headers), body).await;
            return Err(kube::Error::Api(status.boxed()));
        }
        Ok(Self { body, reader: Reader::new(is_protobuf(&parts.headers)) })
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
    fn new(in_protobuf: bool) -> Self {
        if in_protobuf {
            Self::Protobuf(protobuf::Reader::default())
        } else {
            Self::Json(json::Reader::default())
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

/// Whether an answer is in protobuf.
fn is_protobuf(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media.trim().eq_ignore_ascii_case(MEDIA_TYPE)
}
