//! Limits how many writes are in flight at once.
//!
//! A write is in flight from its sending until the body of its answer is read or dropped. Other writes
//! wait in the order in which they came. Reads never wait. [`WriteLoad`] shows others how many writes
//! there are.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Layer, Service};

use super::{Answering, Next, Request, Response, ResponseBody, target::Verb};

/// Limits the number of concurrent writes.
#[derive(Debug, Clone)]
pub(crate) struct InFlightLayer {
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

impl InFlightLayer {
    /// At most `writes` at once; zero counts as one.
    pub(crate) fn new(writes: usize) -> Self {
        let permits = Semaphore::new(writes.clamp(1, Semaphore::MAX_PERMITS));
        Self { permits: Arc::new(permits), load: WriteLoad::default() }
    }

    /// The writes that this layer lets pass or holds back.
    pub(crate) fn load(&self) -> WriteLoad {
        self.load.clone()
    }
}

impl<S> Layer<S> for InFlightLayer {
    type Service = InFlight<S>;

    fn layer(&self, next: S) -> InFlight<S> {
        InFlight { layer: self.clone(), next }
    }
}

/// The service of [`InFlightLayer`].
#[derive(Debug, Clone)]
pub(crate) struct InFlight<S> {
    layer: InFlightLayer,
    next: S,
}

impl<S: Next> Service<Request> for InFlight<S> {
    type Response = Response;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        if !Verb::of(&request).writes() {
            return self.next.send(request).boxed();
        }
        let Self { layer: InFlightLayer { permits, load }, next } = self.clone();
        async move {
            let counted = load.begin();
            let permit = permits.acquire_owned().await?;
            let response = next.send(request).await?;
            let held = (counted, permit);
            Ok(response.map(|inner| PermitBody { inner, _held: held }.boxed_unsync()))
        }
        .boxed()
    }
}

/// A body that keeps its request counted, and its permit, until it is dropped.
struct PermitBody {
    inner: ResponseBody,
    _held: (CountedWrite, OwnedSemaphorePermit),
}

impl http_body::Body for PermitBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.inner).poll_frame(context)
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
    use futures::{FutureExt as _, future::join_all};
    use http::Method;

    use super::*;
    use crate::kube::testing::{Answer, End, Server, read, request, send};

    const URL: &str = "/api/v1/persistentvolumes/pv";

    #[tokio::test(start_paused = true)]
    async fn writes_beyond_the_limit_wait_until_a_body_is_read() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(2, "done"));
        let service = InFlightLayer::new(2).layer(server.service.clone());
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
        let in_flight = InFlightLayer::new(1);
        let load = in_flight.load();
        let service = in_flight.layer(server.service.clone());
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
        let service = InFlightLayer::new(1).layer(server.service.clone());
        let unread = send(&service, request(Method::PUT, URL)).await.unwrap();
        let mut waiting = send(&service, request(Method::PUT, URL)).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(unread);
        send(&service, request(Method::PUT, URL)).await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_do_not_wait() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let service = InFlightLayer::new(1).layer(server.service.clone());
        let _held = send(&service, request(Method::PUT, URL)).await.unwrap();
        send(&service, request(Method::GET, URL)).await.unwrap();
        assert_eq!(server.times(), [0, 0]);
    }
}
