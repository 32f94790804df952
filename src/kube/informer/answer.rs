//! An answer to a list or a watch: its encoding, and its body.

mod refusal;

use http::Request;
use kube::{Client, client::Body};

use crate::kube::{encoding, encoding::Encoding};

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
        encoding::accept(&mut request, in_protobuf);
        let (parts, body) = client.send(request.map(Body::from)).await?.into_parts();
        let encoding = Encoding::of(&parts.headers);
        if !parts.status.is_success() {
            let status = refusal::read(parts.status, encoding, body).await;
            return Err(kube::Error::Api(status.boxed()));
        }
        Ok(Self { encoding, body })
    }
}
