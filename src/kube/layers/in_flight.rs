//! Limits how many writes are in flight at once.
//!
//! A write is in flight from its sending until the body of its answer is read or dropped. Other writes
//! wait in the order in which they came. Reads never wait. [`InFlight::is_empty`] tells others whether there
//! is any.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::kube::target::Verb;

/// The writes that are in flight, and how many there may be. Clones share them.
#[derive(Debug, Clone)]
pub struct InFlight {
    permits: Arc<Semaphore>,
    max: usize,
}

impl InFlight {
    /// At most `writes` at once; zero counts as one.
    pub(crate) fn new(writes: usize) -> Self {
        let max = writes.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(max)), max }
    }

    /// Any number at once.
    pub(crate) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Whether there is no write.
    pub(crate) fn is_empty(&self) -> bool {
        self.permits.available_permits() == self.max
    }
}

/// Holds writes back while there are as many in flight as there may be.
pub(crate) fn limited(in_flight: InFlight, next: impl Next) -> impl Next {
    service_fn(move |request| send(in_flight.clone(), next.clone(), request))
}

async fn send(in_flight: InFlight, next: impl Next, request: Request) -> Outcome {
    if !Verb::of(&request).writes() {
        return next.send(request).await;
    }
    let permit = in_flight.permits.acquire_owned().await?;
    let response = next.send(request).await?;
    // The body keeps it until it is dropped.
    let held_by = move |error| {
        let _permit = &permit;
        error
    };
    Ok(response.map(|body| body.map_err(held_by).boxed_unsync()))
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::join_all};
    use http::Method;

    use super::*;
    use crate::kube::testing::{Answer, End, Server, read, request, send};

    const URL: &str = "/api/v1/persistentvolumes/pv";

    #[tokio::test(start_paused = true)]
    async fn writes_beyond_the_limit_wait_until_a_body_is_read() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(2, "done"));
        let service = limited(InFlight::new(2), server.service.clone());
        let write = || async {
            let response = send(&service, request(Method::PUT, URL)).await.unwrap();
            read(response).await.unwrap();
        };
        join_all((0..5).map(|_| write())).await;
        assert_eq!(server.times(), [0, 0, 3, 3, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_in_flight_until_their_answers_are_read_or_dropped() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let in_flight = InFlight::new(2);
        let service = limited(in_flight.clone(), server.service.clone());
        let _read = send(&service, request(Method::GET, URL)).await.unwrap();
        assert!(in_flight.is_empty());
        let unread = send(&service, request(Method::PUT, URL)).await.unwrap();
        assert!(!in_flight.is_empty());
        drop(unread);
        assert!(in_flight.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_write_frees_its_permit() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let service = limited(InFlight::new(1), server.service.clone());
        let unread = send(&service, request(Method::PUT, URL)).await.unwrap();
        let mut waiting = send(&service, request(Method::PUT, URL)).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(unread);
        send(&service, request(Method::PUT, URL)).await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }
}
