//! Every metric's name, help, labels and buckets, in one place.
//!
//! Owns the registry and the typed handles that other rooms count with; passed in, never global.
//! Names, labels and buckets without the prefix `provisioner_` are the original's, so that
//! dashboards and alerts made for it go on working; `provisioner_` ones are our own. Promises
//! that a scrape is the Prometheus text format 0.0.4. Leaves serving it to `http`.

use std::time::Duration;

use prometheus::{
    Encoder as _, Error, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts,
    Registry, TextEncoder, exponential_buckets,
};

/// `client_golang`'s default buckets, in seconds.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// csi-lib-utils' buckets for driver calls, in seconds.
const CSI_BUCKETS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The `driver_name` of calls made before the driver told its name.
pub const UNKNOWN_DRIVER: &str = "unknown-driver";

/// All metrics of the process. Clones share the same registry.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Driver calls.
    pub csi: CsiMetrics,
    /// Claims made into volumes, and volumes deleted.
    pub controller: ControllerMetrics,
    /// The work queues, by name.
    pub workqueue: WorkqueueMetrics,
    /// Leader election.
    pub leader: LeaderMetrics,
    /// Requests to the API server, and events.
    pub api: ApiMetrics,
}

/// `csi_sidecar_operations_seconds`.
#[derive(Debug, Clone)]
pub struct CsiMetrics {
    operations: HistogramVec,
}

/// `controller_persistentvolume*` and what is told about single claims.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    provision_total: IntCounterVec,
    provision_failed_total: IntCounterVec,
    provision_seconds: HistogramVec,
    delete_total: IntCounterVec,
    delete_failed_total: IntCounterVec,
    delete_seconds: HistogramVec,
    suspected_leaks: IntCounterVec,
    panics: IntCounterVec,
}

/// The families `workqueue_*`, labelled by the queue's name.
#[derive(Debug, Clone)]
pub struct WorkqueueMetrics {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_seconds: HistogramVec,
    work_seconds: HistogramVec,
    unfinished_seconds: GaugeVec,
    longest_running_seconds: GaugeVec,
}

/// The metrics of one queue.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    /// Keys that wait to be worked on.
    pub depth: prometheus::IntGauge,
    /// Keys added, repeats of a waiting key not counted.
    pub adds: prometheus::IntCounter,
    /// Keys added again after a failure.
    pub retries: prometheus::IntCounter,
    /// Seconds a key waited.
    pub queue_seconds: prometheus::Histogram,
    /// Seconds a key was worked on.
    pub work_seconds: prometheus::Histogram,
    /// Seconds of work under way, summed.
    pub unfinished_seconds: prometheus::Gauge,
    /// Seconds the longest work under way has taken.
    pub longest_running_seconds: prometheus::Gauge,
}

/// `leader_election_*`.
#[derive(Debug, Clone)]
pub struct LeaderMetrics {
    master_status: IntGaugeVec,
    slowpath_total: IntCounterVec,
}

/// What the API server was asked, and what became of events.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    requests: IntCounterVec,
    events_dropped: IntCounterVec,
    unreadable: IntCounterVec,
    missing_permissions: IntGaugeVec,
}

/// A right that an enabled feature needs and the service account lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPermission<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

impl Metrics {
    /// A registry of its own with every family.
    ///
    /// # Errors
    /// When two families share a name, which is a bug the tests show.
    pub fn new() -> Result<Self, Error> {
        let registry = Registry::new();
        let families = Families(&registry);
        Ok(Self {
            csi: CsiMetrics::new(&families)?,
            controller: ControllerMetrics::new(&families)?,
            workqueue: WorkqueueMetrics::new(&families)?,
            leader: LeaderMetrics::new(&families)?,
            api: ApiMetrics::new(&families)?,
            registry,
        })
    }

    /// A scrape's body.
    ///
    /// # Errors
    /// When the text cannot be written, which no family here can cause.
    pub fn text(&self) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

impl CsiMetrics {
    fn new(families: &Families<'_>) -> Result<Self, Error> {
        let operations = families.histogram(
            "csi_sidecar_operations_seconds",
            "Container Storage Interface operation duration with gRPC error code status total",
            &["driver_name", "method_name", "grpc_status_code"],
            &CSI_BUCKETS,
        )?;
        Ok(Self { operations })
    }

