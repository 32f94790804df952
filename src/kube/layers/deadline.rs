//! Limits how long an answer may take.
//!
//! A request other than a watch is answered, including its body, within the deadline counted from its
//! sending, or fails with [`DeadlineExceeded`]. So is a watch that is refused. For a watch that begins,
//! the deadline covers only the headers; the reader of its body has its own time-outs.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::{BoxError, service_fn};

use super::{Next, Outcome, Request, ResponseBody};
use crate::kube::{error::DeadlineExceeded, target::Verb};

/// Fails requests that take longer than `limit`.
pub(crate) fn deadline(limit: Duration, next: impl Next) -> impl Next {
    service_fn(move |request| answer_within(limit, next.clone(), request))
}

/// Sends the request; the answer is complete within `limit`, or fails.
async fn answer_within(limit: Duration, next: impl Next, request: Request) -> Outcome {
    let is_watch = Verb::of(&request) == Verb::Watch;
    let mut end = pin!(sleep(limit));
    let response = tokio::select! {
        biased;
        response = next.send(request) => response?,
        () = &mut end => return Err(DeadlineExceeded(limit).into()),
    };
    if is_watch && response.status().is_success() {
        return Ok(response);
    }
    let end = end.deadline();
    Ok(response.map(|inner| TimedBody { inner, limit, end, wait: None }.boxed_unsync()))
}

/// A body that fails unless it is read to its end by `end`.
struct TimedBody {
    inner: ResponseBody,
    limit: Duration,
    end: Instant,
    /// The timer; created only when the body is first pending, since most bodies arrive with their headers.
    wait: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let (limit, end) = (self.limit, self.end);
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep_until(end)));
        wait.as_mut().poll(context).map(|()| Some(Err(DeadlineExceeded(limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kube::{
        error::ApiError,
        testing::{Answer, End, Server, read, request, send},
    };

    const OBJECT: &str = "/api/v1/persistentvolumes/pv";
    const WATCH: &str = "/api/v1/persistentvolumes?watch=true";

    /// Sends a GET with a deadline of ten seconds; returns the body or the error, and after how many
    /// seconds it came.
    async fn get(url: &str, answer: Answer) -> (Result<Bytes, BoxError>, u64) {
        let server = Server::new(move |_, _| answer.clone());
        let service = deadline(Duration::from_secs(10), server.service);
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
