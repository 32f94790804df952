//! One call: gate, deadline, log, metrics.
//!
//! At `-v=5` each call is logged with the fields `method` and `request`, and its end with `method`
//! and `response` or `error`; secrets are stripped. The status code is recorded in the field `code`
//! of the surrounding span, if that has one.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use http::uri::{PathAndQuery, Uri};
use prost::Message;
use tokio::time::{Instant, timeout};
use tonic::{Code, client::Grpc};
use tonic_prost::ProstCodec;

use super::{
    link::Link,
    status::{CallError, code_name},
    wire::{CallTrace, Wire},
};
use crate::{
    logging::CALLS,
    metrics::CsiMetrics,
    runtime::{Gate, GateShut},
};

/// What all calls to one driver share.
#[derive(Clone)]
pub(super) struct Calls {
    /// The deadline of a call: `--timeout`.
    pub(super) timeout: Duration,
    /// Whether calls that change something may be sent.
    pub(super) gate: Gate,
    /// Where calls are counted.
    pub(super) metrics: CsiMetrics,
    /// The metrics' `driver_name`.
    pub(super) driver: Arc<str>,
    /// Which drivers' calls are counted with the label `migrated`.
    pub(super) migrates: Migrates,
}

/// Whether the driver of this name took over from an in-tree plugin.
pub type Migrates = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The `:authority` of every request: grpc-go's for unix sockets.
const ORIGIN: &str = "http://localhost";

impl Calls {
    /// Returns calls that are counted under the driver's name, and with the label `migrated` if the
    /// driver took over from an in-tree plugin.
    pub(super) fn for_driver(&self, driver: &str) -> Self {
        let migrates = (self.migrates)(driver);
        let with_migration = || self.metrics.with_migration();
        let metrics = if migrates { with_migration() } else { self.metrics.clone() };
        Self { driver: driver.into(), metrics, ..self.clone() }
    }

    /// Whether the driver took over from an in-tree plugin.
    pub(super) fn migrates(&self) -> bool {
        (self.migrates)(&self.driver)
    }

    /// Returns calls with the label `migrated` set to whether they are for in-tree volumes.
    pub(super) fn for_migrated(&self, migrated: bool) -> Self {
        Self { metrics: self.metrics.migrated(migrated), ..self.clone() }
    }

    /// Counts and logs a call that cannot be sent because a string in it is not UTF-8.
    pub(super) fn record_unsendable(&self, method: &'static str) -> CallError {
        let error = CallError::not_utf8();
        self.metrics.observe(&self.driver, method, code_name(error.code()), Duration::ZERO);
        tracing::trace!(method, %error, "GRPC response");
        error
    }

    /// Makes a call that changes something, or is expensive for the driver. Checks the gate right
    /// before sending, and cancels the call when the gate closes.
    pub(super) async fn gated<Q, A>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        request: Q,
    ) -> Result<A, CallError>
    where
        Q: Message + Debug + 'static,
        A: Message + Debug + Default + 'static,
    {
        // A call that is not begun is neither logged nor counted.
        self.gate.check().map_err(|error| gate_error(error, &CallTrace::default()))?;
        self.instrumented(method, request, |request| async {
            let trace = CallTrace::default();
            // Boxed, because the large future would otherwise be moved twice.
            let exchange = Box::pin(self.exchange(method, link, trace.clone(), request));
            self.gate.through(exchange).await.map_err(|error| gate_error(error, &trace))?
        })
        .await
    }

    /// Makes a call over `link`.
    pub(super) async fn call<Q, A>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        request: Q,
    ) -> Result<A, CallError>
    where
        Q: Message + Debug + 'static,
        A: Message + Debug + Default + 'static,
    {
        let exchange = |request| self.exchange(method, link, CallTrace::default(), request);
        self.instrumented(method, request, exchange).await
    }

    /// Logs and counts the call that `exchange` makes.
    async fn instrumented<Q, A, F>(
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

    async fn exchange<Q, A>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        trace: CallTrace,
        request: Q,
    ) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let wire = Wire { link: link?, trace: trace.clone() };
        let mut request = tonic::Request::new(request);
        // For the driver; this side enforces the deadline itself.
        request.set_timeout(self.timeout);
        let error = match timeout(self.timeout, send(wire, method, request)).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => CallError::from_status(&status, trace.end()),
            Err(_) => CallError::deadline(),
        };
        Err(with_sent_state(error, &trace))
    }
}

/// Sends the request over `wire`, and receives the response.
async fn send<Q, A>(
    wire: Wire,
    method: &'static str,
    request: tonic::Request<Q>,
) -> Result<tonic::Response<A>, tonic::Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::with_origin(wire, Uri::from_static(ORIGIN));
    client.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
    client.unary(request, PathAndQuery::from_static(method), ProstCodec::default()).await
}

/// Marks the error as unsent if the request was not sent.
fn with_sent_state(error: CallError, trace: &CallTrace) -> CallError {
    if trace.was_sent() { error } else { error.unsent() }
}

/// The error of a call that was refused or cancelled because the gate is closed.
fn gate_error(error: GateShut, trace: &CallTrace) -> CallError {
    with_sent_state(CallError::local(Code::Unavailable, error.to_string()), trace)
}
