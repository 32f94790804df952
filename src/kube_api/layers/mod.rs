//! The rules that every request obeys, one layer a rule.
//!
//! Owns what stands between a request and the transport, from the outside in:
//! [`user_agent`], [`retry_after`], [`throttle`], [`in_flight`], [`gate`], [`deadline`],
//! [`request_metrics`], [`request_log`]; before all of them, a watcher's own [`pace`]; behind them, on the way
//! to servers that are shown one, [`file_token`]. The order is part of the
//! rules: every repetition pays the throttle anew, nothing waits between the gate and the wire, and
//! a deadline counts from the sending.
//! Promises that no layer pushes back through readiness: all waiting happens in the request's own
//! future, so that whoever gives up a request frees its place at once. Leaves to `lanes` which
//! lane obeys which rule.

pub(crate) mod deadline;
pub(crate) mod file_token;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod pace;
pub(crate) mod request_log;
pub(crate) mod request_metrics;
pub(crate) mod retry_after;
pub(crate) mod throttle;
pub(crate) mod user_agent;

use std::sync::Arc;

use futures::future::BoxFuture;

pub(crate) use super::transport::Outcome;
use super::transport::{Request, Transport};

/// One rule: what it does with a request, given the rest of the way.
pub(crate) trait Rule: Send + Sync + 'static {
    /// Answers `request`, as a rule by handing it on to `next`.
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome>;
}

/// Puts `rule` before `next`.
pub(crate) fn layer(rule: impl Rule, next: Transport) -> Transport {
    let rule = Arc::new(rule);
    Transport::new(move |request| Arc::clone(&rule).apply(request, next.clone()))
}

/// Puts `rule` before `next` where there is one.
pub(crate) fn layer_if(rule: Option<impl Rule>, next: Transport) -> Transport {
    match rule {
        Some(rule) => layer(rule, next),
        None => next,
    }
}
