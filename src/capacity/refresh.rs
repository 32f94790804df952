//! When room may have been taken or given back: after volumes were made or deleted.
//!
//! Owns the original's rule (reference 6.4): a guess at what has changed, so that the scheduler
//! hears of it before the next poll.

use k8s_openapi::api::core::v1::NodeSelector;

use super::{publisher::Publisher, segment::Segment};

/// Is told what became of volumes. The default one tells nobody.
#[derive(Clone, Default)]
pub struct Refresher(Option<Publisher>);

impl Refresher {
    pub(super) fn new(publisher: Publisher) -> Self {
        Self(Some(publisher))
    }

    /// A volume of the class was made: its segments are asked about, or the whole class where it
    /// is accessible from everywhere.
    pub fn made(&self, affinity: Option<&NodeSelector>, class: &str) {
        match affinity {
            Some(affinity) => self.segments(affinity),
            None => self.class(class),
        }
    }

    /// A volume of the class could not be made: perhaps for want of room.
    pub fn failed(&self, class: &str) {
        self.class(class);
    }

    /// A volume was deleted. Where nobody knows its segments, the poll finds out.
    pub fn deleted(&self, affinity: Option<&NodeSelector>) {
        if let Some(affinity) = affinity {
            self.segments(affinity);
        }
    }

    fn class(&self, class: &str) {
        if let Some(publisher) = &self.0 {
            publisher.refresh_class(class);
        }
    }

    fn segments(&self, affinity: &NodeSelector) {
        if let Some(publisher) = &self.0 {
            publisher.refresh_segments(Segment::of_affinity(affinity));
        }
    }
}
