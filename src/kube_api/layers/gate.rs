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
