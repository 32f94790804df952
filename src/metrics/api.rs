//! Requests to the API server, and events.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::families::Families;

/// From unnoticeable to the longest wait that the server may request.
const WAIT_BUCKETS: [f64; 10] = [0.005, 0.05, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Requests to the API server, and events that were not written.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    requests: IntCounterVec,
    events_dropped: IntCounterVec,
    unreadable: IntCounterVec,
    wait_seconds: HistogramVec,
    missing_permissions: IntGaugeVec,
}

impl ApiMetrics {
    pub(super) fn new(families: &Families) -> Self {
        Self {
            requests: families.counter(
                "provisioner_api_requests_total",
                "Requests to the API server by verb, resource and status code (`error`: no answer).",
                &["verb", "resource", "code"],
            ),
            events_dropped: families.counter(
                "provisioner_events_dropped_total",
                "Events that were not written, by why.",
                &["reason"],
            ),
            unreadable: families.counter(
                "provisioner_unreadable_objects_total",
                "Objects in a list or watch that could not be read and were skipped, by resource.",
                &["resource"],
            ),
            wait_seconds: families.histogram(
                "provisioner_api_wait_seconds",
                "Seconds that requests to the API server waited before they were sent, by reason: rate (--kube-api-qps), retry_after (the server said later).",
                &["reason"],
                &WAIT_BUCKETS,
            ),
            missing_permissions: families.int_gauge(
                "provisioner_missing_permissions",
                "1 for each right that an enabled feature needs and the ServiceAccount lacks, as a rule of RBAC.",
                &["verb", "group", "resource"],
            ),
        }
    }

    /// A request was answered with `code`; `error` if there was no answer.
    pub fn requested(&self, verb: &str, resource: &str, code: &str) {
        self.requests.with_label_values(&[verb, resource, code]).inc();
    }

    /// An event was not written.
    pub fn event_dropped(&self, reason: &str) {
        self.events_dropped.with_label_values(&[reason]).inc();
    }

    /// An object was skipped because it could not be read.
    pub fn unreadable(&self, resource: &str) {
        self.unreadable.with_label_values(&[resource]).inc();
    }

    /// A request waited this long before it was sent or abandoned.
    pub fn waited(&self, reason: &'static str, wait: Duration) {
        self.wait_seconds.with_label_values(&[reason]).observe(wait.as_secs_f64());
    }

    /// Sets the rights that enabled features need and this process lacks, each as verb, group (empty
    /// for core) and plural resource; replaces those set before.
    pub fn missing_permissions<'a>(&self, missing: impl IntoIterator<Item = [&'a str; 3]>) {
        self.missing_permissions.reset();
        for right in missing {
            self.missing_permissions.with_label_values(&right).set(1);
        }
    }
}
