//! Triggers refreshes when volumes are created or deleted.
//!
//! Follows external-provisioner: guesses which capacity has changed, so that the scheduler knows
//! before the next poll.

use k8s_openapi::api::core::v1::NodeSelector;

use super::{publisher::Publisher, segment::Segment};

/// Takes note of created and deleted volumes. The default one does nothing.
#[derive(Clone, Default)]
pub struct Refresher(Option<Publisher>);

impl Refresher {
    pub(super) fn new(publisher: Publisher) -> Self {
        Self(Some(publisher))
    }

    /// A volume of the class was created: refreshes its segments, or the whole class if the volume
    /// is accessible from everywhere.
    pub fn volume_created(&self, affinity: Option<&NodeSelector>, class: &str) {
        match affinity {
            Some(affinity) => self.refresh_segments(affinity),
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
            self.refresh_segments(affinity);
        }
    }

    fn refresh_class(&self, class: &str) {
        if let Some(publisher) = &self.0 {
            publisher.refresh_class(class);
        }
    }

    fn refresh_segments(&self, affinity: &NodeSelector) {
        if let Some(publisher) = &self.0 {
            publisher.refresh_segments(Segment::of_affinity(affinity));
        }
    }
}
