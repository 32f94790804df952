//! Every metric's name, help, labels and buckets, in one place.
//!
//! Owns the registry and the typed handles that other rooms count with; passed in, never global.
//! Names, labels and buckets without the prefix `provisioner_` are the original's, so that
//! dashboards and alerts made for it go on working; `provisioner_` ones are our own. Promises
//! that a scrape is the Prometheus text format 0.0.4, that label values but those of `class` are
//! known words (`known`; what alerts rest on is served from the start), and that a scrape costs what the
//! work in hand costs, whatever the cluster holds. `class` is what claims and volumes say, as in the
//! original, but for claims of more than a few classes that do not exist (`classes`). Leaves serving it
//! to `http`; docs/metrics.md describes each one.

mod api;
mod capacity;
mod classes;
mod controller;
mod csi;
mod families;
mod known;
mod leader;
mod limiter;
mod node;
mod process;
mod scrapes;
mod text;
mod workqueue;

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use prometheus::Error;

use self::families::Families;
pub use self::{
    api::{ApiMetrics, MissingPermission, WaitReason},
    capacity::CapacityMetrics,
    controller::{Census, ControllerMetrics},
    csi::{CsiMetrics, InFlight, UNKNOWN_DRIVER},
    families::Definition,
    known::{Audited, Panicked, SuspectedLeak},
    leader::LeaderMetrics,
    limiter::{LimiterMetrics, LimitersMetrics},
    node::NodeMetrics,
    scrapes::ScrapeMetrics,
    workqueue::{QueueMetrics, WorkqueueMetrics},
};

/// All metrics of the process. Clones share the same registry.
#[derive(Clone)]
pub struct Metrics {
    families: Families,
    /// What brings gauges up to date before a scrape.
    refreshers: Arc<Mutex<Vec<Refresher>>>,
    /// Driver calls.
    pub csi: CsiMetrics,
    /// Claims made into volumes, and volumes deleted.
    pub controller: ControllerMetrics,
    /// The work queues, by name.
    pub workqueue: WorkqueueMetrics,
    /// How many calls the driver is given at once.
    pub limiter: LimitersMetrics,
    /// Leader election.
    pub leader: LeaderMetrics,
    /// How the nodes share claims.
    pub node: NodeMetrics,
    /// Requests to the API server, and events.
    pub api: ApiMetrics,
}

type Refresher = Box<dyn Fn() + Send + Sync>;

impl Metrics {
    /// A registry of its own with every family but those of [`Metrics::serve`] and
    /// [`Metrics::capacity`].
    ///
    /// # Errors
    /// When two families share a name, which is a bug the tests show.
    pub fn new() -> Result<Self, Error> {
        let families = Families::default();
        Ok(Self {
            refreshers: Arc::default(),
            csi: CsiMetrics::new(&families)?,
            controller: ControllerMetrics::new(&families)?,
            workqueue: WorkqueueMetrics::new(&families)?,
            limiter: LimitersMetrics::new(&families)?,
            leader: LeaderMetrics::new(&families)?,
            node: NodeMetrics::new(&families)?,
            api: ApiMetrics::new(&families)?,
            families,
        })
    }

    /// Adds what only a process that is scraped has: figures of the process itself, its version,
    /// and counts of the scrapes.
    ///
    /// # Errors
    /// As of [`Metrics::new`]; also when called twice.
    pub fn serve(&self) -> Result<ScrapeMetrics, Error> {
        process::register(&self.families)?;
        ScrapeMetrics::new(&self.families)
    }

    /// Adds what only a process that publishes storage capacity has.
    ///
    /// # Errors
    /// As of [`Metrics::new`]; also when called twice.
    pub fn capacity(&self) -> Result<CapacityMetrics, Error> {
        CapacityMetrics::new(&self.families)
    }

    /// Has `refresh` called before each scrape, for gauges that are read off what they measure
    /// rather than counted along: those cannot drift.
    pub fn before_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refreshers.lock().push(Box::new(refresh));
    }

    /// A scrape's body.
    pub fn text(&self) -> String {
        self.refreshers.lock().iter().for_each(|refresh| refresh());
        text::encode(&self.families.registry.gather())
    }

    /// What every metric is, by name, whether or not it has been used yet.
    pub fn definitions(&self) -> Vec<Definition> {
        self.families.definitions()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests;
