//! Calls to the driver.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use prometheus::{
    HistogramVec, IntGauge, IntGaugeVec,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::families::Families;

/// The `driver_name` of calls before the driver's name is known.
pub const UNKNOWN_DRIVER: &str = "unknown-driver";

/// csi-lib-utils' buckets, in seconds.
const BUCKETS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// Counts calls to the driver.
#[derive(Debug, Clone)]
pub struct CsiMetrics {
    operations: Operations,
    /// The label `migrated`, if calls have it.
    migrated: Option<bool>,
    in_flight: IntGaugeVec,
}

impl CsiMetrics {
    pub(super) fn new(families: &Families) -> Self {
        Self {
            operations: Operations::new(families),
            migrated: None,
            in_flight: families.int_gauge(
                "provisioner_csi_calls_in_flight",
                "Calls to the driver that are under way, by method.",
                &["method_name"],
            ),
        }
    }

    /// Metrics of a driver that took over from an in-tree plugin: they have the label `migrated`, `false`
    /// by default. As in external-provisioner, calls that were counted without the label are no longer
    /// served.
    #[must_use]
    pub fn with_migration(&self) -> Self {
        self.operations.migration.store(true, Ordering::Relaxed);
        Self { migrated: Some(false), ..self.clone() }
    }

    /// Metrics of calls with this value of the label `migrated`, if they have the label.
    #[must_use]
    pub fn migrated(&self, migrated: bool) -> Self {
        Self { migrated: self.migrated.map(|_| migrated), ..self.clone() }
    }

    /// A driver call has ended: `method` as in `/csi.v1.Controller/CreateVolume`, `code` as in
    /// `DeadlineExceeded`.
    pub fn observe(&self, driver: &str, method: &str, code: &str, took: Duration) {
        let histogram = match self.migrated {
            None => self.operations.plain.with_label_values(&[driver, method, code]),
            Some(migrated) => {
                let migrated = if migrated { "true" } else { "false" };
                self.operations.labelled.with_label_values(&[driver, method, code, migrated])
            }
        };
        histogram.observe(took.as_secs_f64());
    }

    /// A driver call begins; it ends when the returned value is dropped.
    #[must_use]
    pub fn begin(&self, method: &str) -> InFlight {
        let gauge = self.in_flight.with_label_values(&[method]);
        gauge.inc();
        InFlight(gauge)
    }
}

/// A call in progress. Dropping it ends the call, so that cancelled calls are not counted any more.
#[derive(Debug)]
pub struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// `csi_sidecar_operations_seconds`, whose labels depend on the driver.
#[derive(Debug, Clone)]
struct Operations {
    plain: HistogramVec,
    labelled: HistogramVec,
    /// Whether `labelled` is served instead of `plain`.
    migration: Arc<AtomicBool>,
}

impl Operations {
    fn new(families: &Families) -> Self {
        let make = |labels: &[&str]| {
            let options = prometheus::HistogramOpts::new(
                "csi_sidecar_operations_seconds",
                "[ALPHA] Container Storage Interface operation duration with gRPC error code status total",
            );
            HistogramVec::new(options.buckets(BUCKETS.to_vec()), labels)
        };
        let create = || {
            Ok(Self {
                plain: make(&["driver_name", "method_name", "grpc_status_code"])?,
                labelled: make(&["driver_name", "method_name", "grpc_status_code", "migrated"])?,
                migration: Arc::default(),
            })
        };
        families.register("histogram", create())
    }
}

impl Collector for Operations {
    fn desc(&self) -> Vec<&Desc> {
        self.plain.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if self.migration.load(Ordering::Relaxed) {
            self.labelled.collect()
        } else {
            self.plain.collect()
        }
    }
}
