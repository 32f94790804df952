//! An answer to a list or a watch: its encoding, and its body.
//!
//! Kinds with a table of their message are requested in protobuf, which costs the server a third of JSON and this
//! program a fraction of it. A server that does not have it answers in JSON.

mod refusal;

use http::{HeaderMap, HeaderValue, Request, header};
use kube::{Client, client::Body};

use crate::kube::objects::protobuf::MEDIA_TYPE;

/// Protobuf, if the server has it.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// An answer whose body is being received.
pub(super) struct Answer {
    pub(super) encoding: Encoding,
    pub(super) body: Body,
}

impl Answer {
    /// Sends a `request`, which is a "list" or a "watch" to kube's client, and accepts protobuf as well as JSON if
    /// `in_protobuf`. Returns once the answer has begun; an answer that refuses is an error.
    pub(super) async fn request(
        client: &Client,
        mut request: Request<Vec<u8>>,
        verb: &'static str,
        in_protobuf: bool,
    ) -> kube::Result<Self> {
        request.extensions_mut().insert(verb);
        let accepted = if in_protobuf { PROTOBUF_OR_JSON } else { "application/json" };
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accepted));
        let (parts, body) = client.send(request.map(Body::from)).await?.into_parts();
        let encoding = Encoding::of(&parts.headers);
        if !parts.status.is_success() {
            let status = refusal::read(parts.status, encoding, body).await;
            return Err(kube::Error::Api(status.boxed()));
        }
        Ok(Self { encoding, body })
    }
}

impl Encoding {
    /// The encoding that the headers of an answer name; JSON if they name none.
    fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
        if media.trim().eq_ignore_ascii_case(MEDIA_TYPE) { Self::Protobuf } else { Self::Json }
    }
}
