//! Limits the rate of requests with a token bucket.
//!
//! The bucket is that of Go's `x/time/rate`. The request at the head of a FIFO queue waits for the next
//! token, so that requests are sent in the order in which they came, and a request that is dropped while
//! it waits takes no token. A predicate says which requests take tokens: in lanes, all but
//! watches and pages that continue a list: what a list costs does not depend on how it is cut into pages.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};
use tower::service_fn;

use super::{Next, Outcome, Request};
pub use crate::flags::RateLimit;
use crate::{kube::target::Verb, metrics::ApiMetrics};

/// The longest time between two tokens, for rates close to zero.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// A token bucket.
pub(crate) struct Throttle {
    /// The time between two tokens.
    interval: Duration,
    /// How long it takes to fill the bucket but for its last token.
    slack: Duration,
    /// When the bucket is full. The request at the head of the queue holds the lock.
    full_at: Mutex<Instant>,
    /// Where waits are counted, if they are.
    metrics: Option<ApiMetrics>,
}

impl Throttle {
    /// A full bucket.
    pub(crate) fn new(RateLimit { qps, burst }: RateLimit, metrics: Option<ApiMetrics>) -> Self {
        let interval = Duration::try_from_secs_f64(qps.recip()).unwrap_or(LONGEST).min(LONGEST);
        let slack = interval.saturating_mul(burst.saturating_sub(1));
        Self { interval, slack, full_at: Mutex::new(Instant::now()), metrics }
    }

    /// Waits until a token exists, and takes it.
    pub(crate) async fn wait(&self) {
        let from = Instant::now();
        let mut full_at = self.full_at.lock().await;
        let missing = full_at.saturating_duration_since(Instant::now());
        let wait = missing.saturating_sub(self.slack);
        // A sleep of no time takes a millisecond.
        if !wait.is_zero() {
            sleep(wait).await;
        }
        *full_at = Instant::now().max(*full_at) + self.interval;
        if let Some(metrics) = &self.metrics {
            metrics.waited("rate", from.elapsed());
        }
    }
}

/// Whether a request takes a token of a throttle.
type TakesToken = fn(&Request) -> bool;

/// Makes the requests that take tokens wait for one.
pub(crate) fn throttled(throttle: Arc<Throttle>, takes: TakesToken, next: impl Next) -> impl Next {
    service_fn(move |request| send(Arc::clone(&throttle), takes, next.clone(), request))
}

async fn send(
    throttle: Arc<Throttle>,
    takes: TakesToken,
    next: impl Next,
    request: Request,
) -> Outcome {
    if takes(&request) {
        throttle.wait().await;
    }
    next.send(request).await
}

/// Whether the request is a watch.
pub(crate) fn is_watch(request: &Request) -> bool {
    Verb::of(request) == Verb::Watch
}

/// Whether a request of a lane takes a token: neither a watch nor a later page of a list does.
pub(crate) fn takes_token(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    !is_watch(request) && !query.split('&').any(|pair| pair.starts_with("continue="))
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use http::Method;
    use proptest::prelude::*;
    use tokio::time::sleep_until;

    use super::*;
    use crate::kube::testing::{Answer, Server, request, send};

    fn throttle(limit: RateLimit) -> Throttle {
        Throttle::new(limit, None)
    }

    fn service(limit: RateLimit, server: &Server) -> impl Next {
        throttled(Arc::new(throttle(limit)), takes_token, server.service.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_order_at_the_rate() {
        let server = Server::new(|_, _| Answer::status(200));
        let service = service(RateLimit { qps: 0.5, burst: 2 }, &server);
        let urls = (0..5).map(|number| format!("/api/v1/nodes/{number}"));
        join_all(urls.map(|url| send(&service, request(Method::GET, &url)))).await;
        assert_eq!(server.times(), [0, 0, 2, 4, 6]);
        let order: Vec<_> = server.requests().iter().map(|request| request.url.clone()).collect();
        assert!(order.is_sorted());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_and_later_pages_reserve_no_token_and_do_not_wait() {
        let server = Server::new(|_, _| Answer::watch());
        let service = service(RateLimit { qps: 1.0, burst: 1 }, &server);
        for url in [
            "/api/v1/nodes?watch=true",
            "/api/v1/nodes?watch=true",
            "/api/v1/nodes?limit=1&continue=a",
            "/api/v1/nodes?&limit=1",
            "/api/v1/nodes?&limit=1&continue=b",
            "/api/v1/nodes?&limit=1",
        ] {
            send(&service, request(Method::GET, url)).await.unwrap();
        }
        assert_eq!(server.times(), [0, 0, 0, 0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_takes_no_token() {
        let throttle = throttle(RateLimit { qps: 1.0, burst: 1 });
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

    #[tokio::test(start_paused = true)]
    async fn a_rate_of_nearly_zero_waits_long_but_does_not_overflow() {
        for qps in [0.0, -1.0, f64::MIN_POSITIVE, f64::NAN] {
            let throttle = throttle(RateLimit { qps, burst: u32::MAX });
            throttle.wait().await;
            assert_eq!(throttle.interval, LONGEST, "{qps}");
        }
    }

    /// When requests are sent that come after these pauses, in milliseconds.
    async fn sent_after(pauses: Vec<u64>, limit: RateLimit) -> Vec<Duration> {
        let (throttle, start) = (throttle(limit), Instant::now());
        let mut come = Duration::ZERO;
        join_all(pauses.into_iter().map(|pause| {
            come += Duration::from_millis(pause);
            let (throttle, at) = (&throttle, start + come);
            async move {
                sleep_until(at).await;
                throttle.wait().await;
                start.elapsed()
            }
        }))
        .await
    }

    /// Runs a future under paused time.
    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(future)
    }

    proptest! {
        /// In any interval no more requests are sent than burst and rate allow, and they keep their order.
        #[test]
        fn no_interval_exceeds_the_rate(
            qps in 0.1..100.0_f64,
            burst in 1..20_u32,
            pauses in proptest::collection::vec(0..2_000_u64, 1..60),
        ) {
            let sent = run(sent_after(pauses, RateLimit { qps, burst }));
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
