//! The layer below tonic that records the status that the driver itself sent.
//!
//! tonic creates statuses for resets, end of file, oversized messages and more, and returns them as
//! if the driver had sent them. This layer sees headers, body and trailers, and records in
//! [`CallTrace`] how the call really ended; `status` evaluates it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use parking_lot::Mutex;
use percent_encoding::percent_decode;
use tonic::Code;

use super::link::{Link, MAX_HEADERS};

/// The maximum size of a response message, in bytes: the default of grpc-go and tonic.
pub(super) const MAX_ANSWER: u32 = 4 << 20;

/// The length of the prefix of each message: a flag and the message's length.
const PREFIX: usize = 5;

/// What h2 says when it refuses headers for their size. It closes the connection.
const HEADERS_TOO_LARGE: [&str; 2] = ["too_many_continuations", "header_list_way_too_large"];

/// How a call ended on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The driver sent this status, in the trailers or in a response without a body.
    Status { code: Code, message: String },
    /// The driver sent a `grpc-status` that is not a number.
    Malformed(String),
    /// The connection or the stream broke.
    Broken(String),
    /// The stream ended without a status.
    NoStatus,
    /// The answer announced more than [`MAX_ANSWER`] bytes.
    Oversize(u32),
}

/// What was recorded of one call. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTrace(Arc<Mutex<TraceState>>);

#[derive(Debug, Default)]
struct TraceState {
    /// Whether the request was passed to the connection, which has not returned it.
    sent: bool,
    end: Option<End>,
}

impl CallTrace {
    /// The recorded end, once the call is over.
    pub(super) fn end(&self) -> Option<End> {
        self.0.lock().end.clone()
    }

    /// Whether the request may have reached the driver.
    pub(super) fn was_sent(&self) -> bool {
        self.0.lock().sent
    }

    fn set_sent(&self, sent: bool) {
        self.0.lock().sent = sent;
    }

    /// Records an end. Only the first counts; later ones are consequences of it.
    fn record_end(&self, end: End) {
        self.0.lock().end.get_or_insert(end);
    }

    /// Records the status in headers or trailers, if there is one.
    fn record_status(&self, headers: &mut HeaderMap) {
        // tonic panics on details that are not base64; this program does not use them.
        headers.remove("grpc-status-details-bin");
        if let Some(end) = status_of(headers) {
            self.record_end(end);
        }
    }
}

fn status_of(headers: &HeaderMap) -> Option<End> {
    let status = String::from_utf8_lossy(headers.get("grpc-status")?.as_bytes());
    let Ok(code) = status.parse::<i32>() else { return Some(End::Malformed(status.into_owned())) };
    let message = headers.get("grpc-message").map(|text| percent_decoded(text.as_bytes()));
    Some(End::Status { code: Code::from_i32(code), message: message.unwrap_or_default() })
}

/// Decodes gRPC's percent-encoding; invalid sequences stay unchanged.
fn percent_decoded(text: &[u8]) -> String {
    percent_decode(text).decode_utf8_lossy().into_owned()
}

/// The service through which tonic sends one call.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) link: Link,
    pub(super) trace: CallTrace,
}

impl tower::Service<Request<tonic::body::Body>> for Wire {
    type Response = Response<ObservedBody>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        // A lost link is reported and recorded in `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let trace = self.trace.clone();
        trace.set_sent(true);
        let answer = self.link.sender.try_send_request(request);
        async move {
            match answer.await {
                Ok(answer) => Ok(observe_body(answer, trace)),
                Err(mut refused) => {
                    // hyper returns the request if it has not begun to write it.
                    trace.set_sent(refused.take_message().is_none());
                    let error = refused.into_error();
                    trace.record_end(End::Broken(reason(&error)));
                    Err(error)
                }
            }
        }
        .boxed()
    }
}

/// Why a call broke; what h2 says of headers that are too large is replaced by words for the driver's author.
fn reason(error: &hyper::Error) -> String {
    let chain = error_chain(error);
    if HEADERS_TOO_LARGE.iter().any(|text| chain.contains(text)) {
        return format!("the response's headers are larger than {MAX_HEADERS} bytes");
    }
    chain
}

fn observe_body(answer: Response<Incoming>, trace: CallTrace) -> Response<ObservedBody> {
    let (mut parts, body) = answer.into_parts();
    trace.record_status(&mut parts.headers);
    // tonic maps HTTP statuses other than 200 itself.
    let requires_status = parts.status == StatusCode::OK;
    Response::from_parts(parts, ObservedBody { body, trace, requires_status, prefix: Vec::new() })
}

/// The error with all its causes.
fn error_chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A response body that is observed on its way to tonic.
#[derive(Debug)]
pub(super) struct ObservedBody {
    body: Incoming,
    trace: CallTrace,
    /// Whether an end without a status is an error of the stream.
    requires_status: bool,
    /// The first bytes of the first message.
    prefix: Vec<u8>,
}

impl ObservedBody {
    fn record_frame(&mut self, frame: &mut Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.record_size(data.clone());
        } else if let Some(trailers) = frame.trailers_mut() {
            self.trace.record_status(trailers);
        }
    }

    /// Reads the length prefix of the first message.
    fn record_size(&mut self, mut data: Bytes) {
        let missing = PREFIX.saturating_sub(self.prefix.len()).min(data.len());
        if missing == 0 {
            return;
        }
        self.prefix.extend_from_slice(&data.split_to(missing));
        if self.prefix.len() == PREFIX {
            let mut length = self.prefix.get(1..).unwrap_or_default();
            match length.try_get_u32() {
                Ok(length) if length > MAX_ANSWER => self.trace.record_end(End::Oversize(length)),
                _ => {}
            }
        }
    }
}

impl Body for ObservedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &mut frame {
            Some(Ok(frame)) => self.record_frame(frame),
            Some(Err(error)) => self.trace.record_end(End::Broken(reason(error))),
            None if self.requires_status => self.trace.record_end(End::NoStatus),
            None => {}
        }
        Poll::Ready(frame)
    }
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
