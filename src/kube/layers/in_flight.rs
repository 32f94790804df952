//! Limits how many writes are in flight at once.
//!
//! A write is in flight from its sending until the body of its answer is read or dropped. Other writes
//! wait in the order in which they came. Reads never wait. [`WriteLoad`] shows others how many writes
//! there are.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::kube::target::Verb;

/// The writes that are in flight, and how many there may be. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    permits: Arc<Semaphore>,
    load: WriteLoad,
}

/// The number of writes that are in flight or wait for a permit. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct WriteLoad(Arc<AtomicUsize>);

impl WriteLoad {
    /// The present number of writes.
    pub fn writes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more write until the result is dropped.
    pub(crate) fn begin(&self) -> CountedWrite {
        self.0.fetch_add(1, Ordering::Relaxed);
        CountedWrite(self.clone())
    }
}

/// A write that counts in its [`WriteLoad`].
pub(crate) struct CountedWrite(WriteLoad);

impl Drop for CountedWrite {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlight {
    /// At most `writes` at once; zero counts as one.
    pub(crate) fn new(writes: usize) -> Self {
        let permits = Semaphore::new(writes.clamp(1, Semaphore::MAX_PERMITS));
        Self { permits: Arc::new(permits), load: WriteLoad::default() }
    }

    /// How many there are, with those that wait.
    pub(crate) fn load(&self) -> WriteLoad {
        self.load.clone()
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
    let counted = in_flight.load.begin();
    let permit = in_flight.permits.acquire_owned().await?;
    let response = next.send(request).await?;
    let held = (counted, permit);
    // The body keeps them until it is dropped.
    let held_by = move |error| {
        let _held = &held;
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
    async fn the_load_counts_writes_in_flight_and_waiting() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let in_flight = InFlight::new(1);
        let load = in_flight.load();
        let service = limited(in_flight, server.service.clone());
        let unread = send(&service, request(Method::PUT, URL)).await.unwrap();
        let mut waiting = send(&service, request(Method::PUT, URL)).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        let _read = send(&service, request(Method::GET, URL)).await.unwrap();
        assert_eq!(load.writes(), 2, "the read does not count");
        drop(waiting);
        assert_eq!(load.writes(), 1);
        drop(unread);
        assert_eq!(load.writes(), 0);
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
