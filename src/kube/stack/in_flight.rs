//! Limits how many writes are in flight at once.
//!
//! A write is in flight from its sending until the body of its answer is read or dropped. Other writes
//! wait in one FIFO queue per verb, and the queues take turns: however many volumes are created, a
//! deletion does not wait for all of them, and vice versa. Reads never wait. [`WriteLoad`] shows others
//! how many writes there are.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{AcquireError, Mutex, OwnedSemaphorePermit, Semaphore};
use tower::BoxError;

use super::{Layer, Outcome, target::Verb};
use crate::kube::connection::transport::{Request, ResponseBody, Service};

/// Limits the number of concurrent writes.
pub(crate) struct InFlight {
    permits: Arc<Semaphore>,
    /// One FIFO queue per verb; the write at its head holds the lock.
    queues: BTreeMap<Verb, Mutex<()>>,
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
        let queues = Verb::WRITES.map(|verb| (verb, Mutex::new(())));
        Self { permits: Arc::new(permits), queues: queues.into(), load: WriteLoad::default() }
    }

    /// The writes that this layer lets pass or holds back.
    pub(crate) fn load(&self) -> WriteLoad {
        self.load.clone()
    }

    /// Waits for a permit. Only the heads of the queues compete for permits, and the semaphore is
    /// fair, so the queues take turns.
    async fn acquire(&self, verb: Verb) -> Result<OwnedSemaphorePermit, AcquireError> {
        let _head = match self.queues.get(&verb) {
            Some(queue) => Some(queue.lock().await),
            None => None,
        };
        Arc::clone(&self.permits).acquire_owned().await
    }
}

impl Layer for InFlight {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        let verb = Verb::of(request);
        if !verb.writes() {
            return next.send(request).await;
        }
        let counted = self.load.begin();
        let permit = self.acquire(verb).await?;
        let response = next.send(request).await?;
        let held = (counted, permit);
        Ok(response.map(|inner| PermitBody { inner, _held: held }.boxed_unsync()))
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
    use crate::kube::{
        connection::transport::read,
        stack::layer,
        testing::{Answer, End, Server, request, send},
    };

    const URL: &str = "/api/v1/persistentvolumes/pv";

    #[tokio::test(start_paused = true)]
    async fn writes_beyond_the_limit_wait_until_a_body_is_read() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(2, "done"));
        let service = layer(InFlight::new(2), server.transport.clone());
        let write = || async {
            let response = send(&service, request(Method::PUT, URL)).await.unwrap();
            read(response.into_body(), 1024).await.unwrap();
        };
        join_all((0..5).map(|_| write())).await;
        assert_eq!(server.times(), [0, 0, 3, 3, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_load_counts_writes_in_flight_and_waiting() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let in_flight = InFlight::new(1);
        let load = in_flight.load();
        let service = layer(in_flight, server.transport.clone());
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
    async fn verbs_take_turns_and_writes_of_one_verb_keep_their_order() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(1, "done"));
        let service = layer(InFlight::new(1), server.transport.clone());
        let write = |method| async {
            let response = send(&service, request(method, URL)).await.unwrap();
            read(response.into_body(), 1024).await.unwrap();
        };
        let many = [Method::POST, Method::POST, Method::POST, Method::POST];
        let few = [Method::DELETE, Method::PATCH, Method::DELETE];
        join_all(many.into_iter().chain(few).map(write)).await;
        let sent: Vec<_> = server.requests().iter().map(|request| request.method.clone()).collect();
        assert_eq!(sent, ["POST", "POST", "DELETE", "PATCH", "POST", "DELETE", "POST"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_write_frees_its_permit() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let service = layer(InFlight::new(1), server.transport.clone());
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
        let service = layer(InFlight::new(1), server.transport.clone());
        let _held = send(&service, request(Method::PUT, URL)).await.unwrap();
        send(&service, request(Method::GET, URL)).await.unwrap();
        assert_eq!(server.times(), [0, 0]);
    }
}
