//! The layer under tonic that notes what the driver itself said during one call.
//!
//! tonic makes statuses of its own for resets, end of file, oversize and more, and hands them up
//! as if the driver had sent them. Here, where headers, body and trailers go past, it shows who
//! spoke: [`Heard`] holds it for `status` to judge.

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
use tonic::Code;

use super::link::Link;

/// The largest answer read, in bytes: grpc-go's and tonic's default.
pub(super) const MAX_ANSWER: u32 = 4 << 20;

/// The length of what precedes each message: a flag and the message's length.
const PREFIX: usize = 5;

/// What the end of one call looked like from below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The driver sent this status, in the trailers or in a response without a body.
    Status { code: Code, message: String },
    /// The driver sent a `grpc-status` that is no number.
    Malformed(String),
    /// The connection or the stream broke.
    Broken(String),
    /// The stream ended without a status.
    Silent,
    /// The answer announced more than [`MAX_ANSWER`] bytes.
    Oversize(u32),
}

/// What was noted of one call; clones share the note.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Note>>);

#[derive(Debug, Default)]
struct Note {
    /// Whether the request was handed to the connection, which has not given it back.
    sent: bool,
    end: Option<End>,
}

impl Heard {
    /// The note, once the call is over.
    pub(super) fn end(&self) -> Option<End> {
        self.0.lock().end.clone()
    }

    /// Whether the request may have reached the driver.
    pub(super) fn was_sent(&self) -> bool {
        self.0.lock().sent
    }

    fn sent(&self, sent: bool) {
        self.0.lock().sent = sent;
    }

    /// Notes an end. The first counts: what follows it is its echo.
    fn note(&self, end: End) {
        self.0.lock().end.get_or_insert(end);
    }

    /// Notes the status among headers or trailers, if there is one.
    fn note_status(&self, headers: &mut HeaderMap) {
        // tonic panics on details that are not base64; nobody here reads them.
        headers.remove("grpc-status-details-bin");
        if let Some(end) = status_of(headers) {
            self.note(end);
        }
    }
}

fn status_of(headers: &HeaderMap) -> Option<End> {
    let status = String::from_utf8_lossy(headers.get("grpc-status")?.as_bytes());
    let Ok(code) = status.parse::<i32>() else { return Some(End::Malformed(status.into_owned())) };
    let message = headers.get("grpc-message").map(|text| percent_decoded(text.as_bytes()));
    Some(End::Status { code: Code::from_i32(code), message: message.unwrap_or_default() })
}

/// Undoes gRPC's percent-encoding; what is not encoded properly stays as it is.
fn percent_decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let byte = if first == b'%' { leading_hex(tail) } else { None };
        decoded.push(byte.unwrap_or(first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The byte that the first two characters spell.
fn leading_hex(text: &[u8]) -> Option<u8> {
    // The parser of numbers takes a sign, too.
    let digits = text.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The service the generated clients send one call through.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) link: Link,
    pub(super) heard: Heard,
}

impl tower::Service<Request<tonic::body::Body>> for Wire {
    type Response = Response<Listening>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, hyper::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        // A lost link shows in `call`, where it is noted.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let heard = self.heard.clone();
        heard.sent(true);
        let answer = self.link.sender.try_send_request(request);
        async move {
            match answer.await {
                Ok(answer) => Ok(listen(answer, heard)),
                Err(mut refused) => {
                    // What the connection gives back it has not begun to write.
                    heard.sent(refused.take_message().is_none());
                    let error = refused.into_error();
                    heard.note(End::Broken(told(&error)));
                    Err(error)
                }
            }
        }
        .boxed()
    }
}

fn listen(answer: Response<Incoming>, heard: Heard) -> Response<Listening> {
    let (mut parts, body) = answer.into_parts();
    heard.note_status(&mut parts.headers);
    // What another HTTP status than 200 means, tonic knows.
    let silence_counts = parts.status == StatusCode::OK;
    Response::from_parts(parts, Listening { body, heard, silence_counts, prefix: Vec::new() })
}

/// An error with all its causes.
fn told(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// An answer's body on its way to tonic.
#[derive(Debug)]
pub(super) struct Listening {
    body: Incoming,
    heard: Heard,
    /// Whether an end without a status says something.
    silence_counts: bool,
    /// The first bytes of the first message.
    prefix: Vec<u8>,
}

impl Listening {
    fn note_frame(&mut self, frame: &mut Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.note_size(data.clone());
        } else if let Some(trailers) = frame.trailers_mut() {
            self.heard.note_status(trailers);
        }
    }

    /// Reads the length the first message announces.
    fn note_size(&mut self, mut data: Bytes) {
        let missing = PREFIX.saturating_sub(self.prefix.len()).min(data.len());
        if missing == 0 {
            return;
        }
        self.prefix.extend_from_slice(&data.split_to(missing));
        if self.prefix.len() == PREFIX {
            let mut length = self.prefix.get(1..).unwrap_or_default();
            match length.try_get_u32() {
                Ok(length) if length > MAX_ANSWER => self.heard.note(End::Oversize(length)),
                _ => {}
            }
        }
    }
}

impl Body for Listening {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &mut frame {
            Some(Ok(frame)) => self.note_frame(frame),
            Some(Err(error)) => self.heard.note(End::Broken(told(error))),
            None if self.silence_counts => self.heard.note(End::Silent),
            None => {}
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_encoded_properly_stays_as_it_is() {
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
