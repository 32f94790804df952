//! Does as the server says when it says "later".
//!
//! Owns client-go's rule: an answer 429 or 5xx with a `Retry-After` in seconds is not the answer
//! yet; the same request is sent again after that time, at most ten times, whatever its verb (the
//! server says so only of what it did not carry out). Promises that nothing else is ever sent
//! twice, and that nobody is kept waiting for long without a word: unlike in client-go, a time
//! beyond [`LONGEST_WAIT`] is the caller's to wait, who gets the refusal. Leaves the wait for a token to `throttle`, which every repetition passes again.

use std::time::Duration;

use http::{StatusCode, header};

use super::{Layer, Outcome};
use crate::{
    kube::connection::transport::{Request, Response, Service, read},
    metrics::{ApiMetrics, WaitReason},
};

/// How often one request is repeated, as in client-go.
const MAX_RETRIES: usize = 10;

/// No API server asks for more than half of this; what stands before one may say anything.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// An unread answer up to this size is read to its end, so that its connection can be used again.
const MAX_DRAINED: usize = 2048;

/// Repeats requests when the server asks for it.
pub(crate) struct RetryAfter(pub(crate) ApiMetrics);

impl Layer for RetryAfter {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        for _ in 0..MAX_RETRIES {
            let response = next.send(request).await?;
            let Some(wait) = wait(&response) else { return Ok(response) };
            self.wait(response, wait).await;
        }
        next.send(request).await
    }
}

impl RetryAfter {
    /// DependencyIndex as long as the server asks for with this answer.
    async fn wait(&self, response: Response, wait: Duration) {
        // Only for the connection's sake: what cannot be read is closed with it.
        drop(read(response.into_body(), MAX_DRAINED).await);
        self.0.waited(WaitReason::RetryAfter, wait);
        tokio::time::sleep(wait).await;
    }
}

/// How long the server asks to wait, where it asks for a time that can be waited here.
fn wait(response: &Response) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds =
        response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse::<i64>().ok()?;
    let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    (wait <= LONGEST_WAIT).then_some(wait)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Method;

    use super::*;
    use crate::kube::{
        stack::layer,
        testing::{Answer, Server, send},
    };

    fn rule() -> RetryAfter {
        RetryAfter(crate::metrics::Metrics::new().unwrap().api)
    }

    /// Sends one POST; gives the final status and when the server was asked.
    async fn post(
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> (u16, Vec<u64>, Vec<String>) {
        let server = Server::new(move |number, _| answer(number));
        let service = layer(rule(), server.transport.clone());
        let request = http::Request::post("/api/v1/persistentvolumes")
            .header("x", "y")
            .body(Bytes::from("{}"));
        let response = send(&service, request.unwrap()).await.unwrap();
        let seen = server.seen();
        let said = seen
            .iter()
            .map(|seen| format!("{} {} {} {}", seen.method, seen.url, seen.header("x"), seen.body));
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
    async fn without_a_short_time_in_seconds_or_an_overload_nothing_is_repeated() {
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
    async fn after_ten_repetitions_the_refusal_is_the_answer() {
        let (status, times, _) = post(|_| Answer::status(429).header("retry-after", "1")).await;
        assert_eq!((status, times), (429, (0..=10).collect()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_not_repeated() {
        let server = Server::new(|_, _| Answer::none());
        let service = layer(rule(), server.transport.clone());
        let request = crate::kube::testing::request(Method::GET, "/api/v1/nodes");
        assert!(send(&service, request).await.is_err());
        assert_eq!(server.seen().len(), 1);
    }
}
