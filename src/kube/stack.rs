//! The rules that every request obeys, one layer a rule.
//!
//! Owns what stands between a request and the transport, from the outside in:
//! [`user_agent`], [`retry_after`], [`throttle`], [`in_flight`], [`gate`], [`deadline`], [`anew`], [`forbidden`],
//! [`request_metrics`], [`request_log`]; before all of them, a watcher's own [`rate`]; behind them, on the way
//! to servers that are shown one, [`file_token`]. The order is part of the
//! rules: every repetition pays the throttle anew, nothing waits between the gate and the wire, and
//! a deadline counts from the sending.
//! Promises that no layer pushes back through readiness: all waiting happens in the request's own
//! future, so that whoever gives up a request frees its place at once. Leaves to `lanes` which
//! lane obeys which rule.

pub(crate) mod anew;
pub(crate) mod deadline;
pub(crate) mod file_token;
pub(crate) mod forbidden;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod rate;
pub(crate) mod request_log;
pub(crate) mod request_metrics;
pub(crate) mod retry_after;
mod stripped;
pub(crate) mod target;
pub(crate) mod throttle;
pub(crate) mod user_agent;

use futures::future::Either;

pub(crate) use super::connection::transport::Outcome;
use super::connection::transport::{Request, Service};

/// One rule: what it does with a request, given the rest of the way.
pub(crate) trait Layer: Send + Sync + 'static {
    /// Answers `request`, as a rule by handing it on to `next`.
    fn apply(
        &self,
        request: &mut Request,
        next: &impl Service,
    ) -> impl Future<Output = Outcome> + Send;
}

/// A rule that not every lane has.
impl<R: Layer> Layer for Option<R> {
    fn apply(
        &self,
        request: &mut Request,
        next: &impl Service,
    ) -> impl Future<Output = Outcome> + Send {
        match self {
            Some(rule) => Either::Left(rule.apply(request, next)),
            None => Either::Right(next.send(request)),
        }
    }
}

/// A rule and the way behind it.
struct Layered<R, W> {
    rule: R,
    next: W,
}

impl<R: Layer, W: Service> Service for Layered<R, W> {
    fn send(&self, request: &mut Request) -> impl Future<Output = Outcome> + Send {
        self.rule.apply(request, &self.next)
    }
}

/// Puts `rule` before `next`.
pub(crate) fn layer(rule: impl Layer, next: impl Service) -> impl Service {
    Layered { rule, next }
}
