//! Creates and registers families, and keeps their definitions.
//!
//! Every metric that the program serves is in [`Metrics::definitions`], with which a test compares
//! docs/metrics.md. No two families have the same name: to register a second one of a name is a bug, and panics.
//!
//! [`Metrics::definitions`]: super::Metrics::definitions

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Error, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, core::Collector,
};

/// A metric as scrapers read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The family's name, without the `_bucket`, `_sum` and `_count` of a histogram.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// The text of its HELP line.
    pub help: String,
}

/// Creates families in one registry. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Families {
    pub(super) registry: Registry,
    definitions: Arc<Mutex<Vec<Definition>>>,
}

impl Families {
    /// A counter with these labels.
    ///
    /// # Panics
    /// If the name is taken, or a name is not valid.
    pub fn counter(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register("counter", IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A counter without labels.
    pub(super) fn single_counter(&self, name: &str, help: &str) -> IntCounter {
        self.register("counter", IntCounter::new(name, help))
    }

    /// A gauge of whole numbers with these labels.
    ///
    /// # Panics
    /// As for [`Self::counter`].
    pub fn int_gauge(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register("gauge", IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A gauge of whole numbers without labels.
    pub(super) fn single_gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register("gauge", IntGauge::new(name, help))
    }

    pub(super) fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.register("gauge", GaugeVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register("histogram", HistogramVec::new(options, labels))
    }

    /// Registers a new collector; all its families are of this kind.
    #[allow(clippy::expect_used)] // a bad or repeated name is a bug of constants, and tests create all families
    pub(super) fn register<C>(&self, kind: &'static str, created: Result<C, Error>) -> C
    where
        C: Collector + Clone + 'static,
    {
        let collector = created.expect("names and labels of metrics are valid");
        let registered = self.registry.register(Box::new(collector.clone()));
        registered.expect("each metric has a name of its own");
        let definitions = collector.desc().into_iter().map(|desc| Definition {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        });
        self.definitions.lock().extend(definitions);
        collector
    }

    /// Everything registered so far, by name.
    pub(super) fn definitions(&self) -> Vec<Definition> {
        let mut all = self.definitions.lock().clone();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
