//! Bounds how long an answer may take.
//!
//! Promises that a request which is no watch is answered, body and all, within the deadline
//! counted from its sending, or fails with [`DeadlineExceeded`]. A watch must have begun by then;
//! its body goes on for as long as it likes and is guarded by its reader.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, ServiceExt as _};

use super::{Outcome, Rule};
use crate::kube_api::{
    error::DeadlineExceeded,
    target::{Target, Verb},
    transport::{Request, ResponseBody, Transport},
};

/// Fails what takes longer than this.
pub(crate) struct Deadline(pub(crate) Duration);

impl Rule for Deadline {
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome> {
        let limit = self.0;
        let watches = Target::of(&request).verb == Verb::Watch;
        Box::pin(async move {
            let end = Instant::now() + limit;
            let response = timeout_at(end, next.oneshot(request))
                .await
                .map_err(|_elapsed| DeadlineExceeded(limit))??;
            if watches {
                return Ok(response);
            }
            Ok(response.map(|inner| {
                TimedBody { inner, limit, end: Box::pin(sleep_until(end)) }.boxed_unsync()
            }))
        })
    }
}

/// A body that must have been read by a point in time.
struct TimedBody {
    inner: ResponseBody,
    limit: Duration,
    end: Pin<Box<Sleep>>,
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            return Poll::Ready(frame);
        }
        let limit = self.limit;
        self.end.as_mut().poll(context).map(|()| Some(Err(DeadlineExceeded(limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
