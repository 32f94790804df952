//! The scrapes themselves, as Go's client counts them.

use prometheus::{IntCounterVec, IntGauge};

use super::families::Families;

/// `promhttp_metric_handler_*`.
#[derive(Debug, Clone)]
pub struct ScrapeMetrics {
    requests: IntCounterVec,
    in_flight: IntGauge,
}

impl ScrapeMetrics {
    pub(super) fn new(families: &Families) -> Self {
        let requests = families.counter(
            "promhttp_metric_handler_requests_total",
            "Total number of scrapes by HTTP status code.",
            &["code"],
        );
        // Present from the start, as in external-provisioner.
        for code in ["200", "500", "503"] {
            requests.with_label_values(&[code]);
        }
        let in_flight = families.single_gauge(
            "promhttp_metric_handler_requests_in_flight",
            "Current number of scrapes being served.",
        );
        Self { requests, in_flight }
    }

    /// Counts one scrape. `scrape` returns its body, in which it is counted as in progress.
    pub fn count<T>(&self, scrape: impl FnOnce() -> T) -> T {
        self.in_flight.inc();
        let body = scrape();
        self.in_flight.dec();
        self.requests.with_label_values(&["200"]).inc();
        body
    }
}
