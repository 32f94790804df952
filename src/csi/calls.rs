//! One call: gate, deadline, log, metrics.
//!
//! At `-v=5` each call is logged with the fields `method` and `request`, and its end with `method`
//! and `response` or `error`; secrets are stripped. The end's code becomes the field `code` of the
//! span around, where that has one.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tonic::Code;

use super::{
    link::Link,
    status::{CallError, code_name},
    wire::{Heard, Wire},
};
use crate::{
    logging::CALLS,
    metrics::CsiMetrics,
    runtime::{Gate, GateShut},
};

/// What all calls to one driver have in common.
#[derive(Clone)]
pub(super) struct Calls {
    /// How long a call may take: `--timeout`.
    pub(super) timeout: Duration,
    /// Whether calls that change something may go out.
    pub(super) gate: Gate,
    /// Where calls are counted.
    pub(super) metrics: CsiMetrics,
    /// The metrics' `driver_name`.
    pub(super) driver: Arc<str>,
    /// Which drivers' calls are counted by whether they are for in-tree volumes.
    pub(super) migrates: Migrates,
}

/// Whether the driver of this name took over from an in-tree plugin.
pub type Migrates = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The origin of every request: grpc-go's `:authority` for unix sockets.
pub(super) fn origin() -> http::Uri {
    http::Uri::from_static("http://localhost")
}

impl Calls {
    /// The same, counted under the driver's name, and from now on by whether they are for in-tree
    /// volumes where the driver took over such.
    pub(super) fn named(&self, driver: &str) -> Self {
        let migrates = (self.migrates)(driver);
        let counted = || self.metrics.with_migration();
        let metrics = if migrates { counted() } else { self.metrics.clone() };
        Self { driver: driver.into(), metrics, ..self.clone() }
    }

    /// Whether the driver took over from an in-tree plugin.
    pub(super) fn migrates(&self) -> bool {
        (self.migrates)(&self.driver)
    }

    /// The same for calls that are for in-tree volumes, or not.
    pub(super) fn migrated(&self, migrated: bool) -> Self {
        Self { metrics: self.metrics.migrated(migrated), ..self.clone() }
    }

    /// Notes a call that cannot be sent, as some of its text is no UTF-8.
    pub(super) fn unsendable(&self, method: &'static str) -> CallError {
        let error = CallError::not_text();
        self.metrics.observe(&self.driver, method, code_name(error.code()), Duration::ZERO);
        tracing::trace!(method, %error, "GRPC response");
        error
    }

    /// Makes a call that changes something, or costs the driver much: only while the gate is
    /// open, which is asked right before sending; when it shuts, the call is cut.
    pub(super) async fn gated<Q, A, F>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        request: Q,
        send: impl FnOnce(Wire, tonic::Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Debug,
        A: Debug,
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        // A call that is not begun is neither logged nor counted.
        self.gate.check().map_err(|error| shut(error, &Heard::default()))?;
        self.observed(method, request, |request| async {
            let heard = Heard::default();
            // Boxed: a call's future is large, and would be moved twice on its way in.
            let exchange = Box::pin(self.exchange(link, heard.clone(), request, send));
            self.gate.through(exchange).await.map_err(|error| shut(error, &heard))?
        })
        .await
    }

    /// Makes a call over `link`: `send` hands the request to the generated client.
    pub(super) async fn call<Q, A, F>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        request: Q,
        send: impl FnOnce(Wire, tonic::Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Debug,
        A: Debug,
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let exchange = |request| self.exchange(link, Heard::default(), request, send);
        self.observed(method, request, exchange).await
    }

    /// Logs and counts what `exchange` does with the request.
    async fn observed<Q, A, F>(
        &self,
        method: &'static str,
        request: Q,
        exchange: impl FnOnce(Q) -> F,
    ) -> Result<A, CallError>
    where
        Q: Debug,
        A: Debug,
        F: Future<Output = Result<A, CallError>>,
    {
        tracing::trace!(target: CALLS, method, ?request, "GRPC call");
        let start = Instant::now();
        let _in_flight = self.metrics.begin(method);
        let answer = exchange(request).await;
        let code = answer.as_ref().err().map_or(Code::Ok, CallError::code);
        self.metrics.observe(&self.driver, method, code_name(code), start.elapsed());
        tracing::Span::current().record("code", code_name(code));
        match &answer {
            Ok(response) => tracing::trace!(target: CALLS, method, ?response, "GRPC response"),
            Err(error) => tracing::trace!(target: CALLS, method, %error, "GRPC response"),
        }
        answer
    }

    async fn exchange<Q, A, F>(
        &self,
        link: Result<Link, CallError>,
        heard: Heard,
        request: Q,
        send: impl FnOnce(Wire, tonic::Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<tonic::Response<A>, tonic::Status>>,
    {
        let wire = Wire { link: link?, heard: heard.clone() };
        let mut request = tonic::Request::new(request);
        // Tells the driver; this side keeps its own time.
        request.set_timeout(self.timeout);
        let error = match timeout(self.timeout, send(wire, request)).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => CallError::judged(&status, heard.end()),
            Err(_) => CallError::deadline(),
        };
        Err(unless_sent(error, &heard))
    }
}

/// The error, which tells whether the request was sent.
fn unless_sent(error: CallError, heard: &Heard) -> CallError {
    if heard.was_sent() { error } else { error.unsent() }
}

/// A call was not made, or not to its end, for want of the Lease.
fn shut(error: GateShut, heard: &Heard) -> CallError {
    unless_sent(CallError::local(Code::Unavailable, error.to_string()), heard)
}
