//! Says who asks.
//!
//! Promises that every request carries the program's User-Agent: the server takes the name of a
//! field's manager from the part before the slash, audit logs and priority rules read it too.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderValue, header};
use tower::ServiceExt as _;

use super::{Outcome, Rule};
use crate::kube_api::transport::{Request, Transport};

/// The User-Agent of version `version` of this program, in the shape of Kubernetes' own.
pub fn user_agent(version: &str) -> String {
    format!("csi-provisioner/{version} (linux/amd64)")
}

/// Puts the User-Agent on requests.
pub(crate) struct UserAgent(HeaderValue);

impl UserAgent {
    /// Requests will carry `text`; what a header cannot hold is left out of it.
    pub(crate) fn new(text: &str) -> Self {
        let visible: String = text.chars().filter(|char| matches!(char, ' '..='~')).collect();
        Self(
            HeaderValue::from_str(&visible)
                .unwrap_or_else(|_| HeaderValue::from_static("csi-provisioner")),
        )
    }
}

impl Rule for UserAgent {
    fn apply(
        self: Arc<Self>,
        mut request: Request,
        next: Transport,
    ) -> BoxFuture<'static, Outcome> {
        request.headers_mut().insert(header::USER_AGENT, self.0.clone());
        Box::pin(next.oneshot(request))
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kube_api::{
        layers::layer,
        testing::{Answer, Server, request},
    };

    async fn sent(text: &str) -> String {
        let server = Server::new(|_, _| Answer::status(200));
        let service = layer(UserAgent::new(text), server.transport.clone());
        service.oneshot(request(Method::GET, "/api/v1/nodes")).await.unwrap();
        server.seen()[0].header("user-agent").to_owned()
    }

    #[tokio::test]
    async fn every_request_says_who_asks() {
        assert_eq!(sent(&user_agent("1.2")).await, "csi-provisioner/1.2 (linux/amd64)");
    }

    #[tokio::test]
    async fn what_a_header_cannot_hold_is_left_out() {
        assert_eq!(sent("csi-provisioner/1\r\nX: y ä").await, "csi-provisioner/1X: y ");
    }
}
