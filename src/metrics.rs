//! The names, help texts, labels and buckets of all metrics.
//!
//! The registry and its typed handles are passed as values, never global. Metrics without the prefix
//! `provisioner_` have the names, labels and buckets of external-provisioner, so that its dashboards and
//! alerts keep working; those with the prefix are our own. A scrape is in the Prometheus text format
//! 0.0.4. Label values other than those of `class` are from fixed sets (our own counters that
//! alerts use are served from the start). The cost of a scrape depends on the work in progress, not on the size of
//! the cluster. `class` is the class that claims and volumes name, as in external-provisioner, but the
//! number of unknown classes is limited (`classes`). docs/metrics.md describes each metric.

mod api;
mod capacity;
mod classes;
mod controller;
mod csi;
mod families;
mod leader;
mod process;
mod scrapes;
mod suspected_leak;
mod workqueue;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::TextEncoder;

pub use self::{
    api::ApiMetrics,
    capacity::CapacityMetrics,
    controller::{Census, ControllerMetrics},
    csi::{CsiMetrics, InFlight, UNKNOWN_DRIVER},
    families::{Definition, Families},
    leader::LeaderMetrics,
    scrapes::ScrapeMetrics,
    suspected_leak::SuspectedLeak,
    workqueue::{QueueMetrics, WorkqueueMetrics},
};

/// All metrics of the process. Clones share the same registry.
#[derive(Clone)]
pub struct Metrics {
    families: Families,
    /// Functions that update gauges before a scrape.
    refreshers: Arc<Mutex<Vec<Refresher>>>,
    /// Driver calls.
    pub csi: CsiMetrics,
    /// Provisioned and deleted volumes.
    pub controller: ControllerMetrics,
    /// The work queues, by name.
    pub workqueue: WorkqueueMetrics,
    /// Leader election.
    pub leader: LeaderMetrics,
    /// Requests to the API server, and events.
    pub api: ApiMetrics,
}

type Refresher = Box<dyn Fn() + Send + Sync>;

impl Metrics {
    /// A new registry with every family but those of [`Metrics::serve`] and [`Metrics::capacity`].
    pub fn new() -> Self {
        let families = Families::default();
        Self {
            refreshers: Arc::default(),
            csi: CsiMetrics::new(&families),
            controller: ControllerMetrics::new(&families),
            workqueue: WorkqueueMetrics::new(&families),
            leader: LeaderMetrics::new(&families),
            api: ApiMetrics::new(&families),
            families,
        }
    }

    /// Adds the metrics of a process that is scraped: figures of the process itself, its version and
    /// driver, and counts of scrapes.
    ///
    /// # Panics
    /// If called twice.
    pub fn serve(&self, driver: &str) -> ScrapeMetrics {
        process::register(self, driver);
        ScrapeMetrics::new(&self.families)
    }

    /// Adds the metrics of a process that publishes storage capacity.
    ///
    /// # Panics
    /// If called twice.
    pub fn capacity(&self) -> CapacityMetrics {
        CapacityMetrics::new(&self.families)
    }

    /// Where another program adds its own.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// Registers `refresh` to be called before each scrape, for gauges that are computed from what they
    /// measure instead of being counted, so that they cannot drift.
    pub fn before_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refreshers.lock().push(Box::new(refresh));
    }

    /// The body of a scrape.
    pub fn text(&self) -> String {
        self.refreshers.lock().iter().for_each(|refresh| refresh());
        // Cannot fail: the registry leaves out families without metrics.
        let families = self.families.registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    /// All metrics by name, also those without values yet.
    pub fn definitions(&self) -> Vec<Definition> {
        self.families.definitions()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
