//! Turns what the server refuses into an [`ApiError`], with the text that users know from client-go.
//!
//! So kube-rs's client never parses a refusal. An answer 403 also notifies
//! [`preflight`](crate::preflight), so that it checks permissions again.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::FutureExt as _;
use http::{Method, StatusCode, Uri};
use tokio::sync::Notify;
use tower::{BoxError, Layer, Service};

use super::{Answering, Next, Request, Response, read, target::Target};
use crate::kube::error::{ApiError, Refusal};

/// The most that is read of a refusal, in bytes. A conflict or an invalid object names fields, which are few.
const MAX_REFUSAL: usize = 64 << 10;

/// Turns refusals into errors; notifies of answers 403.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusalsLayer {
    /// Whom an answer 403 notifies.
    pub(crate) forbidden: Option<Arc<Notify>>,
}

impl<S> Layer<S> for RefusalsLayer {
    type Service = Refusals<S>;

    fn layer(&self, next: S) -> Refusals<S> {
        Refusals { forbidden: self.forbidden.clone(), next }
    }
}

/// The service of [`RefusalsLayer`].
#[derive(Debug, Clone)]
pub(crate) struct Refusals<S> {
    forbidden: Option<Arc<Notify>>,
    next: S,
}

impl<S: Next> Service<Request> for Refusals<S> {
    type Response = Response;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        let Self { forbidden, next } = self.clone();
        let (method, url) = (request.method().clone(), request.uri().clone());
        async move {
            let response = next.send(request).await?;
            let status = response.status();
            if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(response);
            }
            if let Some(forbidden) = forbidden.filter(|_| status == StatusCode::FORBIDDEN) {
                forbidden.notify_one();
            }
            let refusal = refusal(response, &method, &url).await;
            Err(ApiError::Refused(Box::new(refusal)).into())
        }
        .boxed()
    }
}

/// Reads a refusal. The status code counts even if the body cannot be read.
async fn refusal(response: Response, method: &Method, url: &Uri) -> Refusal {
    let (parts, body) = response.into_parts();
    let body = read(body, MAX_REFUSAL).await.unwrap_or_default();
    Refusal::read(method, &Target::parse(method, url), parts.status, &parts.headers, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::testing::{Answer, Server, request, send};

    #[tokio::test]
    async fn only_an_answer_403_notifies() {
        for (code, expected) in [(403, true), (401, false), (404, false), (200, false)] {
            let forbidden = Arc::new(Notify::new());
            let server = Server::new(move |_, _| Answer::status(code));
            let layer = RefusalsLayer { forbidden: Some(Arc::clone(&forbidden)) };
            let service = layer.layer(server.service);
            let _ = send(&service, request(Method::GET, "/api/v1/nodes/n")).await;
            assert_eq!(forbidden.notified().now_or_never().is_some(), expected, "{code}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_with_the_servers_words() {
        for (answer, text) in [
            (Answer::refusal(403, "Forbidden", "no"), "no"),
            (
                Answer::status(404),
                "the server could not find the requested resource (get persistentvolumes)",
            ),
            (
                Answer::status(503).chunk(0, "x".repeat(MAX_REFUSAL + 1)),
                "the server is currently unable to handle the request (get persistentvolumes)",
            ),
        ] {
            let server = Server::new(move |_, _| answer.clone());
            let service = RefusalsLayer::default().layer(server.service);
            let error = send(&service, request(Method::GET, "/api/v1/persistentvolumes")).await;
            assert_eq!(error.unwrap_err().downcast::<ApiError>().unwrap().to_string(), text);
        }
    }
}
