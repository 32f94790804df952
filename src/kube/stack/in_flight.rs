//! Bounds how many writes are under way at once.
//!
//! Promises that of the writes on a lane at most so many are between their sending and the end of
//! their answer's body (read or dropped); the rest wait in a line for each verb, in the order they
//! came, and lines have their turns: however many volumes are created, a deletion does not wait for
//! them all, nor the other way round. Reads never wait.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{AcquireError, Mutex, OwnedSemaphorePermit, Semaphore};
use tower::BoxError;

use super::{Layer, Outcome, target::Verb};
use crate::kube::connection::transport::{Request, ResponseBody, Service};

/// Lets so many writes through at once.
pub(crate) struct InFlight {
    /// First come, first served.
    places: Arc<Semaphore>,
    /// Whoever is first in the line of its verb holds its lock.
    lines: BTreeMap<Verb, Mutex<()>>,
}

impl InFlight {
    /// At most `writes` at once; zero counts as one.
    pub(crate) fn new(writes: usize) -> Self {
        let places = Semaphore::new(writes.clamp(1, Semaphore::MAX_PERMITS));
        let lines = Verb::WRITES.map(|verb| (verb, Mutex::new(())));
        Self { places: Arc::new(places), lines: lines.into() }
    }

    /// A place for the next of a line. As only the first of each line stand for it, the lines are
    /// served in turn.
    async fn place(&self, verb: Verb) -> Result<OwnedSemaphorePermit, AcquireError> {
        let _first = match self.lines.get(&verb) {
            Some(line) => Some(line.lock().await),
            None => None,
        };
        Arc::clone(&self.places).acquire_owned().await
    }
}

impl Layer for InFlight {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        let verb = Verb::of(request);
        if !verb.writes() {
            return next.send(request).await;
        }
        let permit = self.place(verb).await?;
        let response = next.send(request).await?;
        Ok(response.map(|inner| HoldingBody { inner, _permit: permit }.boxed_unsync()))
    }
}

/// A body that keeps its request's place until it is dropped.
struct HoldingBody {
    inner: ResponseBody,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for HoldingBody {
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

    /// Each line has its turn, and a verb's writes keep their order.
    #[tokio::test(start_paused = true)]
    async fn a_line_of_one_verb_does_not_hold_up_another() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(1, "done"));
        let service = layer(InFlight::new(1), server.transport.clone());
        let write = |method| async {
            let response = send(&service, request(method, URL)).await.unwrap();
            read(response.into_body(), 1024).await.unwrap();
        };
        let many = [Method::POST, Method::POST, Method::POST, Method::POST];
        let few = [Method::DELETE, Method::PATCH, Method::DELETE];
        join_all(many.into_iter().chain(few).map(write)).await;
        let sent: Vec<_> = server.seen().iter().map(|seen| seen.method.clone()).collect();
        assert_eq!(sent, ["POST", "POST", "DELETE", "PATCH", "POST", "DELETE", "POST"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_given_up_frees_its_place() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let service = layer(InFlight::new(1), server.transport.clone());
        let unread = send(&service, request(Method::PUT, URL)).await.unwrap();
        let mut waiting = send(&service, request(Method::PUT, URL)).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(unread);
        send(&service, request(Method::PUT, URL)).await.unwrap();
        assert_eq!(server.seen().len(), 2);
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
