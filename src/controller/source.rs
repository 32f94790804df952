//! What a volume is made from, as the controller keeps it while a call is open.
//!
//! Owns [`Source`], the object of the cluster that a request asks to copy together with the
//! driver's handle of it, and [`PinnedSource`], the source of an earlier call with how it is known.
//! Promises that both fit in the record of an open call. Leaves finding sources to the
//! provisioner and guarding them to `protection`.

use serde::{Deserialize, Serialize};

/// An object that a volume is made from, found and checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Snapshot or claim.
    pub kind: SourceKind,
    /// The object's namespace: the claim's own, or another that grants access.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID: a namesake that came later is another source.
    pub uid: String,
    /// What the driver knows it by: the snapshot's handle, or that of the claim's volume.
    pub handle: String,
}

/// What kind of object a volume is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceKind {
    /// A VolumeSnapshot that is restored.
    Snapshot,
    /// A PersistentVolumeClaim whose volume is cloned.
    Claim,
}

/// What the open call of a claim asked to make the volume from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinnedSource {
    /// This process asked with it, after all checks.
    Asked(Source),
    /// The record on the claim says so, which the claim's user can edit: a handle from there may
    /// be anybody's.
    Recorded(Source),
    /// Either of them, but the claim is being deleted or gone. Such a claim can't be used any more,
    /// so nobody gets the volume: the call is followed to its end whatever has become of source
    /// and permission, and even a forged handle gives nothing away.
    Unclaimed(Source),
}

impl PinnedSource {
    /// The source, however it is known.
    pub fn source(&self) -> &Source {
        match self {
            Self::Asked(source) | Self::Recorded(source) | Self::Unclaimed(source) => source,
        }
    }

    /// The same once the claim is on its way out.
    #[must_use]
    pub fn unclaimed(self) -> Self {
        match self {
            Self::Asked(source) | Self::Recorded(source) | Self::Unclaimed(source) => {
                Self::Unclaimed(source)
            }
        }
    }
}