    /// One driver call has ended: `method` as in `/csi.v1.Controller/CreateVolume`, `code` as in
    /// `DeadlineExceeded`.
    pub fn observe(&self, driver: &str, method: &str, code: &str, took: Duration) {
        self.operations.with_label_values(&[driver, method, code]).observe(took.as_secs_f64());
    }
}

impl ControllerMetrics {
    fn new(families: &Families<'_>) -> Result<Self, Error> {
        let by_claim = ["class", "source"];
        Ok(Self {
            provision_total: families.counter(
                "controller_persistentvolumeclaim_provision_total",
                "Total number of persistent volumes provisioned succesfully. Broken down by storage class name and source of the claim.",
                &by_claim,
            )?,
            provision_failed_total: families.counter(
                "controller_persistentvolumeclaim_provision_failed_total",
                "Total number of persistent volume provision failed attempts. Broken down by storage class name and source of the claim.",
                &by_claim,
            )?,
            provision_seconds: families.histogram(
                "controller_persistentvolumeclaim_provision_duration_seconds",
                "Latency in seconds to provision persistent volumes. Failed provisioning attempts are ignored. Broken down by storage class name and source of the claim.",
                &by_claim,
                &DEFAULT_BUCKETS,
            )?,
            delete_total: families.counter(
                "controller_persistentvolume_delete_total",
                "Total number of persistent volumes deleted succesfully. Broken down by storage class name.",
                &["class"],
            )?,
            delete_failed_total: families.counter(
                "controller_persistentvolume_delete_failed_total",
                "Total number of persistent volume delete failed attempts. Broken down by storage class name.",
                &["class"],
            )?,
            delete_seconds: families.histogram(
                "controller_persistentvolume_delete_duration_seconds",
                "Latency in seconds to delete persistent volumes. Failed deletion attempts are ignored. Broken down by storage class name.",
                &["class"],
                &DEFAULT_BUCKETS,
            )?,
            suspected_leaks: families.counter(
                "provisioner_suspected_leaks_total",
                "Volumes that may exist at the driver without a PersistentVolume, by why they are suspected.",
                &["reason"],
            )?,
            panics: families.counter(
                "provisioner_panics_total",
                "Pieces of work that panicked and were set aside, by queue. Anything but zero is a bug.",
                &["queue"],
            )?,
        })
    }

    /// A claim's volume was provisioned after `took`, measured over the last attempt.
    pub fn provisioned(&self, class: &str, source: &str, took: Duration) {
        self.provision_total.with_label_values(&[class, source]).inc();
        self.provision_seconds.with_label_values(&[class, source]).observe(took.as_secs_f64());
    }

    /// An attempt to provision failed.
    pub fn provision_failed(&self, class: &str, source: &str) {
        self.provision_failed_total.with_label_values(&[class, source]).inc();
    }

    /// A volume was deleted after `took`, measured over the last attempt.
    pub fn deleted(&self, class: &str, took: Duration) {
        self.delete_total.with_label_values(&[class]).inc();
        self.delete_seconds.with_label_values(&[class]).observe(took.as_secs_f64());
    }

    /// An attempt to delete failed.
    pub fn delete_failed(&self, class: &str) {
        self.delete_failed_total.with_label_values(&[class]).inc();
    }

    /// A volume may exist that no PersistentVolume names (safety rule 14).
    pub fn suspected_leak(&self, reason: &str) {
        self.suspected_leaks.with_label_values(&[reason]).inc();
    }

    /// A piece of work panicked.
    pub fn panicked(&self, queue: &str) {
        self.panics.with_label_values(&[queue]).inc();
    }
}

impl WorkqueueMetrics {
    fn new(families: &Families<'_>) -> Result<Self, Error> {
        let buckets = exponential_buckets(10e-9, 10.0, 10)?;
        let name = ["name"];
        Ok(Self {
            depth: families.int_gauge("workqueue_depth", "[BETA] Current depth of workqueue", &name)?,
            adds: families.counter(
                "workqueue_adds_total",
                "[BETA] Total number of adds handled by workqueue",
                &name,
            )?,
            retries: families.counter(
                "workqueue_retries_total",
                "[BETA] Total number of retries handled by workqueue",
                &name,
            )?,
            queue_seconds: families.histogram(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
                &name,
                &buckets,
            )?,
            work_seconds: families.histogram(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
                &name,
                &buckets,
            )?,
            unfinished_seconds: families.gauge(
                "workqueue_unfinished_work_seconds",
                "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
                &name,
            )?,
            longest_running_seconds: families.gauge(
                "workqueue_longest_running_processor_seconds",
                "[BETA] How many seconds has the longest running processor for workqueue been running.",
                &name,
            )?,
        })
    }

