//! How many calls the driver is given at once.

use prometheus::{Error, IntCounterVec, IntGaugeVec};

use super::families::Families;

/// The families about the driver's pace, labelled by method and class.
#[derive(Debug, Clone)]
pub struct PacesMetrics {
    limit: IntGaugeVec,
    waiting: IntGaugeVec,
    signs: IntCounterVec,
}

/// The same for one method.
#[derive(Debug, Clone)]
pub struct PaceMetrics {
    families: PacesMetrics,
    method: &'static str,
}

impl PacesMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        let labels = ["method_name", "class"];
        Ok(Self {
            limit: families.int_gauge(
                "provisioner_csi_call_limit",
                "Calls to the driver that may run at once, by method and class; below --worker-threads while the driver shows overload.",
                &labels,
            )?,
            waiting: families.int_gauge(
                "provisioner_csi_calls_waiting",
                "Claims or volumes that wait for a call to the driver until others have ended, by method and class.",
                &labels,
            )?,
            signs: families.counter(
                "provisioner_csi_overload_total",
                "Calls to the driver whose end brought the limit down, by method and class.",
                &labels,
            )?,
        })
    }

    /// The metrics of calls of this method, as in `/csi.v1.Controller/CreateVolume`.
    pub fn method(&self, method: &'static str) -> PaceMetrics {
        PaceMetrics { families: self.clone(), method }
    }

    /// Forgets how classes stood.
    pub fn clear(&self) {
        self.limit.reset();
        self.waiting.reset();
    }
}

impl PaceMetrics {
    /// A call showed that the driver has too much on its hands.
    pub fn sign(&self, class: &str) {
        self.families.signs.with_label_values(&[self.method, class]).inc();
    }

    /// How a class stands now.
    #[allow(clippy::cast_possible_wrap)] // counts of things in memory
    pub fn stands(&self, class: &str, limit: usize, waiting: usize) {
        self.families.limit.with_label_values(&[self.method, class]).set(limit as i64);
        self.families.waiting.with_label_values(&[self.method, class]).set(waiting as i64);
    }
}
