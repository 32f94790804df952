//! Limits how long an answer may take.
//!
//! A request is answered within the deadline counted from its sending, or fails with [`DeadlineExceeded`].
//! Answers are read whole below this layer ([`whole_answers`](super::whole_answers)), all but that of a watch
//! that begins: for it the deadline covers only the headers, and the reader of its body has its own time-outs.

use std::time::Duration;

use tokio::time::timeout;
use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::kube::error::DeadlineExceeded;

/// Fails requests that take longer than `limit`.
pub(crate) fn deadline(limit: Duration, next: impl Next) -> impl Next {
    service_fn(move |request| send(limit, next.clone(), request))
}

async fn send(limit: Duration, next: impl Next, request: Request) -> Outcome {
    let answer = timeout(limit, next.send(request)).await;
    answer.unwrap_or_else(|_| Err(DeadlineExceeded(limit).into()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Method;
    use tokio::time::Instant;
    use tower::BoxError;

    use super::*;
    use crate::kube::{
        error::ApiError,
        layers::whole_answers::{Budget, whole_answers},
        testing::{Answer, End, Server, read, request, send},
    };

    const OBJECT: &str = "/api/v1/persistentvolumes/pv";
    const WATCH: &str = "/api/v1/persistentvolumes?watch=true";

    /// Sends a GET with a deadline of ten seconds; returns the body or the error, and after how many
    /// seconds it came.
    async fn get(url: &str, answer: Answer) -> (Result<Bytes, BoxError>, u64) {
        let server = Server::new(move |_, _| answer.clone());
        let whole = whole_answers(Budget::default(), server.service);
        let service = deadline(Duration::from_secs(10), whole);
        let start = Instant::now();
        let body = match send(&service, request(Method::GET, url)).await {
            Ok(response) => read(response).await,
            Err(error) => Err(error),
        };
        (body, start.elapsed().as_secs())
    }

    fn is_deadline_exceeded(outcome: &Result<Bytes, BoxError>) -> bool {
        outcome.as_ref().is_err_and(|error| error.is::<DeadlineExceeded>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_fails_at_the_deadline() {
        let (outcome, took) = get(OBJECT, Answer::status(200).after(11)).await;
        assert!(is_deadline_exceeded(&outcome));
        assert_eq!(took, 10);
        let error = ApiError::from_transport(outcome.unwrap_err());
        assert_eq!(error.to_string(), "the API server did not answer within 10s");
    }

    #[tokio::test(start_paused = true)]
    async fn headers_and_body_share_one_deadline() {
        let slow = |body| Answer::status(200).after(6).chunk(body, "late");
        assert_eq!(get(OBJECT, slow(3)).await.0.unwrap(), "late");
        let (outcome, took) = get(OBJECT, slow(5)).await;
        assert!(is_deadline_exceeded(&outcome));
        assert_eq!(took, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_must_begin_in_time_but_may_go_on() {
        let (outcome, took) =
            get(WATCH, Answer::watch().chunk(600, "event").end(End::Closed)).await;
        assert_eq!((outcome.unwrap(), took), (Bytes::from("event"), 600));
        assert!(is_deadline_exceeded(&get(WATCH, Answer::watch().after(11)).await.0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_refusal_of_a_watch_must_end_in_time() {
        let (outcome, took) = get(WATCH, Answer::status(503).chunk(11, "late")).await;
        assert!(is_deadline_exceeded(&outcome));
        assert_eq!(took, 10);
    }
}
