//! Counts requests by verb, resource and status code, and logs them at `-v=6`, with status and duration.
//!
//! A retry counts as a request of its own; a request without an answer, also one that is dropped,
//! counts as `error`.

use http::{Method, StatusCode, Uri};
use tokio::time::Instant;
use tower::service_fn;

use super::{Next, Outcome, Request, Response};
use crate::{kube::target::Target, logging::REQUESTS, metrics::ApiMetrics};

/// Counts and logs requests.
pub(crate) fn reported(metrics: ApiMetrics, next: impl Next) -> impl Next {
    service_fn(move |request| send(metrics.clone(), next.clone(), request))
}

async fn send(metrics: ApiMetrics, next: impl Next, request: Request) -> Outcome {
    let (method, url) = (request.method().clone(), request.uri().clone());
    let mut count = Count { metrics, method, url, code: None };
    let start = Instant::now();
    let outcome = next.send(request).await;
    count.code = outcome.as_ref().ok().map(Response::status);
    let (Count { method, url, .. }, took) = (&count, start.elapsed());
    match &outcome {
        Ok(response) => {
            let status = response.status().as_u16();
            tracing::trace!(target: REQUESTS, %method, %url, status, ?took, "API request");
        }
        Err(error) => tracing::trace!(target: REQUESTS, %method, %url, %error, "API request"),
    }
    outcome
}

/// Counts its request when it is dropped, so that dropped requests count too.
struct Count {
    metrics: ApiMetrics,
    method: Method,
    url: Uri,
    code: Option<StatusCode>,
}

impl Drop for Count {
    fn drop(&mut self) {
        let Target { verb, resource, .. } = Target::parse(&self.method, &self.url);
        let code = self.code.as_ref().map_or("error", StatusCode::as_str);
        self.metrics.requested(verb.as_str(), resource, code);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tracing::Level;

    use super::*;
    use crate::{
        kube::testing::{Answer, Server, request, send},
        logging::testing::logged_down_to,
        metrics::Metrics,
    };

    async fn count(method: Method, url: &str, answer: Answer) -> String {
        let metrics = Metrics::new();
        let server = Server::new(move |_, _| answer.clone());
        let service = reported(metrics.api.clone(), server.service);
        let sending = send(&service, request(method, url));
        // A request without an answer after a second is dropped.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), sending).await;
        let text = metrics.text();
        text.lines().find(|line| !line.starts_with('#')).unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_verb_resource_and_code() {
        let watch = "/api/v1/persistentvolumes?watch=true";
        let (events, nodes) = ("/api/v1/namespaces/ns/events", "/api/v1/nodes");
        for (method, url, answer, [code, resource, verb]) in [
            (Method::GET, watch, Answer::watch(), ["200", "persistentvolumes", "watch"]),
            (Method::POST, events, Answer::status(403), ["403", "events", "create"]),
            (Method::GET, nodes, Answer::none(), ["error", "nodes", "list"]),
            // Dropped without an answer.
            (Method::GET, nodes, Answer::status(200).after(2), ["error", "nodes", "list"]),
        ] {
            let labels = format!("code=\"{code}\",resource=\"{resource}\",verb=\"{verb}\"");
            let expected = format!("provisioner_api_requests_total{{{labels}}} 1");
            assert_eq!(count(method, url, answer).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_logged_with_its_status_and_without_bodies() {
        let (log, _guard) = logged_down_to(Level::TRACE);
        let secret = json!({"data": {"userKey": "aHVzaA=="}});
        let answer = Answer::json(200, &secret);
        let server = Server::new(move |_, _| answer.clone());
        let mut request = request(Method::POST, "/api/v1/namespaces/ns/secrets");
        *request.body_mut() = secret.to_string().into_bytes().into();
        send(&reported(Metrics::new().api, server.service.clone()), request).await.unwrap();
        let text = log.text();
        assert!(text.contains("API request") && text.contains("status=200"), "{text}");
        assert!(text.contains("/namespaces/ns/secrets") && !text.contains("userKey"), "{text}");
    }
}
