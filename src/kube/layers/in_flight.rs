//! Limits how many writes are in flight at once.
//!
//! A write is in flight from its sending until its answer is read or it is dropped. Other writes wait in the
//! order in which they came. Reads never wait. [`InFlight::is_empty`] tells others whether there is any.

use std::sync::Arc;

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
    let _permit = in_flight.permits.acquire().await?;
    next.send(request).await
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::join_all};
    use http::Method;

    use super::*;
    use crate::kube::{
        layers::whole_answers::{Budget, whole_answers},
        testing::{Answer, End, Server, request, send},
    };

    const URL: &str = "/api/v1/persistentvolumes/pv";

    /// The layer above one that reads answers whole.
    fn service(in_flight: &InFlight, server: &Server) -> impl Next {
        limited(in_flight.clone(), whole_answers(Budget::default(), server.service.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn writes_beyond_the_limit_wait_until_a_body_is_read() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(2, "done"));
        let service = service(&InFlight::new(2), &server);
        join_all((0..5).map(|_| send(&service, request(Method::PUT, URL)))).await;
        assert_eq!(server.times(), [0, 0, 3, 3, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_in_flight_until_their_answers_are_read_or_dropped() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let in_flight = InFlight::new(2);
        let service = service(&in_flight, &server);
        let mut read = send(&service, request(Method::GET, URL)).boxed();
        assert!((&mut read).now_or_never().is_none() && in_flight.is_empty());
        let mut unread = send(&service, request(Method::PUT, URL)).boxed();
        let headers_come = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(headers_come, &mut unread).await.is_err());
        assert!(!in_flight.is_empty());
        drop(unread);
        assert!(in_flight.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_write_frees_its_permit() {
        let server = Server::new(|number, _| match number {
            0 => Answer::status(200).end(End::Open),
            _ => Answer::status(200),
        });
        let service = service(&InFlight::new(1), &server);
        let write = || send(&service, request(Method::PUT, URL)).boxed();
        let (mut unread, mut waiting) = (write(), write());
        let shortly = std::time::Duration::from_secs(1);
        let both = join_all([&mut unread, &mut waiting]);
        assert!(tokio::time::timeout(shortly, both).await.is_err());
        assert_eq!(server.requests().len(), 1);
        drop(waiting);
        drop(unread);
        write().await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }
}
