//! Creates and registers families, and keeps their definitions.
//!
//! Every metric that the program serves is in [`Metrics::definitions`], with which a test compares
//! docs/metrics.md. No two families have the same name.
//!
//! [`Metrics::definitions`]: super::Metrics::definitions

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Error, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::Collector,
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
pub(super) struct Families {
    pub(super) registry: Registry,
    definitions: Arc<Mutex<Vec<Definition>>>,
}

impl Families {
    pub(super) fn counter(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, Error> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.register("counter", &family)?;
        Ok(family)
    }

    pub(super) fn int_gauge(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, Error> {
        let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.register("gauge", &family)?;
        Ok(family)
    }

    pub(super) fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, Error> {
        let family = GaugeVec::new(Opts::new(name, help), labels)?;
        self.register("gauge", &family)?;
        Ok(family)
    }

    pub(super) fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let family =
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.register("histogram", &family)?;
        Ok(family)
    }

    /// Registers a collector; all its families are of this kind.
    pub(super) fn register(
        &self,
        kind: &'static str,
        collector: &(impl Collector + Clone + 'static),
    ) -> Result<(), Error> {
        self.registry.register(Box::new(collector.clone()))?;
        let definitions = collector.desc().into_iter().map(|desc| Definition {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        });
        self.definitions.lock().extend(definitions);
        Ok(())
    }

    /// Everything registered so far, by name.
    pub(super) fn definitions(&self) -> Vec<Definition> {
        let mut all = self.definitions.lock().clone();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
