//! Turns what the server refuses into an [`ApiError`], with the text that users know from client-go.
//!
//! So kube-rs's client never parses a refusal. An answer 403 also notifies
//! [`preflight`](crate::preflight), so that it checks permissions again.

use std::sync::Arc;

use http::{Method, StatusCode, Uri};
use tokio::sync::Notify;
use tower::service_fn;

use super::{Next, Outcome, Request, Response, read};
use crate::kube::{
    error::{ApiError, Refusal},
    target::Target,
};

/// The most that is read of a refusal, in bytes. A conflict or an invalid object names fields, which are few.
const MAX_REFUSAL: usize = 64 << 10;

/// Turns refusals into errors; an answer 403 notifies `forbidden`.
pub(crate) fn refusals(forbidden: Option<Arc<Notify>>, next: impl Next) -> impl Next {
    service_fn(move |request| send(forbidden.clone(), next.clone(), request))
}

async fn send(forbidden: Option<Arc<Notify>>, next: impl Next, request: Request) -> Outcome {
    let (method, url) = (request.method().clone(), request.uri().clone());
    let response = next.send(request).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if let Some(forbidden) = forbidden.filter(|_| status == StatusCode::FORBIDDEN) {
        forbidden.notify_one();
    }
    let refusal = refusal(response, &method, &url).await;
    Err(ApiError::Refused(Box::new(refusal)).into())
}

/// Reads a refusal. The status code counts even if the body cannot be read.
async fn refusal(response: Response, method: &Method, url: &Uri) -> Refusal {
    let (parts, body) = response.into_parts();
    let body = read(body, MAX_REFUSAL).await.unwrap_or_default();
    Refusal::read(method, &Target::parse(method, url), parts.status, &parts.headers, &body)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::kube::testing::{Answer, Server, request, send};

    #[tokio::test]
    async fn only_an_answer_403_notifies() {
        for (code, expected) in [(403, true), (401, false), (404, false), (200, false)] {
            let forbidden = Arc::new(Notify::new());
            let server = Server::new(move |_, _| Answer::status(code));
            let service = refusals(Some(Arc::clone(&forbidden)), server.service);
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
            let service = refusals(None, server.service);
            let error = send(&service, request(Method::GET, "/api/v1/persistentvolumes")).await;
            assert_eq!(error.unwrap_err().downcast::<ApiError>().unwrap().to_string(), text);
        }
    }
}
