//! Why a volume is suspected to be left at the driver (safety rule 14).

/// The reason, a label's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspectedLeak(pub(super) &'static str);

impl SuspectedLeak {
    /// The claim is deleted, and the end of its call did not become known in time.
    pub const PROTECTION_TIMEOUT: Self = Self("protection_timeout");
    /// The node whose process made the call is gone.
    pub const NODE_GONE: Self = Self("node_gone");
    /// The call of a deleted claim was closed by errors alone.
    pub const CLOSED_BY_ERRORS: Self = Self("closed_by_errors");
    /// The selected node was given back while a call for it was open.
    pub const NODE_GIVEN_BACK: Self = Self("node_given_back");
    /// The claim has another volume, or the volume may be gone with a PersistentVolume.
    pub const SUPERSEDED: Self = Self("superseded");
    /// The topology that the call requested cannot be requested any more.
    pub const TOPOLOGY: Self = Self("topology");
    /// The volume cannot be used and must not be deleted.
    pub const UNUSABLE: Self = Self("unusable");

    /// All of them.
    pub(super) const ALL: [Self; 7] = [
        Self::PROTECTION_TIMEOUT,
        Self::NODE_GONE,
        Self::CLOSED_BY_ERRORS,
        Self::NODE_GIVEN_BACK,
        Self::SUPERSEDED,
        Self::TOPOLOGY,
        Self::UNUSABLE,
    ];
}
