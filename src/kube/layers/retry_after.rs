//! Retries requests when the server answers with `Retry-After`.
//!
//! As in client-go: after an answer 429 or 5xx with a `Retry-After` in seconds the same request is
//! sent again after that time, at most ten times, whatever its verb, because the server sets the
//! header only on requests that it did not carry out. Nothing else is retried here. Unlike in
//! client-go, a time beyond [`LONGEST_WAIT`] is not waited: the caller gets the answer. Every retry
//! passes the throttle again.

use std::time::Duration;

use http::{StatusCode, header};
use tokio::time::sleep;
use tower::service_fn;

use super::{Next, Outcome, Request, Response, again};
use crate::metrics::ApiMetrics;

/// The most retries of one request, as in client-go.
const MAX_RETRIES: usize = 10;

/// No API server asks for more than half of this; a proxy before one may ask for any time.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Retries requests when the server asks for it.
pub(crate) fn retry_after(metrics: ApiMetrics, next: impl Next) -> impl Next {
    service_fn(move |request| send(metrics.clone(), next.clone(), request))
}

async fn send(metrics: ApiMetrics, next: impl Next, request: Request) -> Outcome {
    for _ in 0..MAX_RETRIES {
        let response = next.send(again(&request)).await?;
        let Some(delay) = retry_delay(&response) else { return Ok(response) };
        metrics.waited("retry_after", delay);
        sleep(delay).await;
    }
    next.send(request).await
}

/// How long to wait before the request is sent again; `None` when it is not to be retried.
fn retry_delay(response: &Response) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds =
        response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse::<i64>().ok()?;
    let delay = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    (delay <= LONGEST_WAIT).then_some(delay)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::kube::testing::{Answer, Server, send};

    fn metrics() -> ApiMetrics {
        crate::metrics::Metrics::new().api
    }

    /// Sends one POST; returns the final status, when the server got requests, and these requests.
    async fn post(
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> (u16, Vec<u64>, Vec<String>) {
        let server = Server::new(move |number, _| answer(number));
        let service = retry_after(metrics(), server.service.clone());
        let request = http::Request::post("/api/v1/persistentvolumes")
            .header("x", "y")
            .body(Bytes::from("{}").into());
        let response = send(&service, request.unwrap()).await.unwrap();
        let requests = server.requests();
        let said = requests.iter().map(|request| {
            format!("{} {} {} {}", request.method, request.url, request.header("x"), request.body)
        });
        (response.status().as_u16(), server.times(), said.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_request_is_sent_again_after_the_time_the_server_says() {
        let (status, times, said) = post(|number| match number {
            0 => Answer::status(429).header("retry-after", "7").chunk(0, "slow down"),
            1 => Answer::status(503).header("retry-after", "2"),
            2 => Answer::status(500).header("retry-after", "0"),
            _ => Answer::status(201),
        })
        .await;
        assert_eq!((status, times), (201, vec![0, 7, 9, 9]));
        assert_eq!(said, ["POST /api/v1/persistentvolumes y {}"; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn other_answers_and_other_values_of_retry_after_are_not_retried() {
        for answer in [
            Answer::status(429),
            Answer::status(503),
            Answer::status(503).header("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
            Answer::status(503).header("retry-after", "61"),
            Answer::status(404).header("retry-after", "1"),
            Answer::status(200).header("retry-after", "1"),
        ] {
            assert_eq!(post(move |_| answer.clone()).await.1.len(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_ten_retries_the_caller_gets_the_refusal() {
        let (status, times, _) = post(|_| Answer::status(429).header("retry-after", "1")).await;
        assert_eq!((status, times), (429, (0..=10).collect()));
    }
}
