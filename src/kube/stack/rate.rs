//! Keeps one informer from opening watches without end.
//!
//! An informer opens a watch as soon as the last one ended. Promises that where a server,
//! or something before it, ends every watch at once, one watcher asks once a second, not as fast
//! as it can. Other requests pass. Leaves what a lane as a whole may send to `throttle`.

use super::{
    Layer, Outcome,
    target::Verb,
    throttle::{RateLimit, Throttle},
};
use crate::kube::connection::transport::{Request, Service};

/// Enough for errors and fall-backs at the start not to wait here.
const PACE: RateLimit = RateLimit { qps: 1.0, burst: 5 };

/// Makes the watches of one watcher wait for one another.
pub(crate) struct Rate(Throttle);

impl Rate {
    /// The pace of a new watcher.
    pub(crate) fn new() -> Self {
        Self(Throttle::new(PACE, None))
    }
}

impl Layer for Rate {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        if Verb::of(request) == Verb::Watch {
            self.0.wait().await;
        }
        next.send(request).await
    }
}
