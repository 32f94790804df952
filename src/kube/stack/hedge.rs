//! Sends a request again over a new connection when no answer comes.
//!
//! A request on a dead connection is answered over another one, without waiting for the first to
//! time out. Earlier attempts are not cancelled and the first answer counts, so a server that is only
//! slow can still answer. Only for requests that may be carried out twice: a write of a Lease names
//! the version that it is based on, so a second one conflicts. Watches are sent once.

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::sleep;

use super::{Layer, Outcome, target::Verb};
use crate::kube::connection::transport::{NewConnection, Request, Service};

/// The most attempts for one request. Of several servers behind one address some may be dead.
const MAX_ATTEMPTS: usize = 4;

/// Sends another attempt each time this duration passes without an answer.
pub(crate) struct Hedge(pub(crate) Duration);

impl Layer for Hedge {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if Verb::of(request) == Verb::Watch {
            return next.send(request).await;
        }
        let mut retry = request.clone();
        retry.extensions_mut().insert(NewConnection);
        let mut attempts = 1;
        let mut pending = FuturesUnordered::from_iter([send(request.clone(), next)]);
        loop {
            tokio::select! {
                biased;
                Some(outcome) = pending.next() => {
                    if outcome.is_ok() || pending.is_empty() {
                        return outcome;
                    }
                }
                () = sleep(self.0), if attempts < MAX_ATTEMPTS => {
                    attempts += 1;
                    pending.push(send(retry.clone(), next));
                }
            }
        }
    }
}

async fn send(mut request: Request, next: &impl Service) -> Outcome {
    next.send(&mut request).await
}

#[cfg(test)]
mod tests {
    use http::Method;
    use tokio::time::Instant;

    use super::*;
    use crate::kube::{
        stack::layer,
        testing::{Answer, Server, request, send},
    };

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";

    /// Sends a GET; returns the answer's status, after how many seconds it came, and when attempts
    /// were sent.
    async fn get(
        url: &str,
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> (Option<u16>, u64, Vec<u64>) {
        let server = Server::new(move |number, _| answer(number));
        let service = layer(Hedge(Duration::from_secs(2)), server.transport.clone());
        let start = Instant::now();
        let outcome = send(&service, request(Method::GET, url)).await;
        let status = outcome.ok().map(|answer| answer.status().as_u16());
        (status, start.elapsed().as_secs(), server.times())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_answered_in_time_is_sent_once() {
        let outcome = get(LEASE, |_| Answer::status(200).after(1)).await;
        assert_eq!(outcome, (Some(200), 1, vec![0]));
        let refused = get(LEASE, |_| Answer::status(409)).await;
        assert_eq!(refused, (Some(409), 0, vec![0]));
        let broken = get(LEASE, |_| Answer::none()).await;
        assert_eq!(broken, (None, 0, vec![0]), "the caller retries errors");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_sent_again_and_the_first_answer_counts() {
        let late = |number| Answer::status(200 + u16::try_from(number).unwrap());
        let outcome = get(LEASE, move |number| late(number).after([100, 100, 1][number])).await;
        assert_eq!(outcome, (Some(202), 5, vec![0, 2, 4]));
        let slow = get(LEASE, move |number| late(number).after([3, 100][number])).await;
        assert_eq!(slow, (Some(200), 3, vec![0, 2]), "the first attempt still counts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_does_not_end_the_others_and_there_are_at_most_four() {
        let broken = |number| match number {
            1 => Answer::none(),
            _ => Answer::status(200).after(30),
        };
        assert_eq!(get(LEASE, broken).await, (Some(200), 30, vec![0, 2, 4, 6]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_sent_once() {
        let url = format!("{LEASE}?watch=true");
        assert_eq!(get(&url, |_| Answer::watch().after(9)).await, (Some(200), 9, vec![0]));
    }
}
