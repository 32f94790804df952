//! Logs what is sent and what comes back.
//!
//! At `-v=6` each request with its code and time, at `-v=8` the bodies too, stripped of secrets
//! ([`super::stripped`]). Promises that below those levels a request costs
//! two comparisons, and that what goes past is neither held back nor changed.

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
    stripped::{MAX_READ, stripped},
    target::{Target, Verb},
};
use crate::{
    kube::connection::transport::{Request, Response, ResponseBody, Service},
    logging::{BODIES, REQUESTS},
};

/// Logs requests and answers.
pub(crate) struct RequestLog;

impl Layer for RequestLog {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if tracing::enabled!(target: REQUESTS, Level::TRACE) {
            // Boxed, for what is hardly ever wanted should not make every request larger.
            return logged(request, next).boxed().await;
        }
        next.send(request).await
    }
}

async fn logged(request: &mut Request, next: &impl Service) -> Outcome {
    let bodies = tracing::enabled!(target: BODIES, Level::TRACE);
    let Target { verb, resource, .. } = Target::of(request);
    let about = About {
        verb,
        resource: resource.to_owned(),
        method: request.method().to_string(),
        url: request.uri().to_string(),
    };
    if bodies && !request.body().is_empty() {
        about.tell("API request body", request.body());
    }
    let start = Instant::now();
    let outcome = next.send(request).await;
    about.ended(&outcome, start);
    if bodies { outcome.map(|response| about.showing(response)) } else { outcome }
}

/// What a request is about.
#[derive(Clone)]
struct About {
    verb: Verb,
    resource: String,
    method: String,
    url: String,
}

impl About {
    fn ended(&self, outcome: &Outcome, start: Instant) {
        let (method, url, took) = (&self.method, &self.url, start.elapsed());
        match outcome {
            Ok(response) => {
                let status = response.status().as_u16();
                tracing::trace!(target: REQUESTS, method, url, status, ?took, "API request");
            }
            Err(error) => tracing::trace!(target: REQUESTS, method, url, %error, "API request"),
        }
    }

    /// The answer, whose body is logged as it goes past.
    fn showing(self, response: Response) -> Response {
        response.map(|body| {
            let kept = Kept { bytes: BytesMut::new(), length: 0 };
            Shown { body, about: self, kept, span: Span::current() }.boxed_unsync()
        })
    }

    fn tell(&self, message: &'static str, body: &[u8]) {
        let (method, url) = (&self.method, &self.url);
        let body = stripped(&self.resource, body);
        tracing::trace!(target: BODIES, method, url, body, "{message}");
    }
}

/// An answer's body that is logged as it goes past: a watch's event by event.
struct Shown {
    body: ResponseBody,
    about: About,
    kept: Kept,
    span: Span,
}

/// What went past since the last line, up to a bound.
struct Kept {
    bytes: BytesMut,
    length: usize,
}

impl Kept {
    fn add(&mut self, data: &[u8]) {
        self.length += data.len();
        let room = MAX_READ.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(data.get(..room).unwrap_or(data));
    }
}

impl Shown {
    fn passes(&mut self, data: &Bytes) {
        let watches = self.about.verb == Verb::Watch;
        let mut rest: &[u8] = data;
        while let Some(end) = rest.iter().position(|byte| watches && *byte == b'\n') {
            let (line, tail) = rest.split_at(end);
            self.kept.add(line);
            self.tell();
            rest = tail.get(1..).unwrap_or_default();
        }
        self.kept.add(rest);
    }

    /// Logs what was kept.
    fn tell(&mut self) {
        let bytes = self.kept.bytes.split();
        match std::mem::take(&mut self.kept.length) {
            0 => {}
            length if length > bytes.len() => {
                let About { method, url, .. } = &self.about;
                let _in = self.span.enter();
                tracing::trace!(target: BODIES, method, url, length, "API answer too long to show");
            }
            _ => self.span.in_scope(|| self.about.tell("API answer", &bytes)),
        }
    }
}

impl Body for Shown {
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
                    self.passes(data);
                }
            }
            Some(Err(_)) | None => self.tell(),
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

    /// What is logged of one exchange, whose answer is read to its end.
    async fn exchange(url: &str, body: &str, answer: Answer) -> String {
        let (log, _guard) = logged_down_to(Level::TRACE);
        let server = Server::new(move |_, _| answer.clone());
        let mut request = request(Method::POST, url);
        *request.body_mut() = body.to_owned().into();
        let answer = send(&layer(RequestLog, server.transport.clone()), request).await.unwrap();
        read(answer.into_body(), 1 << 20).await.unwrap();
        assert_eq!(server.seen()[0].body, body, "nothing is changed");
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
    async fn what_is_too_long_is_only_measured() {
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
