//! What makes a volume that the driver made unusable.
//!
//! Owns the checks of the driver's answer and their texts (reference 3.11). Pure. Leaves removing
//! such a volume to the controller, which knows whether that is safe.

use std::fmt;

use super::request::Prepared;
use crate::{
    controller::{
        leftover::{Credentials, Leftover},
        provisioner::{Failure, Order},
    },
    csi::proto::Volume,
    kube_api::quantity::Quantity,
};

/// What is wrong with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Defect {
    /// It is smaller than the claim asks for.
    TooSmall {
        /// Its size in bytes.
        capacity: i64,
        /// The size asked for: in bytes, or as the claim says it where that does not fit.
        requested: String,
    },
    /// It should be made from a source, and the driver does not say that it is.
    SourceMissing,
}

/// What is wrong with `volume`, which the driver made for `order`.
pub(super) fn find(order: &Order, prepared: &Prepared, volume: &Volume) -> Option<Defect> {
    let capacity = volume.capacity_bytes;
    // Zero means that the driver does not know (CSI spec, CreateVolume).
    if capacity != 0 && Quantity::from_bytes(capacity) < prepared.size {
        let requested = match prepared.size.checked_value() {
            Some(bytes) => bytes.to_string(),
            None => prepared.size.to_string(),
        };
        return Some(Defect::TooSmall { capacity, requested });
    }
    let lacks_source = order.claim.spec.data_source.is_some() && volume.content_source.is_none();
    lacks_source.then_some(Defect::SourceMissing)
}

// === impl Defect ===

impl Defect {
    /// What must be known to remove the volume, made under this name and with these credentials.
    pub(super) fn leftover(
        &self,
        volume_name: &str,
        volume: &Volume,
        credentials: Credentials,
    ) -> Leftover {
        Leftover {
            handle: volume.volume_id.clone(),
            credentials,
            defect: Failure::new(self),
            orphaned: Failure::new(format!(
                "{self}. {} of volume {volume_name} failed, volume is orphaned",
                self.cleanup()
            )),
        }
    }

    /// The original's word for removing it, which begins small in one of the two texts.
    fn cleanup(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "Cleanup",
            Self::SourceMissing => "cleanup",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { capacity, requested } => {
                write!(
                    f,
                    "created volume capacity {capacity} less than requested capacity {requested}"
                )
            }
            Self::SourceMissing => f.write_str("volume content source missing"),
        }
    }
}
