//! Counts what is sent.
//!
//! Promises that every request that leaves is counted once by verb, resource and status code, a
//! repetition as a request of its own, and one without an answer (also one given up) as `error`.

use std::sync::Arc;

use futures::future::BoxFuture;
use tower::ServiceExt as _;

use super::{Outcome, Rule};
use crate::{
    kube_api::{
        target::Target,
        transport::{Request, Transport},
    },
    metrics::ApiMetrics,
};

/// Counts requests.
pub(crate) struct RequestMetrics(pub(crate) ApiMetrics);

impl Rule for RequestMetrics {
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome> {
        let mut count = Count { metrics: self.0.clone(), target: Target::of(&request), code: None };
        Box::pin(async move {
            let outcome = next.oneshot(request).await;
            count.answered(&outcome);
            outcome
        })
    }
}

/// One request that is counted when it is over, however it ends.
struct Count {
    metrics: ApiMetrics,
    target: Target,
    code: Option<u16>,
}

impl Count {
    fn answered(&mut self, outcome: &Outcome) {
        self.code = outcome.as_ref().ok().map(|response| response.status().as_u16());
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let code = self.code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        self.metrics.requested(self.target.verb.as_str(), &self.target.resource, &code);
    }
}
