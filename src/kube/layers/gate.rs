//! Sends writes only while this process holds the Lease (safety rule 1).
//!
//! The gate is checked right before each write is sent, after every wait. When the gate shuts, a
//! write without an answer is dropped, because it may still wait for a connection and be sent later.
//! The error is [`GateShut`](crate::runtime::GateShut). For a read, the layer records in the response
//! when the request was sent ([`SentAt`]).

use std::{pin::pin, time::Duration};

use tower::service_fn;

use super::{Next, Outcome, Request};
use crate::{kube::target::Verb, runtime::Gate};

/// An extension of a response to a read: when the request was sent, by
/// [`Clock::boot`](crate::runtime::Clock::boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentAt(pub(crate) Duration);

/// Sends writes only through `gate`.
pub(crate) fn gated(gate: Gate, next: impl Next) -> impl Next {
    service_fn(move |request| send(gate.clone(), next.clone(), request))
}

async fn send(gate: Gate, next: impl Next, request: Request) -> Outcome {
    if Verb::of(&request).writes() {
        // Pinned here: moved into `through`, the future would take its size twice.
        return gate.through(pin!(next.send(request))).await?;
    }
    let sent = SentAt(gate.boot());
    let mut response = next.send(request).await?;
    response.extensions_mut().insert(sent);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;
    use crate::{
        kube::testing::{Answer, Server, request, send},
        runtime::{GateShut, SystemClock},
    };

    #[tokio::test]
    async fn writes_need_an_open_gate_and_reads_do_not() {
        let server = Server::new(|_, _| Answer::status(200));
        let gate = Gate::shut(Arc::new(SystemClock));
        let service = gated(gate.clone(), server.service.clone());
        let send =
            async |method| send(&service, request(method, "/api/v1/persistentvolumes/pv")).await;
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(send(method.clone()).await.unwrap_err().is::<GateShut>(), "{method}");
        }
        assert!(send(Method::GET).await.is_ok());
        assert_eq!(server.requests().len(), 1);
        gate.open_until(std::time::Duration::MAX);
        assert!(send(Method::PUT).await.is_ok());
    }
}
