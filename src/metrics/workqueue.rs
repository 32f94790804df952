//! The work queues.

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec};

use super::families::Families;

/// The families `workqueue_*` and the counts of panics, labelled by the queue's name.
#[derive(Debug, Clone)]
pub struct WorkqueueMetrics {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_seconds: HistogramVec,
    work_seconds: HistogramVec,
    unfinished_seconds: GaugeVec,
    longest_running_seconds: GaugeVec,
    panics: IntCounterVec,
}

/// The metrics of one queue.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    /// The queue's name.
    pub name: &'static str,
    /// Keys that wait to be processed.
    pub depth: prometheus::IntGauge,
    /// Keys added, without repetitions of a waiting key.
    pub adds: prometheus::IntCounter,
    /// Keys added again after a failure.
    pub retries: prometheus::IntCounter,
    /// Seconds that a key waited.
    pub queue_seconds: prometheus::Histogram,
    /// Seconds that a key was processed.
    pub work_seconds: prometheus::Histogram,
    /// Seconds of all work in progress, summed.
    pub unfinished_seconds: prometheus::Gauge,
    /// Seconds of the longest work in progress.
    pub longest_running_seconds: prometheus::Gauge,
    /// Keys whose processing panicked.
    pub panics: prometheus::IntCounter,
}

impl WorkqueueMetrics {
    pub(super) fn new(families: &Families) -> Self {
        let powers = std::iter::successors(Some(10e-9), |bucket| Some(bucket * 10.0));
        let buckets: Vec<f64> = powers.take(10).collect();
        let name = ["name"];
        Self {
            depth: families.int_gauge("workqueue_depth", "[BETA] Current depth of workqueue", &name),
            adds: families.counter(
                "workqueue_adds_total",
                "[BETA] Total number of adds handled by workqueue",
                &name,
            ),
            retries: families.counter(
                "workqueue_retries_total",
                "[BETA] Total number of retries handled by workqueue",
                &name,
            ),
            queue_seconds: families.histogram(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
                &name,
                &buckets,
            ),
            work_seconds: families.histogram(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
                &name,
                &buckets,
            ),
            unfinished_seconds: families.gauge(
                "workqueue_unfinished_work_seconds",
                "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
                &name,
            ),
            longest_running_seconds: families.gauge(
                "workqueue_longest_running_processor_seconds",
                "[BETA] How many seconds has the longest running processor for workqueue been running.",
                &name,
            ),
            panics: families.counter(
                "provisioner_panics_total",
                "Pieces of work that panicked and were set aside, by queue. Anything but zero is a bug.",
                &["queue"],
            ),
        }
    }

    /// The metrics of the queue called `name`.
    pub fn queue(&self, name: &'static str) -> QueueMetrics {
        let label = [name];
        QueueMetrics {
            name,
            depth: self.depth.with_label_values(&label),
            adds: self.adds.with_label_values(&label),
            retries: self.retries.with_label_values(&label),
            queue_seconds: self.queue_seconds.with_label_values(&label),
            work_seconds: self.work_seconds.with_label_values(&label),
            unfinished_seconds: self.unfinished_seconds.with_label_values(&label),
            longest_running_seconds: self.longest_running_seconds.with_label_values(&label),
            panics: self.panics.with_label_values(&label),
        }
    }
}
