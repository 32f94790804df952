//! Limits requests to a rate.
//!
//! Owns the token bucket with the arithmetic of Go's `x/time/rate`: whoever comes takes a token
//! at once, also one that does not exist yet, and waits until it does, so that requests leave in
//! the order they came. Promises that watches never wait. Leaves whether there is a rate at all to
//! the lane's settings.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Layer, Outcome, target::Verb};
use crate::{
    kube::connection::transport::{Request, Service},
    metrics::{ApiMetrics, WaitReason},
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
    /// Where waits are told.
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
            due: self.bucket.lock().take(now),
            used: false,
        };
        let wait = reservation.due.saturating_sub(now);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        reservation.used = true;
    }
}

/// A token on its way; given back when nobody waits for it any more.
struct Reservation<'a> {
    throttle: &'a Throttle,
    /// When it was asked for.
    from: Duration,
    due: Duration,
    used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let now = self.throttle.start.elapsed();
        if !self.used {
            self.throttle.bucket.lock().give_back(self.due, now);
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

/// The longest a token can be away, for rates next to nothing.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The bucket's arithmetic; times are counted from any fixed point.
#[derive(Debug)]
struct Bucket {
    limit: RateLimit,
    /// Tokens at `last`; below zero when some are promised that do not exist yet.
    tokens: f64,
    last: Duration,
    /// When the token promised last will exist.
    last_due: Duration,
}

impl Bucket {
    fn new(limit: RateLimit) -> Self {
        // A rate that is no number is none.
        let limit = RateLimit { qps: limit.qps.max(0.0), ..limit };
        Self {
            limit,
            tokens: f64::from(limit.burst),
            last: Duration::ZERO,
            last_due: Duration::ZERO,
        }
    }

    /// Takes a token at `now` and says when it will exist.
    fn take(&mut self, now: Duration) -> Duration {
        self.advance(now);
        self.tokens -= 1.0;
        self.last_due = if self.tokens >= 0.0 { now } else { now + self.time(-self.tokens) };
        self.last_due
    }

    /// Gives back at `now` a token that would have existed at `due`. Whoever took one after it
    /// waits on as told, so only what was not promised again since comes back.
    fn give_back(&mut self, due: Duration, now: Duration) {
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

    /// How long it takes until so many tokens exist.
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
        let order: Vec<_> = server.seen().iter().map(|seen| seen.url.clone()).collect();
        assert!(order.is_sorted());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_take_no_token_and_do_not_wait() {
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
    async fn a_wait_given_up_gives_its_token_back() {
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
    fn a_token_promised_again_does_not_come_back() {
        let mut bucket = Bucket::new(RateLimit { qps: 1.0, burst: 1 });
        let second = Duration::from_secs(1);
        assert_eq!(
            [(); 3].map(|()| bucket.take(Duration::ZERO)),
            [Duration::ZERO, second, 2 * second]
        );
        bucket.give_back(second, Duration::ZERO);
        assert_eq!(bucket.take(Duration::ZERO), 3 * second);
        bucket.give_back(3 * second, Duration::ZERO);
        assert_eq!(bucket.take(Duration::ZERO), 3 * second);
    }

    #[test]
    fn a_rate_of_nothing_waits_long_but_does_not_overflow() {
        for qps in [0.0, -1.0, f64::MIN_POSITIVE, f64::NAN] {
            let mut bucket = Bucket::new(RateLimit { qps, burst: 1 });
            assert_eq!(bucket.take(Duration::ZERO), Duration::ZERO);
            assert_eq!(bucket.take(Duration::ZERO), LONGEST, "{qps}");
        }
    }

    proptest! {
        /// Within any stretch of time no more leave than the burst and the rate allow, and who
        /// comes first leaves first.
        #[test]
        fn no_stretch_exceeds_the_rate(
            qps in 0.1..100.0_f64,
            burst in 1..20_u32,
            pauses in proptest::collection::vec(0..2_000_u64, 1..60),
        ) {
            let mut bucket = Bucket::new(RateLimit { qps, burst });
            let mut now = Duration::ZERO;
            let mut leaves = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                leaves.push(bucket.take(now));
            }
            prop_assert!(leaves.is_sorted());
            for (first, start) in leaves.iter().enumerate() {
                for (last, end) in leaves.iter().enumerate().skip(first) {
                    #[allow(clippy::cast_precision_loss)]
                    let count = (last - first + 1) as f64;
                    let allowed = f64::from(burst) + end.saturating_sub(*start).as_secs_f64() * qps;
                    prop_assert!(count <= allowed + 1e-3, "{count} > {allowed}");
                }
            }
        }
    }
}
