//! The limits on concurrent calls to the driver.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::families::Families;

/// The families of the limiters, labelled by kind of call and class.
#[derive(Debug, Clone)]
pub struct LimitersMetrics {
    limit: IntGaugeVec,
    waiting: IntGaugeVec,
    signs: IntCounterVec,
}

/// The families with one kind of call as label.
#[derive(Debug, Clone)]
pub struct LimiterMetrics {
    families: LimitersMetrics,
    call: &'static str,
}

impl LimitersMetrics {
    pub(super) fn new(families: &Families) -> Self {
        let labels = ["call", "class"];
        Self {
            limit: families.int_gauge(
                "provisioner_call_limit",
                "Calls to the driver that may run at once, by kind of call (create, delete) and class: below --worker-threads while the driver shows overload.",
                &labels,
            ),
            waiting: families.int_gauge(
                "provisioner_calls_waiting",
                "Claims or volumes whose call to the driver waits until others have ended, by kind of call and class.",
                &labels,
            ),
            signs: families.counter(
                "provisioner_overload_signs_total",
                "Calls to the driver whose end brought the limit down, by kind of call and class.",
                &labels,
            ),
        }
    }

    /// The metrics of this kind of call.
    pub fn of(&self, call: &'static str) -> LimiterMetrics {
        LimiterMetrics { families: self.clone(), call }
    }

    /// Removes the figures of all classes, which are set again before each scrape.
    pub fn clear(&self) {
        self.limit.reset();
        self.waiting.reset();
    }
}

impl LimiterMetrics {
    /// The end of a call was a sign of overload.
    pub fn sign(&self, class: &str) {
        self.families.signs.with_label_values(&[self.call, class]).inc();
    }

    /// Sets a class's limit and its number of waiting calls.
    #[allow(clippy::cast_possible_wrap)] // counts of things in memory
    pub fn set(&self, class: &str, limit: usize, waiting: usize) {
        self.families.limit.with_label_values(&[self.call, class]).set(limit as i64);
        self.families.waiting.with_label_values(&[self.call, class]).set(waiting as i64);
    }
}