    /// The metrics of the queue called `name`.
    pub fn queue(&self, name: &str) -> QueueMetrics {
        let label = [name];
        QueueMetrics {
            depth: self.depth.with_label_values(&label),
            adds: self.adds.with_label_values(&label),
            retries: self.retries.with_label_values(&label),
            queue_seconds: self.queue_seconds.with_label_values(&label),
            work_seconds: self.work_seconds.with_label_values(&label),
            unfinished_seconds: self.unfinished_seconds.with_label_values(&label),
            longest_running_seconds: self.longest_running_seconds.with_label_values(&label),
        }
    }
}

impl LeaderMetrics {
    fn new(families: &Families<'_>) -> Result<Self, Error> {
        Ok(Self {
            master_status: families.int_gauge(
                "leader_election_master_status",
                "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
            slowpath_total: families.counter(
                "leader_election_slowpath_total",
                "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            )?,
        })
    }

    /// Whether this process leads. The original leaves the label `name` empty, so do we.
    pub fn leads(&self, leads: bool) {
        self.master_status.with_label_values(&[""]).set(i64::from(leads));
    }

    /// This process read a Lease that was its own before it wrote it: after a failed renewal, or
    /// after a restart.
    pub fn slow_path(&self) {
        self.slowpath_total.with_label_values(&[""]).inc();
    }
}

impl ApiMetrics {
    fn new(families: &Families<'_>) -> Result<Self, Error> {
        Ok(Self {
            requests: families.counter(
                "provisioner_api_requests_total",
                "Requests to the API server by verb, resource and status code (`error`: no answer).",
                &["verb", "resource", "code"],
            )?,
            events_dropped: families.counter(
                "provisioner_events_dropped_total",
                "Events that were not written, by why.",
                &["reason"],
            )?,
            unreadable: families.counter(
                "provisioner_unreadable_objects_total",
                "Objects in a list or watch that could not be read and were skipped, by resource.",
                &["resource"],
            )?,
            missing_permissions: families.int_gauge(
                "provisioner_missing_permissions",
                "1 for each right that an enabled feature needs and the ServiceAccount lacks, as a rule of RBAC.",
                &["verb", "group", "resource"],
            )?,
        })
    }

    /// A request was answered with `code`, or with nothing (`error`).
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

    /// These rights are missing, and no others: replaces what was said before.
    pub fn missing_permissions<'a>(
        &self,
        missing: impl IntoIterator<Item = MissingPermission<'a>>,
    ) {
        self.missing_permissions.reset();
        for MissingPermission { verb, group, resource } in missing {
            self.missing_permissions.with_label_values(&[verb, group, resource]).set(1);
        }
    }
}

/// Makes families and registers them.
struct Families<'a>(&'a Registry);

impl Families<'_> {
    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn int_gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, Error> {
        let family = GaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let family =
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.text().unwrap()).unwrap()
    }

    #[test]
    fn families_are_absent_until_first_used() {
        assert_eq!(text(&Metrics::new().unwrap()), "");
    }

    #[test]
    fn names_and_labels_are_the_originals() {
        let metrics = Metrics::new().unwrap();
        metrics.csi.observe(
            "d",
            "/csi.v1.Controller/CreateVolume",
            "OK",
            Duration::from_millis(150),
        );
        metrics.controller.provisioned("sc", "", Duration::from_millis(1));
        metrics.controller.provision_failed("sc", "VolumeSnapshot");
        metrics.controller.deleted("sc", Duration::from_millis(1));
        metrics.workqueue.queue("claims").adds.inc();
        metrics.leader.leads(true);
        let text = text(&metrics);
        for line in [
            "csi_sidecar_operations_seconds_bucket{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\",le=\"0.1\"} 0",
            "csi_sidecar_operations_seconds_bucket{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\",le=\"0.25\"} 1",
            "controller_persistentvolumeclaim_provision_total{class=\"sc\",source=\"\"} 1",
            "controller_persistentvolumeclaim_provision_failed_total{class=\"sc\",source=\"VolumeSnapshot\"} 1",
            "controller_persistentvolume_delete_duration_seconds_count{class=\"sc\"} 1",
            "workqueue_adds_total{name=\"claims\"} 1",
            "leader_election_master_status{name=\"\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "missing: {line}\nin:\n{text}");
        }
    }
}
