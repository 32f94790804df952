//! One call through a generated client, logged and counted.
//!
//! At `-v=5` each call is logged with the fields `method` and `request`, and its end with `method`
//! and `response` or `error`; secrets are stripped. The status code is recorded in the field `code`
//! of the surrounding span, if that has one.

use std::{future::Future, sync::Arc, time::Duration};

use serde::Serialize;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

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
        self.ended::<()>(method, Err(&error), Duration::ZERO);
        error
    }

    /// Makes a call over `link` by `send`, a method of a generated client. A call that changes something, or is
    /// expensive for the driver, has a gate: it is checked right before sending, and cancels the call when
    /// it closes.
    pub(super) async fn send<Q, A, F>(
        &self,
        method: &'static str,
        link: Result<Link, CallError>,
        gate: Option<Gate>,
        request: Q,
        send: impl FnOnce(Wire, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Serialize,
        A: Serialize,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        if let Some(gate) = &gate {
            // A call that is not begun is neither logged nor counted.
            gate.check().map_err(CallError::gate_shut)?;
        }
        tracing::trace!(target: CALLS, method, request = %Shown(&request), "GRPC call");
        let start = Instant::now();
        let _in_flight = self.metrics.begin(method);
        let wire = Wire { link, timeout: self.timeout, gate, memory: self.memory.clone() };
        let mut request = Request::new(request);
        // For the driver; this side enforces the deadline itself.
        request.set_timeout(self.timeout);
        let answer = send(wire, request).await.map(Response::into_inner);
        let answer = answer.map_err(|status| CallError::from_status(&status));
        self.ended(method, answer.as_ref(), start.elapsed());
        answer
    }

    /// Counts and logs the end of a call.
    fn ended<A: Serialize>(
        &self,
        method: &'static str,
        answer: Result<&A, &CallError>,
        took: Duration,
    ) {
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
