//! Opens no more than one watch a second: a server, or a proxy before it, may end every watch at once, and
//! kube-rs opens the next one without a pause.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

use super::{Answering, Next, Request, Response, target::Verb};

/// The least time from the beginning of one watch to that of the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Makes watches wait for one another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaceLayer;

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, next: S) -> Pace<S> {
        Pace { next_watch: Arc::new(Mutex::new(Instant::now())), next }
    }
}

/// The service of [`PaceLayer`].
#[derive(Debug, Clone)]
pub(crate) struct Pace<S> {
    /// Before this no watch is opened.
    next_watch: Arc<Mutex<Instant>>,
    next: S,
}

impl<S: Next> Service<Request> for Pace<S> {
    type Response = Response;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        if Verb::of(&request) != Verb::Watch {
            return self.next.send(request).boxed();
        }
        let mut next_watch = self.next_watch.lock();
        let from = Instant::now().max(*next_watch);
        *next_watch = from + INTERVAL;
        drop(next_watch);
        let watch = self.next.send(request);
        async move {
            sleep_until(from).await;
            watch.await
        }
        .boxed()
    }
}
