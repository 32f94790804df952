//! Deliberate defects, each of which the simulation must find.

use std::cell::Cell;

use crate::{
    controller::{
        claims::record_status::RECORD,
        model::{
            record::Record,
            source::{NamedSource, Source, SourceKind},
        },
        provisioner::ProvisionRequest,
    },
    kube::objects::View as _,
};

pub use Mutation::*;

/// The driver's name in the simulation, for a defect that needs one.
pub const SIMULATED_DRIVER: &str = "disk.example.com";

/// A deliberate defect: one rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// A call is recorded on its claim only after it has ended.
    MarkedLate,
    /// A status that the client made up counts as the driver's answer.
    LocalStatusIsFinal,
    /// A terminal error closes a call that was open before.
    FinalClosesOpenCall,
    /// A PersistentVolume counts as saved if its name is taken.
    ConflictIsSuccess,
    /// A volume is deleted if its PersistentVolume's name is taken.
    ConflictIsDelete,
    /// An unusable volume is deleted without checking whether it belongs to a PersistentVolume.
    DiscardUnseen,
    /// The same volume can be created and deleted at once.
    SeparateKeys,
    /// That a claim had a PersistentVolume is forgotten together with the PersistentVolume.
    DoneForgotten,
    /// That a claim had a PersistentVolume is never forgotten.
    DoneForEver,
    /// PersistentVolumes are listed before the claims, and not compared with them.
    VolumesListedFirst,
    /// A claim's PersistentVolume is recognised by its name alone.
    KnownByName,
    /// The driver is called again for a volume that it has deleted.
    DeleteTwice,
    /// A volume is deleted without a live read.
    DeleteUnseen,
    /// A PersistentVolume is deleted by name, without its UID as precondition.
    DeleteWithoutUid,
    /// The selected node is removed although an earlier call is open.
    NodeGivenBackOpen,
    /// A volume that another attacher has attached may be deleted.
    AttachmentsByAttacher,
    /// Pending claims of other drivers do not protect their sources.
    OthersHoldNothing,
    /// The Lease is released while calls are in flight.
    ReleaseInFlight,
    /// A request uses the source in a record.
    RecordedSourceBelieved,
    /// A request uses the volume name in a record.
    RecordedNameBelieved,
    /// A record is followed with a class that names another provisioner.
    ForeignClassAccepted,
    /// A record is followed on a bound claim.
    RecordOnBoundClaim,
    /// A call of which nothing was sent counts as open.
    UnsentIsOpen,
    /// Volumes are deleted before VolumeAttachments are listed.
    AttachmentsUnlisted,
    /// Shadow mode works as the sidecar does.
    ShadowWorks,
}

thread_local! {
    /// Per thread, as several simulations run at once, each on one thread.
    static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Sets the mutation of this thread.
pub fn choose(mutation: Option<Mutation>) {
    CHOSEN.set(mutation);
}

/// Whether this mutation is on.
pub fn is_on(mutation: Mutation) -> bool {
    CHOSEN.get() == Some(mutation)
}

/// Takes the volume's name and source from the record, which must not be trusted for them.
pub(crate) fn believe(request: &mut ProvisionRequest, record: &Record) {
    if is_on(Mutation::RecordedNameBelieved) && !record.volume.is_empty() {
        request.volume_name = Ok(record.volume.clone());
    }
    if is_on(Mutation::RecordedSourceBelieved) && !record.volume.is_empty() {
        request.source = source(request);
    }
}

fn source(request: &ProvisionRequest) -> Option<Source> {
    let text = request.claim.annotation(RECORD)?;
    let written: serde_json::Value = serde_json::from_str(text).ok()?;
    let source = written.get("source")?;
    let text = |field| source.get(field)?.as_str().map(str::to_owned);
    let kind = match text("kind")?.as_str() {
        "snapshot" => SourceKind::Snapshot,
        _ => SourceKind::Claim,
    };
    let named = NamedSource { kind, namespace: text("namespace")?, name: text("name")? };
    Some(Source { named, uid: text("uid")?, handle: text("handle")? })
}
