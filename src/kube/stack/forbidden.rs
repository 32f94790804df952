//! Notifies [`preflight`](crate::preflight) of each answer 403, so that it checks permissions again.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::Notify;

use super::{Layer, Outcome};
use crate::kube::connection::transport::{Request, Service};

/// Notifies of answers 403.
pub(crate) struct Forbidden(pub(crate) Arc<Notify>);

impl Layer for Forbidden {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        let outcome = next.send(request).await;
        if outcome.as_ref().is_ok_and(|answer| answer.status() == StatusCode::FORBIDDEN) {
            self.0.notify_one();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http::Method;

    use super::*;
    use crate::kube::{
        stack::layer,
        testing::{Answer, Server, request, send},
    };

    #[tokio::test]
    async fn only_an_answer_403_notifies() {
        for (code, expected) in [(403, true), (401, false), (404, false), (200, false)] {
            let forbidden = Arc::new(Notify::new());
            let server = Server::new(move |_, _| Answer::status(code));
            let service = layer(Forbidden(Arc::clone(&forbidden)), server.transport);
            let _ = send(&service, request(Method::GET, "/api/v1/nodes/n")).await;
            assert_eq!(forbidden.notified().now_or_never().is_some(), expected, "{code}");
        }
    }
}
