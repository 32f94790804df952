//! Limits requests to a rate.
//!
//! Owns the token bucket with the arithmetic of Go's `x/time/rate`: whoever comes takes a token
//! at once, also one that does not exist yet, and waits until it does, so that requests leave in
//! the order they came. Promises that watches never wait. Leaves whether there is a rate at all to
//! the lane's settings.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{Outcome, Rule};
use crate::kube_api::{
    target::{Target, Verb},
    transport::{Request, Transport},
};

/// A rate with a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Requests a second in the long run.
    pub qps: f64,
    /// Requests that may go at once after a pause.
    pub burst: u32,
}

/// Makes requests wait for their token.
pub(crate) struct Throttle {
    start: Instant,
    bucket: Mutex<Bucket>,
}

impl Throttle {
    /// A full bucket.
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self { start: Instant::now(), bucket: Mutex::new(Bucket::new(limit)) }
    }

    async fn wait(&self) {
        let wait = self.bucket.lock().take(self.start.elapsed());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

impl Rule for Throttle {
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            if Target::of(&request).verb != Verb::Watch {
                self.wait().await;
            }
            next.oneshot(request).await
        })
    }
}

/// The longest a token can be away, for rates next to nothing.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The bucket's arithmetic; times are counted from any fixed point.
#[derive(Debug)]
struct Bucket {
    limit: RateLimit,
    tokens: f64,
    last: Duration,
}

impl Bucket {
    fn new(limit: RateLimit) -> Self {
        Self { limit, tokens: f64::from(limit.burst), last: Duration::ZERO }
    }

    /// Takes a token at `now` and says how long to wait for it.
    fn take(&mut self, now: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        let full = f64::from(self.limit.burst);
        self.tokens = (self.tokens + elapsed * self.limit.qps).min(full) - 1.0;
        self.last = self.last.max(now);
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.limit.qps)
            .map_or(LONGEST, |wait| wait.min(LONGEST))
    }
}
