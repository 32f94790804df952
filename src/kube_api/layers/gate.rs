//! Keeps writes from leaving without the Lease (safety rule 1).
//!
//! Promises that a write is handed on only while the gate is open, asked at that moment and after
//! every wait; else it fails with [`GateShut`](crate::runtime::GateShut) and nothing is sent.

use std::sync::Arc;

use futures::future::BoxFuture;
use tower::ServiceExt as _;

use super::{Outcome, Rule};
use crate::{
    kube_api::{
        target::Target,
        transport::{Request, Transport},
    },
    runtime::Gate,
};

/// Asks the gate before each write.
pub(crate) struct Gated(pub(crate) Gate);

impl Rule for Gated {
    fn apply(self: Arc<Self>, request: Request, next: Transport) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            if Target::of(&request).verb.writes() {
                self.0.check()?;
            }
            next.oneshot(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{
        kube_api::{
            layers::layer,
            testing::{Answer, Server, request},
        },
        runtime::{GateShut, SystemClock},
    };

    #[tokio::test]
    async fn writes_need_an_open_gate_and_reads_do_not() {
        let server = Server::new(|_, _| Answer::status(200));
        let gate = Gate::shut(Arc::new(SystemClock));
        let service = layer(Gated(gate.clone()), server.transport.clone());
        let send = async |method| {
            service.clone().oneshot(request(method, "/api/v1/persistentvolumes/pv")).await
        };
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(send(method.clone()).await.unwrap_err().is::<GateShut>(), "{method}");
        }
        assert!(send(Method::GET).await.is_ok());
        assert_eq!(server.seen().len(), 1);
        gate.open_until(std::time::Duration::MAX);
        assert!(send(Method::PUT).await.is_ok());
    }
}
