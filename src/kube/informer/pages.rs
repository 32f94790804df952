//! One page of a list, object by object while it comes.
//!
//! Owns asking for a page and reading its answer from the bytes as they arrive: no more of it is held than
//! one object and what came with its last bytes, so that a page may be large. It should be: a
//! kube-apiserver spends as much on a page as on hundreds of objects. Kinds of which the messages
//! are known are asked for in protobuf, which costs a server a third of JSON; whoever does not
//! speak it answers in JSON. Promises what [`Tolerant`] does, that an answer which ends early or is
//! of neither form is an error, and that the page's version is known as soon as it came. Leaves the order
//! of pages and watch to `listed`.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod held;
mod json;
mod protobuf;
mod refusal;

use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt as _;
use kube::{
    Api, Client,
    api::{ListMeta, ListParams, Request},
    client::Body,
    runtime::watcher,
};

use super::tolerant::Tolerant;
use crate::kube::objects::{
    View,
    protobuf::{Fault, MEDIA_TYPE},
};

/// Protobuf where the server speaks it.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";

/// Why an answer is no list of the kind. Tells nothing of its content.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// Neither JSON nor, where that was said, protobuf.
    #[error("the list is no JSON")]
    Json(#[from] serde_json::Error),
    /// No protobuf of a list.
    #[error("the list is no protobuf as expected: {0}")]
    Protobuf(#[from] Fault),
    /// An envelope with something else.
    #[error("the answer is another kind than the list asked for")]
    OtherKind,
    /// It ended early.
    #[error("the list ends in the middle")]
    Ends,
    /// One object has no end, or what stands around the objects.
    #[error("an object of the list, or what stands around the objects, is larger than 32 MiB")]
    TooLarge,
}

impl From<Broken> for kube::Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Json(error) => Self::SerdeError(error),
            broken => Self::Service(broken.into()),
        }
    }
}

/// Whether a list failed in such a way that it is better asked for in JSON.
pub(super) fn wants_json(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Service(error)) => {
            matches!(error.downcast_ref(), Some(Broken::Protobuf(_) | Broken::OtherKind))
        }
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => status.code == 406,
        _ => false,
    }
}

/// A page on its way.
pub(super) struct Page {
    body: Body,
    reader: Reader,
}

/// What comes of a page next.
pub(super) enum Part<V> {
    /// Its version: once, before or after the objects.
    Head(ListMeta),
    /// An object.
    Object(Tolerant<V>),
    /// Nothing more.
    End,
}

enum Reader {
    Json(json::Reader),
    Protobuf(protobuf::Reader),
}

impl Page {
    /// Asks for the page that `params` name, also `in_protobuf`, or in JSON alone. It has begun to come when this returns.
    pub(super) async fn ask<V: View>(
        api: Api<Tolerant<V>>,
        params: ListParams,
        in_protobuf: bool,
    ) -> kube::Result<Self> {
        let request = Request::new(api.resource_url()).list(&params);
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("list");
        let accepted = if in_protobuf { PROTOBUF_OR_JSON } else { "application/json" };
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accepted));
        let response = Client::from(api).send(request.map(Body::from)).await?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            let status = refusal::read(parts.status, is_protobuf(&parts.headers), body).await;
            return Err(kube::Error::Api(status.boxed()));
        }
        Ok(Self { body, reader: Reader::of(is_protobuf(&parts.headers)) })
    }

    /// What has come already.
    pub(super) fn at_hand<V: View>(&mut self) -> kube::Result<Option<Part<V>>> {
        Ok(self.reader.next()?)
    }

    /// DependencyIndex for more of it. Nothing is lost when this is dropped.
    pub(super) async fn comes(&mut self) -> kube::Result<()> {
        let frame = self.body.frame().await.transpose()?;
        let came = match &frame {
            // An empty frame is not the end.
            Some(frame) => frame.data_ref().filter(|data| !data.is_empty()),
            None => return Ok(self.reader.take_in(&[])?),
        };
        Ok(came.map_or(Ok(()), |came| self.reader.take_in(came))?)
    }
}

impl Reader {
    fn of(in_protobuf: bool) -> Self {
        if in_protobuf {
            Self::Protobuf(protobuf::Reader::default())
        } else {
            Self::Json(json::Reader::default())
        }
    }

    /// Takes in more bytes; none at the answer's end.
    fn take_in(&mut self, came: &[u8]) -> Result<(), Broken> {
        match self {
            Self::Json(reader) => reader.take_in(came),
            Self::Protobuf(reader) => reader.take_in(came),
        }
    }

    /// The next part, where enough has come for it.
    fn next<V: View>(&mut self) -> Result<Option<Part<V>>, Broken> {
        match self {
            Self::Json(reader) => reader.next(),
            Self::Protobuf(reader) => reader.next(),
        }
    }
}

/// Whether an answer is in protobuf.
fn is_protobuf(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|said| said.to_str().ok());
    let media = said.and_then(|said| said.split(';').next()).unwrap_or_default();
    media.trim().eq_ignore_ascii_case(MEDIA_TYPE)
}
