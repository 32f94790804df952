//! The layers between the client and the transport.
//!
//! From the outside in: [`retry_after`], [`throttle`], [`in_flight`], [`gate`], [`deadline`],
//! [`hedge`], [`forbidden`], [`request_metrics`], [`request_log`]. The transport puts [`file_token`]
//! behind them. The order matters: every retry takes a token from the throttle again, nothing waits
//! between the gate and the connection, and a deadline counts from the sending.
//!
//! No layer applies backpressure through readiness: all waiting happens in the request's own
//! future, so that dropping the future frees its permit at once. [`Lanes`](super::Lanes) decide
//! which lane has which layers.

pub(crate) mod deadline;
pub(crate) mod file_token;
pub(crate) mod forbidden;
pub(crate) mod gate;
pub(crate) mod hedge;
pub(crate) mod in_flight;
pub(crate) mod request_log;
pub(crate) mod request_metrics;
pub(crate) mod retry_after;
pub(crate) mod target;
pub(crate) mod throttle;

use futures::future::Either;

pub(crate) use super::connection::transport::Outcome;
use super::connection::transport::{Request, Service};

/// A layer around a [`Service`].
pub(crate) trait Layer: Send + Sync + 'static {
    /// Answers `request`, usually by sending it through `next`, the service that the layer wraps.
    fn apply(
        &self,
        request: &mut Request,
        next: &impl Service,
    ) -> impl Future<Output = Outcome> + Send;
}

/// An optional layer: `None` passes requests on unchanged.
impl<R: Layer> Layer for Option<R> {
    fn apply(
        &self,
        request: &mut Request,
        next: &impl Service,
    ) -> impl Future<Output = Outcome> + Send {
        match self {
            Some(layer) => Either::Left(layer.apply(request, next)),
            None => Either::Right(next.send(request)),
        }
    }
}

/// A layer and the service that it wraps.
struct Layered<L, S> {
    layer: L,
    next: S,
}

impl<L: Layer, S: Service> Service for Layered<L, S> {
    fn send(&self, request: &mut Request) -> impl Future<Output = Outcome> + Send {
        self.layer.apply(request, &self.next)
    }
}

/// Wraps the service `next` in `layer`.
pub(crate) fn layer(layer: impl Layer, next: impl Service) -> impl Service {
    Layered { layer, next }
}
