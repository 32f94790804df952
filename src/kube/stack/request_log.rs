//! Logs requests and responses.
//!
//! At `-v=6` each request with its status and duration, at `-v=8` also the bodies, without secrets
//! ([`super::strip_secrets`]). Below those levels a request costs one comparison. Bodies are neither
//! delayed nor changed.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tower::BoxError;
use tracing::{Level, Span};

use super::{
    Layer, Outcome,
    strip_secrets::{MAX_READ, strip_secrets},
    target::{Target, Verb},
};
use crate::{
    kube::connection::transport::{Request, Response, ResponseBody, Service},
    logging::{BODIES, REQUESTS},
};

/// Logs requests and responses.
pub(crate) struct RequestLog;

impl Layer for RequestLog {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if tracing::enabled!(target: REQUESTS, Level::TRACE) {
            // Boxed, so that the rare case does not make every request's future larger.
            return send_logged(request, next).boxed().await;
        }
        next.send(request).await
    }
}

async fn send_logged(request: &mut Request, next: &impl Service) -> Outcome {
    let bodies = tracing::enabled!(target: BODIES, Level::TRACE);
    let Target { verb, resource, .. } = Target::of(request);
    let described = RequestInfo {
        verb,
        resource: resource.to_owned(),
        method: request.method().to_string(),
        url: request.uri().to_string(),
    };
    if bodies && !request.body().is_empty() {
        described.log_body("API request body", request.body());
    }
    let start = Instant::now();
    let outcome = next.send(request).await;
    described.log_outcome(&outcome, start);
    if bodies { outcome.map(|response| described.with_logged_body(response)) } else { outcome }
}

/// The parts of a request that log lines name.
#[derive(Clone)]
struct RequestInfo {
    verb: Verb,
    resource: String,
    method: String,
    url: String,
}

impl RequestInfo {
    fn log_outcome(&self, outcome: &Outcome, start: Instant) {
        let (method, url, took) = (&self.method, &self.url, start.elapsed());
        match outcome {
            Ok(response) => {
                let status = response.status().as_u16();
                tracing::trace!(target: REQUESTS, method, url, status, ?took, "API request");
            }
            Err(error) => tracing::trace!(target: REQUESTS, method, url, %error, "API request"),
        }
    }

    /// Wraps the body of `response`, so that it is logged as it is read.
    fn with_logged_body(self, response: Response) -> Response {
        let parts = Parts::of(self.verb);
        response.map(|body| {
            let buffer = Buffer { bytes: BytesMut::new(), length: 0 };
            LoggedBody { body, request: self, parts, buffer, span: Span::current() }.boxed_unsync()
        })
    }

    fn log_body(&self, message: &'static str, body: &[u8]) {
        let (method, url) = (&self.method, &self.url);
        let body = strip_secrets(&self.resource, body);
        tracing::trace!(target: BODIES, method, url, body, "{message}");
    }
}

/// The parts in which a body is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// At its end.
    Whole,
    /// A watch in JSON: event by event.
    Lines,
}

impl Parts {
    fn of(verb: Verb) -> Self {
        match verb {
            Verb::Watch => Self::Lines,
            _ => Self::Whole,
        }
    }
}

/// A response's body that is logged as it is read.
struct LoggedBody {
    body: ResponseBody,
    request: RequestInfo,
    parts: Parts,
    buffer: Buffer,
    span: Span,
}

/// What was read since the last log line.
struct Buffer {
    /// At most [`MAX_READ`] bytes of it.
    bytes: BytesMut,
    length: usize,
}

impl Buffer {
    fn add(&mut self, data: &[u8]) {
        self.length += data.len();
        let free = MAX_READ.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(data.get(..free).unwrap_or(data));
    }
}

impl LoggedBody {
    /// Adds `data` to the buffer; logs each part that is complete.
    fn on_data(&mut self, data: &Bytes) {
        let mut rest: &[u8] = data;
        let in_lines = self.parts == Parts::Lines;
        while let Some(end) = rest.iter().position(|byte| in_lines && *byte == b'\n') {
            let (line, tail) = rest.split_at(end);
            self.buffer.add(line);
            self.flush();
            rest = tail.get(1..).unwrap_or_default();
        }
        self.buffer.add(rest);
    }

    /// Logs the buffer and empties it.
    fn flush(&mut self) {
        let bytes = self.buffer.bytes.split();
        match std::mem::take(&mut self.buffer.length) {
            0 => {}
            length if length > bytes.len() => {
                let RequestInfo { method, url, .. } = &self.request;
                let _in = self.span.enter();
                tracing::trace!(target: BODIES, method, url, length, "API answer too long to show");
            }
            _ => self.span.in_scope(|| self.request.log_body("API answer", &bytes)),
        }
    }
}

impl Body for LoggedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.on_data(data);
                }
            }
            Some(Err(_)) | None => self.flush(),
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::kube::{
        connection::transport::read,
        stack::layer,
        testing::{Answer, Server, logged, logged_down_to, request, send},
    };

    /// Sends a POST and reads the response to its end; returns what was logged.
    async fn exchange(url: &str, body: &str, answer: Answer) -> String {
        let (log, _guard) = logged_down_to(Level::TRACE);
        let server = Server::new(move |_, _| answer.clone());
        let mut request = request(Method::POST, url);
        *request.body_mut() = body.to_owned().into();
        let answer = send(&layer(RequestLog, server.transport.clone()), request).await.unwrap();
        read(answer.into_body(), 1 << 20).await.unwrap();
        assert_eq!(server.requests()[0].body, body, "nothing is changed");
        log.text()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_and_bodies_are_logged_without_secrets() {
        let secret = json!({"data": {"userKey": "aHVzaA=="}});
        let text = exchange(
            "/api/v1/namespaces/ns/secrets",
            &secret.to_string(),
            Answer::json(200, &secret),
        )
        .await;
        assert!(text.contains("API request") && text.contains("status=200"), "{text}");
        assert!(text.contains("API request body") && text.contains("API answer"), "{text}");
        assert!(text.contains("userKey") && !text.contains("aHVzaA=="), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_logged_event_by_event() {
        let pods = ["a", "b"].map(|name| json!({"metadata": {"name": name}}));
        let answer = Answer::watch().event(0, "ADDED", &pods[0]).event(0, "ADDED", &pods[1]);
        let (log, _guard) = logged_down_to(Level::TRACE);
        let server = Server::new(move |_, _| answer.clone());
        let request = request(Method::GET, "/api/v1/pods?watch=true");
        let answer = send(&layer(RequestLog, server.transport.clone()), request).await.unwrap();
        let mut body = answer.into_body();
        for name in ["a", "b"] {
            body.frame().await.unwrap().unwrap();
            let text = log.text();
            assert!(
                text.lines().last().unwrap().contains(&format!("\\\"name\\\":\\\"{name}")),
                "{text}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_long_body_only_the_length_is_logged() {
        let long = json!("x".repeat(MAX_READ + 1));
        let text = exchange("/api/v1/pods", "", Answer::json(200, &long)).await;
        assert!(text.contains("too long to show") && !text.contains("xxx"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_logged_at_the_usual_level() {
        let (log, _guard) = logged();
        let server = Server::new(|_, _| Answer::status(200));
        let service = layer(RequestLog, server.transport);
        send(&service, request(Method::GET, "/version")).await.unwrap();
        assert_eq!(log.text(), "");
    }
}
