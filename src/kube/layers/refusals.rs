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

/// client-go's reason and message for answers that are no `Status`; an empty message is the answer's own text.
const TEXTS: [(StatusCode, &str, &str); 12] = [
    (StatusCode::CONFLICT, reason::CONFLICT, "the server reported a conflict"),
    (StatusCode::NOT_FOUND, reason::NOT_FOUND, "the server could not find the requested resource"),
    (
        StatusCode::BAD_REQUEST,
        reason::BAD_REQUEST,
        "the server rejected our request for an unknown reason",
    ),
    (
        StatusCode::UNAUTHORIZED,
        reason::UNAUTHORIZED,
        "the server has asked for the client to provide credentials",
    ),
    (StatusCode::FORBIDDEN, reason::FORBIDDEN, ""),
    (
        StatusCode::METHOD_NOT_ALLOWED,
        reason::METHOD_NOT_ALLOWED,
        "the server does not allow this method on the requested resource",
    ),
    (
        StatusCode::NOT_ACCEPTABLE,
        reason::NOT_ACCEPTABLE,
        "the server was unable to respond with a content type that the client supports",
    ),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, reason::UNSUPPORTED_MEDIA_TYPE, ""),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        reason::INVALID,
        "the server rejected our request due to an error in our request",
    ),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        reason::SERVICE_UNAVAILABLE,
        "the server is currently unable to handle the request",
    ),
    (
        StatusCode::GATEWAY_TIMEOUT,
        reason::TIMEOUT,
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
    (
        StatusCode::TOO_MANY_REQUESTS,
        reason::TOO_MANY_REQUESTS,
        "the server has received too many requests and has asked us to try again later",
    ),
];

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

/// client-go's reason and message for an answer with this text that is no `Status`.
fn describe(method: &Method, code: StatusCode, text: &str) -> (&'static str, String) {
    match TEXTS.iter().find(|(known, ..)| *known == code) {
        Some((StatusCode::CONFLICT, _, message)) if method == Method::POST => {
            (reason::ALREADY_EXISTS, (*message).to_owned())
        }
        Some((_, reason, "")) => (reason, text.to_owned()),
        Some((_, reason, message)) => (reason, (*message).to_owned()),
        None if code.is_server_error() => (
            reason::INTERNAL_ERROR,
            format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        None => (
            reason::UNKNOWN,
            format!(
                "the server responded with the status code {} but did not return more information",
                code.as_u16()
            ),
        ),
    }
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
            let service = refusals(Arc::default(), server.service);
            let error = send(&service, request(Method::GET, "/api/v1/persistentvolumes")).await;
            assert_eq!(error.unwrap_err().downcast::<ApiError>().unwrap().to_string(), text);
        }
    }
}
