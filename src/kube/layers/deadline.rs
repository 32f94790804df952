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

    #[tokio::test(start_paused = true)]
    async fn an_answer_must_end_in_time_and_a_watch_begin() {
        let slow = |head, body| Answer::status(200).after(head).chunk(body, "late");
        let watch = Answer::watch().chunk(600, "late").end(End::Closed);
        for (case, url, answer, is_in_time, seconds) in [
            ("no answer", OBJECT, slow(11, 0), false, 10),
            ("head and body in time", OBJECT, slow(6, 3), true, 9),
            ("head and body share the deadline", OBJECT, slow(6, 5), false, 10),
            ("a watch goes on", WATCH, watch, true, 600),
            ("a watch does not begin", WATCH, Answer::watch().after(11), false, 10),
            ("a watch is refused slowly", WATCH, Answer::status(503).chunk(11, "late"), false, 10),
        ] {
            let (outcome, took) = get(url, answer).await;
            assert_eq!((outcome.is_ok(), took), (is_in_time, seconds), "{case}");
            if let Err(error) = outcome {
                let text = ApiError::from_transport(error).to_string();
                assert_eq!(text, "the API server did not answer within 10s", "{case}");
            }
        }
    }
}
