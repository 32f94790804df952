//! CSIStorageCapacity objects.

use prometheus::{Error, IntGauge};

use super::families::Families;

/// The families `csistoragecapacities_*`.
#[derive(Debug, Clone)]
pub struct CapacityMetrics {
    goal: IntGauge,
    current: IntGauge,
    obsolete: IntGauge,
}

impl CapacityMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            families.register("gauge", &gauge)?;
            Ok::<_, Error>(gauge)
        };
        Ok(Self {
            goal: gauge(
                "csistoragecapacities_desired_goal",
                "[ALPHA] Number of CSIStorageCapacity objects that are supposed to be managed automatically.",
            )?,
            current: gauge(
                "csistoragecapacities_desired_current",
                "[ALPHA] Number of CSIStorageCapacity objects that exist and are supposed to be managed automatically.",
            )?,
            obsolete: gauge(
                "csistoragecapacities_obsolete",
                "[ALPHA] Number of CSIStorageCapacity objects that exist and will be deleted automatically. Objects that exist and may need an update are not considered obsolete and therefore not included in this value.",
            )?,
        })
    }

    /// Sets how many objects should exist, how many of these exist, and how many must be deleted.
    #[allow(clippy::cast_possible_wrap)] // counts of things in memory
    pub fn objects(&self, wanted: usize, published: usize, superfluous: usize) {
        self.goal.set(wanted as i64);
        self.current.set(published as i64);
        self.obsolete.set(superfluous as i64);
    }
}
