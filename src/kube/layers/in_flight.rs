//! Limits how many writes are in flight at once.
//!
//! A write is in flight from its sending until its answer is read or it is dropped. Other writes wait in the
//! order in which they came. Reads never wait. [`InFlight::is_quiet`] tells others whether there are any.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};
use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::kube::target::Verb;

/// The writes that are in flight, and how many there may be. Clones share them.
#[derive(Debug, Clone)]
pub struct InFlight {
    permits: Arc<Semaphore>,
    max: usize,
    /// When the last answer was read.
    answered: Arc<Mutex<Option<Instant>>>,
}

impl InFlight {
    /// At most `writes` at once; zero counts as one.
    pub(crate) fn new(writes: usize) -> Self {
        let max = writes.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(max)), max, answered: Arc::default() }
    }

    /// Any number at once.
    pub(crate) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Whether there is no write, and none was answered in the last `period`.
    pub(crate) fn is_quiet(&self, period: Duration) -> bool {
        let is_empty = self.permits.available_permits() == self.max;
        is_empty && self.answered.lock().is_none_or(|last| last.elapsed() >= period)
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
    let outcome = next.send(request).await;
    *in_flight.answered.lock() = Some(Instant::now());
    outcome
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
        let in_flight = InFlight::new(2);
        let service = service(&in_flight, &server);
        join_all((0..5).map(|_| send(&service, request(Method::PUT, URL)))).await;
        assert_eq!(server.times(), [0, 0, 3, 3, 6]);
        let (now, later) = (Duration::ZERO, Duration::from_millis(100));
        assert!(in_flight.is_quiet(now) && !in_flight.is_quiet(later), "one was just answered");
        tokio::time::sleep(later).await;
        assert!(in_flight.is_quiet(later));
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
        let shortly = Duration::from_secs(1);
        let both = join_all([&mut unread, &mut waiting]);
        assert!(tokio::time::timeout(shortly, both).await.is_err());
        assert_eq!(server.requests().len(), 1);
        drop(waiting);
        drop(unread);
        write().await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }
}
