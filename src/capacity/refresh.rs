//! Triggers refreshes when volumes are created or deleted.
//!
//! Follows external-provisioner: guesses which capacity has changed, so that the scheduler knows
//! before the next poll.

use k8s_openapi::api::core::v1::NodeSelector;

use super::{publisher::Publisher, segment::Segment};

impl Publisher {
    /// A volume of the class was created: refreshes its segments, or the whole class if the volume
    /// is accessible from everywhere.
    pub fn volume_created(&self, affinity: Option<&NodeSelector>, class: &str) {
        match affinity {
            Some(affinity) => self.refresh_segments(Segment::of_affinity(affinity)),
            None => self.refresh_class(class),
        }
    }

    /// A volume of the class could not be created, perhaps for lack of space.
    pub fn volume_failed(&self, class: &str) {
        self.refresh_class(class);
    }

    /// A volume was deleted. Without an affinity its segments are unknown, and the next poll
    /// updates them.
    pub fn volume_deleted(&self, affinity: Option<&NodeSelector>) {
        if let Some(affinity) = affinity {
            self.refresh_segments(Segment::of_affinity(affinity));
        }
    }
}
