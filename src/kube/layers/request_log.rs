//! Logs requests at `-v=6`, each with its status and duration. Below that level a request costs one
//! comparison.

use futures::FutureExt as _;
use tokio::time::Instant;
use tower::service_fn;
use tracing::Level;

use super::{Next, Outcome, Request};
use crate::logging::REQUESTS;

/// Logs requests.
pub(crate) fn request_log(next: impl Next) -> impl Next {
    service_fn(move |request| send(next.clone(), request))
}

async fn send(next: impl Next, request: Request) -> Outcome {
    if tracing::enabled!(target: REQUESTS, Level::TRACE) {
        // Boxed, so that the rare case does not make every request's future larger.
        return send_logged(request, next).boxed().await;
    }
    next.send(request).await
}

async fn send_logged(request: Request, next: impl Next) -> Outcome {
    let (method, url) = (request.method().to_string(), request.uri().to_string());
    let start = Instant::now();
    let outcome = next.send(request).await;
    let took = start.elapsed();
    match &outcome {
        Ok(response) => {
            let status = response.status().as_u16();
            tracing::trace!(target: REQUESTS, method, url, status, ?took, "API request");
        }
        Err(error) => tracing::trace!(target: REQUESTS, method, url, %error, "API request"),
    }
    outcome
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::{
        kube::testing::{Answer, Server, request, send},
        logging::testing::{logged, logged_down_to},
    };

    #[tokio::test(start_paused = true)]
    async fn a_request_is_logged_with_its_status_and_without_bodies() {
        let (log, _guard) = logged_down_to(Level::TRACE);
        let secret = json!({"data": {"userKey": "aHVzaA=="}});
        let answer = Answer::json(200, &secret);
        let server = Server::new(move |_, _| answer.clone());
        let mut request = request(Method::POST, "/api/v1/namespaces/ns/secrets");
        *request.body_mut() = secret.to_string().into_bytes().into();
        send(&request_log(server.service.clone()), request).await.unwrap();
        let text = log.text();
        assert!(text.contains("API request") && text.contains("status=200"), "{text}");
        assert!(text.contains("/namespaces/ns/secrets") && !text.contains("userKey"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_logged_at_the_usual_level() {
        let (log, _guard) = logged();
        let server = Server::new(|_, _| Answer::status(200));
        let service = request_log(server.service);
        send(&service, request(Method::GET, "/version")).await.unwrap();
        assert_eq!(log.text(), "");
    }
}
