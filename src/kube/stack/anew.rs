//! Asks once more, over a new connection, where an answer does not come.
//!
//! Promises that a request which went out on a connection whose other end is dead is answered over
//! another one, without waiting for the dead one to be noticed; the first answer counts. What is asked
//! is not withdrawn, so a server that is only slow is heard too. For requests only that may be carried
//! out twice: a Lease's writes name the version that they are based on, and the second one conflicts.
//! A watch is not asked for again. Leaves the making of connections to [`transport`](mod@crate::kube::connection::transport).

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::sleep;

use super::{Layer, Outcome, target::Verb};
use crate::kube::connection::transport::{OverNew, Request, Service};

/// How often a request is sent at most. Of several servers behind one address some may be dead.
const SENDINGS: usize = 4;

/// Asks again after each such time without an answer.
pub(crate) struct Anew(pub(crate) Duration);

impl Layer for Anew {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if Verb::of(request) == Verb::Watch {
            return next.send(request).await;
        }
        let mut again = request.clone();
        again.extensions_mut().insert(OverNew);
        let mut sent = 1;
        let mut asked = FuturesUnordered::from_iter([send(request.clone(), next)]);
        loop {
            tokio::select! {
                biased;
                Some(outcome) = asked.next() => {
                    if outcome.is_ok() || asked.is_empty() {
                        return outcome;
                    }
                }
                () = sleep(self.0), if sent < SENDINGS => {
                    sent += 1;
                    asked.push(send(again.clone(), next));
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

    /// The status of what came of it after how many seconds, and when it was sent.
    async fn ask(
        url: &str,
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> (Option<u16>, u64, Vec<u64>) {
        let server = Server::new(move |number, _| answer(number));
        let service = layer(Anew(Duration::from_secs(2)), server.transport.clone());
        let start = Instant::now();
        let outcome = send(&service, request(Method::GET, url)).await;
        let status = outcome.ok().map(|answer| answer.status().as_u16());
        (status, start.elapsed().as_secs(), server.times())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_answered_in_time_is_asked_once() {
        let outcome = ask(LEASE, |_| Answer::status(200).after(1)).await;
        assert_eq!(outcome, (Some(200), 1, vec![0]));
        let refused = ask(LEASE, |_| Answer::status(409)).await;
        assert_eq!(refused, (Some(409), 0, vec![0]));
        let broken = ask(LEASE, |_| Answer::none()).await;
        assert_eq!(broken, (None, 0, vec![0]), "whoever asked tries again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_answered_is_asked_again_and_the_first_answer_counts() {
        let late = |number| Answer::status(200 + u16::try_from(number).unwrap());
        let outcome = ask(LEASE, move |number| late(number).after([100, 100, 1][number])).await;
        assert_eq!(outcome, (Some(202), 5, vec![0, 2, 4]));
        let slow = ask(LEASE, move |number| late(number).after([3, 100][number])).await;
        assert_eq!(slow, (Some(200), 3, vec![0, 2]), "the first is still heard");
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_breaks_leaves_the_others_their_time_and_there_are_four() {
        let broken = |number| match number {
            1 => Answer::none(),
            _ => Answer::status(200).after(30),
        };
        assert_eq!(ask(LEASE, broken).await, (Some(200), 30, vec![0, 2, 4, 6]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_asked_for_once() {
        let url = format!("{LEASE}?watch=true");
        assert_eq!(ask(&url, |_| Answer::watch().after(9)).await, (Some(200), 9, vec![0]));
    }
}
