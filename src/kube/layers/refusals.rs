//! Turns what the server refuses into an [`ApiError`], with the text that users know from client-go, so that
//! kube-rs's client never parses a refusal. An answer 403 also notifies [`preflight`](crate::preflight), so
//! that it checks permissions again.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, Uri, header};
use kube::core::{Status, response::reason};
use tokio::sync::Notify;
use tower::service_fn;

use super::{Next, Outcome, Request, Response, read};
use crate::kube::{error::ApiError, target::Target};

/// The most that is read of a refusal, in bytes. A conflict or an invalid object names fields, which are few.
pub(super) const MAX_REFUSAL: usize = 64 << 10;

/// The most that is quoted of an answer that is no `Status`, in bytes.
const MAX_TEXT: usize = 2048;

/// Turns refusals into errors; an answer 403 notifies `forbidden`.
pub(crate) fn refusals(forbidden: Arc<Notify>, next: impl Next) -> impl Next {
    service_fn(move |request| send(Arc::clone(&forbidden), next.clone(), request))
}

async fn send(forbidden: Arc<Notify>, next: impl Next, request: Request) -> Outcome {
    let (method, url) = (request.method().clone(), request.uri().clone());
    let response = next.send(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    if response.status() == StatusCode::FORBIDDEN {
        forbidden.notify_one();
    }
    Err(ApiError::from(refusal(response, &method, &url).await).into())
}

/// Reads a refusal. The status code counts even if the body cannot be read.
async fn refusal(response: Response, method: &Method, url: &Uri) -> Status {
    let (head, body) = response.into_parts();
    let body = read(body, MAX_REFUSAL).await.unwrap_or_default();
    let code = head.status.as_u16();
    match serde_json::from_slice::<Status>(&body) {
        Ok(status) if status.message.is_empty() => {}
        Ok(status) if status.code < 400 => return status.with_code(code),
        Ok(status) => return status,
        Err(_) => {}
    }
    let (reason, mut message) = describe(method, head.status, &text(&head.headers, &body));
    let target = Target::parse(method, url);
    let about = target.about();
    if !about.is_empty() {
        let verb = method.as_str().to_ascii_lowercase();
        message = format!("{message} ({verb} {about})");
    }
    Status::failure(&message, reason).with_code(code)
}

/// The reason and message for an answer with this text that is no `Status`, as a proxy gives it: like
/// client-go's, but only where [`ApiError`] or a user needs more than the code.
fn describe(method: &Method, code: StatusCode, text: &str) -> (&'static str, String) {
    let reason = match code {
        StatusCode::NOT_FOUND => {
            let message = "the server could not find the requested resource";
            return (reason::NOT_FOUND, message.to_owned());
        }
        _ if code.is_server_error() => {
            let message = format!(
                "an error on the server ({text:?}) has prevented the request from succeeding"
            );
            return (reason::INTERNAL_ERROR, message);
        }
        StatusCode::CONFLICT if method == Method::POST => reason::ALREADY_EXISTS,
        _ => reason::UNKNOWN,
    };
    let message = format!(
        "the server responded with the status code {} but did not return more information",
        code.as_u16()
    );
    (reason, message)
}

/// The body, truncated, if its media type is text; otherwise `unknown`.
fn text(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    if kind.is_some_and(|kind| !kind.starts_with("text/")) {
        return "unknown".to_owned();
    }
    String::from_utf8_lossy(body.get(..MAX_TEXT).unwrap_or(body)).trim().to_owned()
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
            let service = refusals(Arc::clone(&forbidden), server.service);
            let _ = send(&service, request(Method::GET, "/api/v1/nodes/n")).await;
            assert_eq!(forbidden.notified().now_or_never().is_some(), expected, "{code}");
        }
    }
}
