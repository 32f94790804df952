//! Defects on purpose, of which each must be found by the simulation (`tests/seeds.rs`).
//!
//! Owns their list and the choice of one. Without the feature `mutations`, which no shipped build
//! has, [`is_on`] is the constant `false`, and what asks it compiles to the program as it is.

/// The driver's name in the simulation, for a defect that needs one.
pub const SIMULATED_DRIVER: &str = "disk.example.com";

/// A defect of the program, each a rule of its own that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A claim is marked only once its first call has ended.
    MarkedLate,
    /// A status made on this side of the connection counts as the driver's word.
    LocalStatusIsFinal,
    /// A final answer closes a call that was open before it.
    FinalClosesOpenCall,
    /// A PersistentVolume whose name is taken counts as saved.
    ConflictIsSuccess,
    /// A volume whose PersistentVolume's name is taken is removed.
    ConflictIsDelete,
    /// A volume that cannot be used is removed without looking whose it is.
    DiscardUnseen,
    /// Creating and deleting one volume exclude each other no longer.
    SeparateKeys,
    /// With its PersistentVolume it is forgotten that the claim had one.
    DoneForgotten,
    /// That the claim had a PersistentVolume is never forgotten.
    DoneForEver,
    /// PersistentVolumes are listed before the claims, and not compared with them.
    VolumesListedFirst,
    /// A claim's PersistentVolume is known by its name alone.
    KnownByName,
    /// What the driver has deleted it is asked to delete again.
    DeleteTwice,
    /// A volume is deleted on an old view.
    DeleteUnseen,
    /// A PersistentVolume is deleted by its name alone.
    DeleteWithoutUid,
    /// A selected node is given back though an earlier call is open.
    NodeGivenBackOpen,
    /// What another attacher has attached may be deleted.
    AttachmentsByAttacher,
    /// Pending claims of other drivers hold no source.
    OthersHoldNothing,
    /// The Lease is released while calls are in flight.
    ReleaseInFlight,
    /// The source that a record names is asked for.
    RecordedSourceBelieved,
    /// The volume's name that a record holds is asked for.
    RecordedNameBelieved,
    /// A record is followed with a class that names another provisioner.
    ForeignClassAccepted,
    /// A record is followed on a bound claim.
    RecordOnBoundClaim,
    /// A call of which nothing was sent counts as open.
    UnsentIsOpen,
    /// A new leader deletes by the attachments that it saw as a standby.
    StandbysAttachments,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::MarkedLate,
        Self::LocalStatusIsFinal,
        Self::FinalClosesOpenCall,
        Self::ConflictIsSuccess,
        Self::ConflictIsDelete,
        Self::DiscardUnseen,
        Self::SeparateKeys,
        Self::DoneForgotten,
        Self::DoneForEver,
        Self::VolumesListedFirst,
        Self::KnownByName,
        Self::DeleteTwice,
        Self::DeleteUnseen,
        Self::DeleteWithoutUid,
        Self::NodeGivenBackOpen,
        Self::AttachmentsByAttacher,
        Self::OthersHoldNothing,
        Self::ReleaseInFlight,
        Self::RecordedSourceBelieved,
        Self::RecordedNameBelieved,
        Self::ForeignClassAccepted,
        Self::RecordOnBoundClaim,
        Self::UnsentIsOpen,
        Self::StandbysAttachments,
    ];
}

#[cfg(feature = "mutations")]
mod chosen {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        /// One a thread: a simulation runs on one, and several run at once.
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Chooses what is broken on this thread.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.set(mutation);
    }

    /// Whether this is broken now.
    pub fn is_on(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use chosen::{choose, is_on};

/// Whether this is broken now: nothing is.
#[cfg(not(feature = "mutations"))]
pub const fn is_on(_: Mutation) -> bool {
    false
}
