//! Does as the server says when it says "later".
//!
//! Owns client-go's rule: an answer 429 or 5xx with a `Retry-After` in seconds is not the answer
//! yet; the same request is sent again after that time, at most ten times, whatever its verb (the
//! server says so only of what it did not carry out). Promises that nothing else is ever sent
//! twice. Leaves the wait for a token to `throttle`, which every repetition passes again.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{StatusCode, header};
use tower::ServiceExt as _;

use super::{Outcome, Rule};
use crate::kube_api::transport::{Request, Response, Transport, read};

/// How often one request is repeated, as in client-go.
const MAX_RETRIES: usize = 10;

/// An unread answer up to this size is read to its end, so that its connection can be used again.
const MAX_DRAINED: usize = 2048;

/// Repeats requests when the server asks for it.
pub(crate) struct RetryAfter;

impl Rule for RetryAfter {
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let mut request = request;
            for _ in 0..MAX_RETRIES {
                let Some(again) = copy(&request) else { break };
                let response = next.clone().oneshot(request).await?;
                let Some(wait) = wait(&response) else { return Ok(response) };
                // Only for the connection's sake: what cannot be read is closed with it.
                drop(read(response.into_body(), MAX_DRAINED).await);
                tokio::time::sleep(wait).await;
                request = again;
            }
            next.oneshot(request).await
        })
    }
}

/// How long the server asks to wait, where it asks.
fn wait(response: &Response) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds =
        response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse::<i64>().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The same request once more; none where its body can be read only once.
fn copy(request: &Request) -> Option<Request> {
    let mut copy = http::Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}
