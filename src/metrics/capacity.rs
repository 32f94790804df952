//! CSIStorageCapacity objects.

use prometheus::IntGauge;

use super::families::Families;

/// The families `csistoragecapacities_*`.
#[derive(Debug, Clone)]
pub struct CapacityMetrics {
    goal: IntGauge,
    current: IntGauge,
    obsolete: IntGauge,
}

impl CapacityMetrics {
    pub(super) fn new(families: &Families) -> Self {
        Self {
            goal: families.single_gauge(
                "csistoragecapacities_desired_goal",
                "[ALPHA] Number of CSIStorageCapacity objects that are supposed to be managed automatically.",
            ),
            current: families.single_gauge(
                "csistoragecapacities_desired_current",
                "[ALPHA] Number of CSIStorageCapacity objects that exist and are supposed to be managed automatically.",
            ),
            obsolete: families.single_gauge(
                "csistoragecapacities_obsolete",
                "[ALPHA] Number of CSIStorageCapacity objects that exist and will be deleted automatically. Objects that exist and may need an update are not considered obsolete and therefore not included in this value.",
            ),
        }
    }

    /// Sets how many objects should exist, how many of these exist, and how many must be deleted.
    #[allow(clippy::cast_possible_wrap)] // counts of things in memory
    pub fn objects(&self, wanted: usize, published: usize, superfluous: usize) {
        self.goal.set(wanted as i64);
        self.current.set(published as i64);
        self.obsolete.set(superfluous as i64);
    }
}
