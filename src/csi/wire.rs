//! The service under the generated clients. It notes what the driver itself sent.
//!
//! tonic makes statuses of its own for resets, end of file, oversized messages and more, and returns them
//! as if the driver had sent them. So a call ends here: its answer is read whole, and passed on to tonic
//! only if the driver says that the call succeeded. Every other end is a [`CallError`], which tonic hands
//! through as its status's source ([`CallError::from_status`]).

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::WithTrailers};
use hyper::body::Incoming;
use percent_encoding::percent_decode;
use tokio::time::timeout;
use tonic::{Code, body::Body};

use super::{
    answer::{self, AnswerMemory, Taken},
    link::{Link, MAX_HEADERS},
    status::CallError,
};
use crate::{plain_text::with_sources, runtime::Gate};

/// The maximum size of a response message, in bytes: the default of grpc-go and tonic.
const MAX_ANSWER: u32 = 4 << 20;

/// The length of the prefix of each message: a flag and the message's length.
const PREFIX: usize = 5;

/// What h2 says when it refuses headers for their size. It closes the connection.
const HEADERS_TOO_LARGE: [&str; 2] = ["too_many_continuations", "header_list_way_too_large"];

/// A whole answer.
type Answer = WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>;

/// Sends calls over one connection, each within the deadline.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) link: Result<Link, CallError>,
    pub(super) timeout: Duration,
    /// Checked right before a call is sent; calls are cut when it closes.
    pub(super) gate: Option<Gate>,
    /// What answers may take.
    pub(super) memory: AnswerMemory,
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<Answer>;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Response<Answer>, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // A lost link is reported in `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { link, timeout: within, gate, memory } = self.clone();
        async move {
            let exchange = timeout(within, exchange(link?, memory, request));
            let ended = match gate {
                Some(gate) => gate.through(exchange).await.map_err(CallError::gate_shut)?,
                None => exchange.await,
            };
            ended.unwrap_or_else(|_| Err(CallError::deadline()))
        }
        .boxed()
    }
}

/// Sends the request, and reads the whole answer.
async fn exchange(
    mut link: Link,
    memory: AnswerMemory,
    request: Request<Body>,
) -> Result<Response<Answer>, CallError> {
    let method = request.uri().path().to_owned();
    match link.sender.try_send_request(request).await {
        Ok(answer) => read(&method, &memory, answer).await,
        Err(mut refused) => {
            // hyper returns the request if it has not begun to write it.
            let is_unsent = refused.take_message().is_some();
            let error = broken(&refused.into_error());
            Err(if is_unsent { error.unsent() } else { error })
        }
    }
}

async fn read(
    method: &str,
    memory: &AnswerMemory,
    answer: Response<Incoming>,
) -> Result<Response<Answer>, CallError> {
    let (mut head, body) = answer.into_parts();
    let has_status = check_status(&mut head.headers)?;
    // tonic makes a status of an HTTP status other than 200.
    let needs_status = head.status == StatusCode::OK && !has_status;
    let mut taken = None;
    let (message, trailers) = read_body(body, memory, &mut taken).await?;
    if needs_status && trailers.is_none() {
        // hyper reports a stream that was reset with NO_ERROR as one that ended.
        let text = "server closed the stream without sending trailers";
        return Err(CallError::local(Code::Unavailable, text));
    }
    answer::check(method, message.get(PREFIX..).unwrap_or_default())?;
    // Given back when tonic has decoded the message, and drops the response.
    head.extensions.insert(taken);
    let trailers = ready(trailers.map(Ok));
    Ok(Response::from_parts(head, Full::new(message).with_trailers(trailers)))
}

/// Reads the first message with its prefix, once its memory is taken, and the trailers, if they have a
/// status.
async fn read_body(
    mut body: Incoming,
    memory: &AnswerMemory,
    taken: &mut Option<Taken>,
) -> Result<(Bytes, Option<HeaderMap>), CallError> {
    let mut message = BytesMut::new();
    let mut whole = PREFIX;
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| broken(&error))?.into_data() {
            Ok(mut data) => {
                if message.len() < PREFIX {
                    take(&mut message, &mut data, PREFIX);
                    let length = length(&message)?;
                    whole = PREFIX + length;
                    if message.len() == PREFIX {
                        *taken = memory.take(length).await;
                        message.reserve(length);
                    }
                }
                take(&mut message, &mut data, whole);
            }
            Err(frame) => {
                let Ok(mut trailers) = frame.into_trailers() else { continue };
                let has_status = check_status(&mut trailers)?;
                return Ok((message.freeze(), has_status.then_some(trailers)));
            }
        }
    }
    Ok((message.freeze(), None))
}

/// Moves `data` to the message until that has `whole` bytes. A second message is not kept.
fn take(message: &mut BytesMut, data: &mut Bytes, whole: usize) {
    let missing = whole.saturating_sub(message.len()).min(data.len());
    message.extend_from_slice(&data.split_to(missing));
}

/// The length of the message, as its prefix says; zero while that is not there.
fn length(prefix: &[u8]) -> Result<usize, CallError> {
    let Some(mut length) = prefix.get(1..PREFIX) else { return Ok(0) };
    match length.get_u32() {
        length @ 0..=MAX_ANSWER => Ok(length as usize),
        length => {
            let text =
                format!("grpc: received message larger than max ({length} vs. {MAX_ANSWER})");
            Err(CallError::local(Code::ResourceExhausted, text))
        }
    }
}

/// Whether headers or trailers have the status of a call that succeeded.
///
/// # Errors
/// They have another status: the driver's, or one that can't be read.
fn check_status(headers: &mut HeaderMap) -> Result<bool, CallError> {
    // tonic panics on details that are not base64; this program does not use them.
    headers.remove("grpc-status-details-bin");
    let Some(status) = headers.get("grpc-status") else { return Ok(false) };
    let status = String::from_utf8_lossy(status.as_bytes());
    let Ok(code) = status.parse() else {
        let text = format!("transport: malformed grpc-status: {status:?}");
        return Err(CallError::local(Code::Unknown, text));
    };
    if code == 0 {
        return Ok(true);
    }
    let message = headers.get("grpc-message").map(|text| percent_decoded(text.as_bytes()));
    Err(CallError::driver(Code::from_i32(code), message.unwrap_or_default()))
}

/// Decodes gRPC's percent-encoding; invalid sequences stay unchanged.
fn percent_decoded(text: &[u8]) -> String {
    percent_decode(text).decode_utf8_lossy().into_owned()
}

/// The connection or the stream broke. What h2 says of headers that are too large is replaced by words for
/// the driver's author.
fn broken(error: &hyper::Error) -> CallError {
    let mut why = with_sources(error);
    if HEADERS_TOO_LARGE.iter().any(|text| why.contains(text)) {
        why = format!("the response's headers are larger than {MAX_HEADERS} bytes");
    }
    CallError::unavailable(&format!("error reading from server: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_percent_encoding_is_kept() {
        for (text, decoded) in [
            ("caf%C3%a9 %25", "caf\u{e9} %"),
            ("%%41", "%A"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%4g", "%4g"),
            ("%+f", "%+f"),
            ("%-0", "%-0"),
            ("%\u{e9}", "%\u{e9}"),
        ] {
            assert_eq!(percent_decoded(text.as_bytes()), decoded, "{text}");
        }
    }
}
