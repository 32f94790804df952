//! Limits how often one watcher starts a watch.
//!
//! kube's watcher starts a new watch as soon as the last one ends. If a server, or a proxy before it,
//! ends every watch at once, this layer limits the watcher to one watch a second. Other requests pass.

use super::{
    Layer, Outcome,
    target::Verb,
    throttle::{RateLimit, Throttle},
};
use crate::kube::connection::transport::{Request, Service};

/// The burst is large enough for errors and fall-backs at the start not to wait here.
const LIMIT: RateLimit = RateLimit { qps: 1.0, burst: 5 };

/// Limits the rate of one watcher's watches.
pub(crate) struct WatchRate(Throttle);

impl WatchRate {
    /// The limit of a new watcher.
    pub(crate) fn new() -> Self {
        Self(Throttle::new(LIMIT, None))
    }
}

impl Layer for WatchRate {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if Verb::of(request) == Verb::Watch {
            self.0.wait().await;
        }
        next.send(request).await
    }
}
