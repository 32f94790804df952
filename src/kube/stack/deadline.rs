//! Bounds how long an answer may take.
//!
//! Promises that a request which is no watch is answered, body and all, within the deadline
//! counted from its sending, or fails with [`DeadlineExceeded`]. A watch must have begun by then;
//! its body goes on for as long as it likes and is guarded by its reader.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::BoxError;

use super::{Layer, Outcome, target::Verb};
use crate::kube::{
    connection::transport::{Request, ResponseBody, Service},
    error::DeadlineExceeded,
};

/// Fails what takes longer than this.
pub(crate) struct Deadline(pub(crate) Duration);

impl Layer for Deadline {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        let limit = self.0;
        let watches = Verb::of(request) == Verb::Watch;
        let mut end = pin!(sleep(limit));
        let response = tokio::select! {
            biased;
            response = next.send(request) => response?,
            () = &mut end => return Err(DeadlineExceeded(limit).into()),
        };
        if watches {
            return Ok(response);
        }
        let end = end.deadline();
        Ok(response.map(|inner| TimedBody { inner, limit, end, wait: None }.boxed_unsync()))
    }
}

/// A body that must have been read by a point in time.
struct TimedBody {
    inner: ResponseBody,
    limit: Duration,
    end: Instant,
    /// The wait for the end, once there is one: most bodies come with their answer.
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
        connection::transport::{Unread, read},
        error::ApiError,
        stack::layer,
        testing::{Answer, End, Server, request, send},
    };

    const OBJECT: &str = "/api/v1/persistentvolumes/pv";
    const WATCH: &str = "/api/v1/persistentvolumes?watch=true";

    /// What came of a request with a deadline of ten seconds, and after how many seconds.
    async fn ask(url: &str, answer: Answer) -> (Result<Bytes, BoxError>, u64) {
        let server = Server::new(move |_, _| answer.clone());
        let service = layer(Deadline(Duration::from_secs(10)), server.transport);
        let start = Instant::now();
        let body = match send(&service, request(Method::GET, url)).await {
            Ok(response) => read(response.into_body(), 1024).await.map_err(|unread| match unread {
                Unread::Broken(error) => error,
                Unread::TooLong => "too long".into(),
            }),
            Err(error) => Err(error),
        };
        (body, start.elapsed().as_secs())
    }

    fn is_late(outcome: &Result<Bytes, BoxError>) -> bool {
        outcome.as_ref().is_err_and(|error| error.is::<DeadlineExceeded>())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_given_up() {
        let (outcome, took) = ask(OBJECT, Answer::status(200).after(11)).await;
        assert!(is_late(&outcome));
        assert_eq!(took, 10);
        let error = ApiError::from_transport(outcome.unwrap_err());
        assert_eq!(error.to_string(), "the API server did not answer within 10s");
    }

    #[tokio::test(start_paused = true)]
    async fn headers_and_body_share_one_deadline() {
        let slow = |body| Answer::status(200).after(6).chunk(body, "late");
        assert_eq!(ask(OBJECT, slow(3)).await.0.unwrap(), "late");
        let (outcome, took) = ask(OBJECT, slow(5)).await;
        assert!(is_late(&outcome));
        assert_eq!(took, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_must_begin_in_time_but_may_go_on() {
        let (outcome, took) =
            ask(WATCH, Answer::watch().chunk(600, "event").end(End::Closed)).await;
        assert_eq!((outcome.unwrap(), took), (Bytes::from("event"), 600));
        assert!(is_late(&ask(WATCH, Answer::watch().after(11)).await.0));
    }
}
