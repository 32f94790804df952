//! Bounds how many writes are under way at once.
//!
//! Promises that of the writes on a lane at most so many are between their sending and the end of
//! their answer's body (read or dropped); the rest wait in the order they came. Reads never wait.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::BoxError;

use super::{Outcome, Rule};
use crate::kube_api::{
    target::Verb,
    transport::{Request, ResponseBody, Transport},
};

/// Lets so many writes through at once.
pub(crate) struct InFlight(Arc<Semaphore>);

impl InFlight {
    /// At most `writes` at once; zero counts as one.
    pub(crate) fn new(writes: usize) -> Self {
        Self(Arc::new(Semaphore::new(writes.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

impl Rule for InFlight {
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome> {
        if !Verb::of(&request).writes() {
            return next.send(request);
        }
        Box::pin(async move {
            let permit = Arc::clone(&self.0).acquire_owned().await?;
            let response = next.send(request).await?;
            Ok(response.map(|inner| HoldingBody { inner, _permit: permit }.boxed_unsync()))
        })
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
    use futures::future::join_all;
    use http::Method;

    use super::*;
    use crate::kube_api::{
        layers::layer,
        testing::{Answer, End, Server, request},
        transport::read,
    };

    const URL: &str = "/api/v1/persistentvolumes/pv";

    #[tokio::test(start_paused = true)]
    async fn writes_beyond_the_limit_wait_until_a_body_is_read() {
        let server = Server::new(|_, _| Answer::status(200).after(1).chunk(2, "done"));
        let service = layer(InFlight::new(2), server.transport.clone());
        let write = || async {
            let response = service.send(request(Method::PUT, URL)).await.unwrap();
            read(response.into_body(), 1024).await.unwrap();
        };
        join_all((0..5).map(|_| write())).await;
        assert_eq!(server.times(), [0, 0, 3, 3, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_given_up_frees_its_place() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let service = layer(InFlight::new(1), server.transport.clone());
        let unread = service.send(request(Method::PUT, URL)).await.unwrap();
        drop(unread);
        service.send(request(Method::PUT, URL)).await.unwrap();
        assert_eq!(server.seen().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_do_not_wait() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let service = layer(InFlight::new(1), server.transport.clone());
        let _held = service.send(request(Method::PUT, URL)).await.unwrap();
        service.send(request(Method::GET, URL)).await.unwrap();
        assert_eq!(server.times(), [0, 0]);
    }
}
