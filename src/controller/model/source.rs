//! What a volume is made from, as the controller keeps it while a call is open.
//!
//! Owns [`Source`], the object of the cluster that a request asks to copy together with the
//! driver's handle of it. It lives in the memory of the process that found and checked the object:
//! no record of a call holds one. Leaves finding sources to the provisioner and guarding them to
//! `protection`.

pub use crate::source_protection::SourceKind;

/// An object that a volume is made from, found and checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
