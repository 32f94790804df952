//! Logs requests at `-v=6`, each with its status and duration. Below that level a request costs one
//! comparison.

use std::task::{Context, Poll};

use futures::FutureExt as _;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};
use tracing::Level;

use super::{Answering, Next, Outcome, Request, Response};
use crate::logging::REQUESTS;

/// Logs requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLogLayer;

impl<S> Layer<S> for RequestLogLayer {
    type Service = RequestLog<S>;

    fn layer(&self, next: S) -> RequestLog<S> {
        RequestLog(next)
    }
}

/// The service of [`RequestLogLayer`].
#[derive(Debug, Clone)]
pub(crate) struct RequestLog<S>(S);

impl<S: Next> Service<Request> for RequestLog<S> {
    type Response = Response;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        if tracing::enabled!(target: REQUESTS, Level::TRACE) {
            return send_logged(request, self.0.clone()).boxed();
        }
        self.0.send(request).boxed()
    }
}

async fn send_logged(request: Request, next: impl Next) -> Outcome {
    let (method, url) = (request.method().to_string(), request.uri().to_string());
    let start = Instant::now();
    let outcome = next.send(request).await;
    let took = start.elapsed();
    match &outcome {
        Ok(response) => {
            let status = response.status().as_u16();
            tracing::trace!(target: REQUESTS, method, url, status, ?took, "API request");
        }
        Err(error) => tracing::trace!(target: REQUESTS, method, url, %error, "API request"),
    }
    outcome
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::kube::testing::{Answer, Server, logged, logged_down_to, request, send};

    #[tokio::test(start_paused = true)]
    async fn a_request_is_logged_with_its_status_and_without_bodies() {
        let (log, _guard) = logged_down_to(Level::TRACE);
        let secret = json!({"data": {"userKey": "aHVzaA=="}});
        let answer = Answer::json(200, &secret);
        let server = Server::new(move |_, _| answer.clone());
        let mut request = request(Method::POST, "/api/v1/namespaces/ns/secrets");
        *request.body_mut() = secret.to_string().into_bytes().into();
        send(&RequestLogLayer.layer(server.service.clone()), request).await.unwrap();
        let text = log.text();
        assert!(text.contains("API request") && text.contains("status=200"), "{text}");
        assert!(text.contains("/namespaces/ns/secrets") && !text.contains("userKey"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_logged_at_the_usual_level() {
        let (log, _guard) = logged();
        let server = Server::new(|_, _| Answer::status(200));
        let service = RequestLogLayer.layer(server.service);
        send(&service, request(Method::GET, "/version")).await.unwrap();
        assert_eq!(log.text(), "");
    }
}
