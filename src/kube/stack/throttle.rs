//! Limits the rate of requests with a token bucket.
//!
//! The arithmetic is that of Go's `x/time/rate`: a request reserves the next token at once and waits
//! until that token exists, so that requests are sent in the order in which they came. Watches never
//! wait.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Layer, Outcome, target::Verb};
pub use crate::flags::RateLimit;
use crate::{
    kube::connection::transport::{Request, Service},
    metrics::{ApiMetrics, WaitReason},
};

/// Makes requests wait for their token.
pub(crate) struct Throttle {
    start: Instant,
    bucket: Mutex<Bucket>,
    /// Counts waits.
    metrics: Option<ApiMetrics>,
}

impl Throttle {
    /// A full bucket.
    pub(crate) fn new(limit: RateLimit, metrics: Option<ApiMetrics>) -> Self {
        Self { start: Instant::now(), bucket: Mutex::new(Bucket::new(limit)), metrics }
    }

    /// Takes a token and waits until it exists.
    pub(crate) async fn wait(&self) {
        let now = self.start.elapsed();
        let mut reservation = Reservation {
            throttle: self,
            from: now,
            due: self.bucket.lock().reserve(now),
            used: false,
        };
        let wait = reservation.due.saturating_sub(now);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        reservation.used = true;
    }
}

/// A reserved token; returned to the bucket if dropped before it is used.
struct Reservation<'a> {
    throttle: &'a Throttle,
    /// When the wait began.
    from: Duration,
    due: Duration,
    used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let now = self.throttle.start.elapsed();
        if !self.used {
            self.throttle.bucket.lock().cancel(self.due, now);
        }
        if let Some(metrics) = &self.throttle.metrics {
            metrics.waited(WaitReason::Rate, now.saturating_sub(self.from));
        }
    }
}

impl Layer for Throttle {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if Verb::of(request) != Verb::Watch {
            self.wait().await;
        }
        next.send(request).await
    }
}

/// The longest wait for a token, for rates close to zero.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The bucket's arithmetic; times are relative to any fixed point.
#[derive(Debug)]
struct Bucket {
    limit: RateLimit,
    /// Tokens at `last`; negative when tokens are reserved that do not exist yet.
    tokens: f64,
    last: Duration,
    /// When the token reserved last will exist.
    last_due: Duration,
}

impl Bucket {
    fn new(limit: RateLimit) -> Self {
        // `NaN.max(0.0)` is 0.
        let limit = RateLimit { qps: limit.qps.max(0.0), ..limit };
        Self {
            limit,
            tokens: f64::from(limit.burst),
            last: Duration::ZERO,
            last_due: Duration::ZERO,
        }
    }

    /// Reserves a token at `now`; returns when it will exist.
    fn reserve(&mut self, now: Duration) -> Duration {
        self.advance(now);
        self.tokens -= 1.0;
        self.last_due = if self.tokens >= 0.0 { now } else { now + self.time(-self.tokens) };
        self.last_due
    }

    /// Cancels at `now` the reservation of a token that would have existed at `due`. Later
    /// reservations keep their times, so only what was not reserved again since is returned.
    fn cancel(&mut self, due: Duration, now: Duration) {
        let back = 1.0 - self.last_due.saturating_sub(due).as_secs_f64() * self.limit.qps;
        if due < now || back <= 0.0 {
            return;
        }
        self.advance(now);
        self.tokens = (self.tokens + back).min(f64::from(self.limit.burst));
        let before = due.saturating_sub(self.time(1.0));
        if due == self.last_due && before >= now {
            self.last_due = before;
        }
    }

    fn advance(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.limit.qps).min(f64::from(self.limit.burst));
        self.last = self.last.max(now);
    }

    /// How long it takes to refill `tokens`.
    fn time(&self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens / self.limit.qps)
            .map_or(LONGEST, |time| time.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::kube::{
        stack::layer,
        testing::{Answer, Server, request, send},
    };

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_order_at_the_rate() {
        let server = Server::new(|_, _| Answer::status(200));
        let service =
            layer(Throttle::new(RateLimit { qps: 0.5, burst: 2 }, None), server.transport.clone());
        let urls = (0..5).map(|number| format!("/api/v1/nodes/{number}"));
        join_all(urls.map(|url| send(&service, request(Method::GET, &url)))).await;
        assert_eq!(server.times(), [0, 0, 2, 4, 6]);
        let order: Vec<_> = server.requests().iter().map(|request| request.url.clone()).collect();
        assert!(order.is_sorted());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_reserve_no_token_and_do_not_wait() {
        let server = Server::new(|_, _| Answer::watch());
        let service =
            layer(Throttle::new(RateLimit { qps: 1.0, burst: 1 }, None), server.transport.clone());
        for url in [
            "/api/v1/nodes?watch=true",
            "/api/v1/nodes?watch=true",
            "/api/v1/nodes",
            "/api/v1/nodes",
        ] {
            send(&service, request(Method::GET, url)).await.unwrap();
        }
        assert_eq!(server.times(), [0, 0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_returns_its_token() {
        let throttle = Throttle::new(RateLimit { qps: 1.0, burst: 1 }, None);
        throttle.wait().await;
        for _ in 0..10 {
            assert!(
                tokio::time::timeout(Duration::from_millis(50), throttle.wait()).await.is_err()
            );
        }
        let start = Instant::now();
        throttle.wait().await;
        assert_eq!(start.elapsed().as_millis(), 500);
    }

    #[test]
    fn a_token_that_was_reserved_again_is_not_returned() {
        let mut bucket = Bucket::new(RateLimit { qps: 1.0, burst: 1 });
        let second = Duration::from_secs(1);
        assert_eq!(
            [(); 3].map(|()| bucket.reserve(Duration::ZERO)),
            [Duration::ZERO, second, 2 * second]
        );
        bucket.cancel(second, Duration::ZERO);
        assert_eq!(bucket.reserve(Duration::ZERO), 3 * second);
        bucket.cancel(3 * second, Duration::ZERO);
        assert_eq!(bucket.reserve(Duration::ZERO), 3 * second);
    }

    #[test]
    fn a_rate_of_zero_waits_long_but_does_not_overflow() {
        for qps in [0.0, -1.0, f64::MIN_POSITIVE, f64::NAN] {
            let mut bucket = Bucket::new(RateLimit { qps, burst: 1 });
            assert_eq!(bucket.reserve(Duration::ZERO), Duration::ZERO);
            assert_eq!(bucket.reserve(Duration::ZERO), LONGEST, "{qps}");
        }
    }

    proptest! {
        /// In any interval no more requests are sent than burst and rate allow, and they keep their order.
        #[test]
        fn no_interval_exceeds_the_rate(
            qps in 0.1..100.0_f64,
            burst in 1..20_u32,
            pauses in proptest::collection::vec(0..2_000_u64, 1..60),
        ) {
            let mut bucket = Bucket::new(RateLimit { qps, burst });
            let mut now = Duration::ZERO;
            let mut sent = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                sent.push(bucket.reserve(now));
            }
            prop_assert!(sent.is_sorted());
            for (first, start) in sent.iter().enumerate() {
                for (last, end) in sent.iter().enumerate().skip(first) {
                    #[allow(clippy::cast_precision_loss)]
                    let count = (last - first + 1) as f64;
                    let allowed = f64::from(burst) + end.saturating_sub(*start).as_secs_f64() * qps;
                    prop_assert!(count <= allowed + 1e-3, "{count} > {allowed}");
                }
            }
        }
    }
}
