//! One call through a generated client, logged and counted.
//!
//! At `-v=5` each call is logged with the fields `method` and `request`, and its end with `method`
//! and `response` or `error`; secrets are stripped. The status code is recorded in the field `code`
//! of the surrounding span, if that has one.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use serde::Serialize;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tower::{Layer, Service, ServiceExt as _, service_fn};

use super::{
    answer::AnswerMemory,
    last_calls::LastCalls,
    link::Link,
    shown::Shown,
    status::{CallError, code_name},
    wire::Wire,
};
use crate::{logging::CALLS, metrics::CsiMetrics, runtime::Gate};

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
    /// What answers may take.
    pub(super) memory: AnswerMemory,
    /// How the last calls ended.
    pub(super) last: LastCalls,
}

/// Whether the driver of this name took over from an in-tree plugin.
pub type Migrates = Arc<dyn Fn(&str) -> bool + Send + Sync>;

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
        self.observe(method).end::<()>(Err(&error), Duration::ZERO);
        error
    }

    /// Makes a call that changes something, or is expensive for the driver. Checks the gate right
    /// before sending, and cancels the call when the gate closes.
    pub(super) async fn gated<Q, A, F>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        request: Q,
        send: impl FnMut(Wire, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Serialize,
        A: Serialize,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        // A call that is not begun is neither logged nor counted.
        self.gate.check().map_err(CallError::gate_shut)?;
        self.send(method, self.wire(link, Some(self.gate.clone())), request, send).await
    }

    /// Makes a call over `link`.
    pub(super) async fn call<Q, A, F>(
        &self,
        method: &'static str,
        link: &Link,
        request: Q,
        send: impl FnMut(Wire, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Serialize,
        A: Serialize,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        self.send(method, self.wire(Ok(link.clone()), None), request, send).await
    }

    async fn send<Q, A, F>(
        &self,
        method: &'static str,
        wire: Wire,
        request: Q,
        mut send: impl FnMut(Wire, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Serialize,
        A: Serialize,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
    {
        let mut request = Request::new(request);
        // For the driver; this side enforces the deadline itself.
        request.set_timeout(self.timeout);
        let client = service_fn(|request| send(wire.clone(), request));
        self.observe(method).layer(client).oneshot(request).await
    }

    fn wire(&self, link: Result<Link, CallError>, gate: Option<Gate>) -> Wire {
        Wire { link, timeout: self.timeout, gate, memory: self.memory.clone() }
    }

    fn observe(&self, method: &'static str) -> Observe {
        Observe {
            method,
            metrics: self.metrics.clone(),
            driver: Arc::clone(&self.driver),
            last: self.last.clone(),
        }
    }
}

/// Logs and counts the calls of a method.
#[derive(Clone)]
struct Observe {
    method: &'static str,
    metrics: CsiMetrics,
    driver: Arc<str>,
    last: LastCalls,
}

impl Observe {
    /// A call has ended.
    fn end<A: Serialize>(&self, answer: Result<&A, &CallError>, took: Duration) {
        let method = self.method;
        let code = code_name(answer.err().map_or(Code::Ok, CallError::code));
        self.metrics.observe(&self.driver, method, code, took);
        self.last.ended(answer.err());
        tracing::Span::current().record("code", code);
        match answer {
            Ok(response) => {
                tracing::trace!(target: CALLS, method, response = %Shown(response), "GRPC response");
            }
            Err(error) => tracing::trace!(target: CALLS, method, %error, "GRPC response"),
        }
    }
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, client: S) -> Observed<S> {
        Observed { client, observe: self.clone() }
    }
}

/// A client's method whose calls are logged and counted.
struct Observed<S> {
    client: S,
    observe: Observe,
}

impl<S, Q, A> Service<Request<Q>> for Observed<S>
where
    S: Service<Request<Q>, Response = Response<A>, Error = Status>,
    S::Future: Send + 'static,
    Q: Serialize,
    A: Serialize,
{
    type Response = A;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<A, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.client.poll_ready(cx).map_err(|status| CallError::from_status(&status))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let observe = self.observe.clone();
        let method = observe.method;
        tracing::trace!(target: CALLS, method, request = %Shown(request.get_ref()), "GRPC call");
        let start = Instant::now();
        let in_flight = observe.metrics.begin(method);
        let call = self.client.call(request);
        async move {
            let _in_flight = in_flight;
            let answer = call.await.map(Response::into_inner);
            let answer = answer.map_err(|status| CallError::from_status(&status));
            observe.end(answer.as_ref(), start.elapsed());
            answer
        }
        .boxed()
    }
}
