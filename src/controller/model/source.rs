//! The source of a volume: a snapshot or a claim.
//!
//! The controller keeps the source of an open call in memory. Records of calls do not contain it.
//! The provisioner finds and checks sources, and [`source_protection`](crate::source_protection)
//! keeps them.

pub use crate::source_protection::{NamedSource, SourceKind};

/// An object that a volume is made from, found and checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The object by name. Its namespace is that of the claim, or another one that grants access.
    pub named: NamedSource,
    /// The object's UID, as a later object of the same name is another source.
    pub uid: String,
    /// The driver's ID: the handle of the snapshot, or that of the claim's volume.
    pub handle: String,
}
