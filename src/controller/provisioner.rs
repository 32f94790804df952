//! What the controller asks of a storage back end, and what it may answer.
//!
//! Owns the [`Provisioner`] trait and its outcomes. Promises that every answer is a variant the
//! controller decides on, never a string it must read. Leaves the driver's protocol to the
//! implementation (`csi_provisioner`).

use std::{borrow::Cow, fmt, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::PersistentVolume;

use super::{
    dependencies::index::Dependency,
    model::{
        source::Source,
        topology::Pinned,
        unusable_volume::{Credentials, UnusableVolume},
    },
};
use crate::kube::objects::{Claim, StorageClass, Volume};

/// Makes volumes for claims and removes them again.
pub trait Provisioner: Send + Sync + 'static {
    /// What the deletion of a volume needs beside the volume.
    type Removal: Send;
    /// A request for a volume that only has to be sent.
    type Request: Send;

    /// The driver's name: classes and claims name it.
    fn name(&self) -> &str;

    /// The in-tree plugin whose volumes the driver took over, where it did.
    fn in_tree_name(&self) -> Option<&str>;

    /// The name of the PersistentVolume for the claim with this UID, the same for ever.
    ///
    /// # Errors
    /// When the UID cannot make a name; the text tells why.
    fn volume_name(&self, claim_uid: &str) -> Result<String, Failure>;

    /// DependencyIndex until what the provisioner itself watches, and creating volumes needs, has been listed
    /// once.
    fn ready_to_create(&self) -> impl Future<Output = ()> + Send;

    /// The same of what deleting volumes needs, listed since [`Provisioner::lead`].
    fn ready_to_delete(&self) -> impl Future<Output = ()> + Send;

    /// This process leads from now on, and another one may have until now: what deletions rest on is
    /// listed anew.
    fn lead(&self) {}

    /// The one node that this process provisions for, where others do for the others.
    fn node(&self) -> Option<&str>;

    /// Whether it is for this process to provision for the claim, beyond what the claim says. Where
    /// several might, this may write the claim to settle it. Nobody is asked again while a call
    /// is open: it is for whoever made it.
    fn turn(&self, order: &ProvisionRequest) -> impl Future<Output = Turn> + Send;

    /// How long this process still waits before it does for the claim with this UID what any process
    /// may do: random, so that not all do it at once.
    fn wait_among_peers(&self, _claim_uid: &str) -> Duration {
        Duration::ZERO
    }

    /// The claim with this UID is no longer provisioned for, so nothing need be remembered of it.
    fn forget(&self, claim_uid: &str);

    /// The names of the secrets that the order's request needs, in a fixed order; they tell requests
    /// apart ([`super::claims::call_record::Record`]).
    fn secret_names(&self, _order: &ProvisionRequest) -> Vec<String> {
        Vec::new()
    }

    /// Checks the order, reads what its request needs, and makes the request. Nothing is sent.
    /// What must stay the same while a call for it is open is written into the order, and
    /// followed where it stands there already.
    ///
    /// # Errors
    /// The driver can't be asked, or needn't be.
    fn prepare(
        &self,
        order: &mut ProvisionRequest,
    ) -> impl Future<Output = Result<Self::Request, NotSent>> + Send;

    /// Whether the request could be sent when it was made: the driver was connected.
    fn can_send(&self, _request: &Self::Request) -> bool {
        true
    }

    /// Asks the driver for the claim's volume. Asking again is how one learns how an earlier
    /// call ended; the request is the same then.
    fn create(
        &self,
        order: &ProvisionRequest,
        request: Self::Request,
    ) -> impl Future<Output = Outcome> + Send;

    /// The claim with this UID needs nothing any more of what its volume is made from: the volume
    /// is saved, or the claim is gone and no call for it is open. Told at least once, perhaps for
    /// claims that were never asked for; called with locks held, so nothing may be waited for.
    fn closed(&self, _claim_uid: &str) {}

    /// No call for the claim with this UID is open, though it may be asked for again: what its volume is
    /// made from is held by its name alone meanwhile.
    fn call_ended(&self, _claim_uid: &str) {}

    /// Removes a volume that cannot be used. Only the caller knows whether that is safe, which is asked
    /// again before each further try.
    fn discard(
        &self,
        leftover: &UnusableVolume,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The driver's id of the volume that a PersistentVolume stands for, where it is one of this
    /// driver's; in-tree volumes that the driver took over are.
    fn handle<'a>(&self, volume: &'a Volume) -> Option<Cow<'a, str>>;

    /// The part of one of the driver's ids by which its volumes are told apart: two ids that are
    /// known to name the same volume have the same.
    fn key<'a>(&self, handle: &'a str) -> &'a str {
        handle
    }

    /// Whether this process is the one that should delete the volume.
    fn should_delete(&self, volume: &Volume) -> bool;

    /// Finds out whether the driver can be asked to delete the volume, and reads what that needs.
    /// This may take its time: the volume is looked at again before [`Provisioner::delete`].
    fn prepare_delete(
        &self,
        volume: &Volume,
    ) -> impl Future<Output = Result<Self::Removal, NotDeleted>> + Send;

    /// Deletes the volume, as it was last seen, at the driver, at once.
    fn delete(
        &self,
        volume: &Volume,
        removal: Self::Removal,
    ) -> impl Future<Output = Result<(), NotDeleted>> + Send;
}

/// One claim to provision for.
#[derive(Debug, Clone)]
pub struct ProvisionRequest {
    /// The claim as last seen.
    pub claim: Arc<Claim>,
    /// Its class.
    pub class: Arc<StorageClass>,
    /// The PersistentVolume's name, from [`Provisioner::volume_name`], or why there is none: the
    /// provisioner tells that in its place among the checks.
    pub volume_name: Result<String, Failure>,
    /// The node the scheduler chose, where it did.
    pub selected_node: Option<String>,
    /// Whether the claim is gone, or being deleted: nobody is to get the volume, and the call is made
    /// to learn how an earlier one ended.
    pub withdrawn: bool,
    /// What this process asked to make the volume from in the open call; none where it has none
    /// open, or where the volume is made empty.
    pub source: Option<Source>,
    /// Where the volume is asked to be: what an open call asked for, else none until
    /// [`Provisioner::prepare`] says it, for drivers that know of places.
    pub topology: Option<Arc<Pinned>>,
}

/// Whose turn it is to provision for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// This process's.
    Ours,
    /// Another's, or it shows in the claim's next event.
    Others,
    /// To be asked again after this time, or when the claim changes.
    Later(Duration),
    /// Not this process's for now, for want of what may come back: to be asked again with back-off.
    Unable,
    /// It can't be settled.
    Failed(Failure),
}

/// Why the driver was not asked. Whether an earlier call runs is as unknown as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// Somebody else's claim: nothing to do and nothing to tell.
    Ignored {
        /// Why, for the log.
        reason: String,
    },
    /// A check failed, or something that the request needs is not there.
    Failed(Failure),
    /// The selected node can't have the volume; the scheduler should choose again.
    Reschedule(Failure),
    /// What an earlier process recorded of its call can't be asked for as the cluster is now.
    Unrepeatable(Failure),
}

impl NotSent {
    /// The same; a failed check ended the attempt, in the original's sense.
    #[must_use]
    pub fn finished(self) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(failure.finished()),
            other => other,
        }
    }

    /// The same; a failed check fails again until the claim, its class or what is awaited changes.
    #[must_use]
    pub fn lasting(self) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(failure.lasting()),
            other => other,
        }
    }

    /// Objects whose change may let the next attempt succeed.
    pub fn awaited(&self) -> &[Dependency] {
        match self {
            Self::Ignored { .. } => &[],
            Self::Failed(failure) | Self::Reschedule(failure) | Self::Unrepeatable(failure) => {
                failure.awaited()
            }
        }
    }

    /// Whether the attempt ended by it, in the original's sense: other claims may stand better now.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Ignored { .. } | Self::Reschedule(_) | Self::Unrepeatable(_) => true,
            Self::Failed(failure) => failure.is_finished(),
        }
    }
}

impl From<Failure> for NotSent {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// How a call for a volume ended.
#[derive(Debug)]
pub enum Outcome {
    /// The volume is there.
    Provisioned(Box<ProvisionedVolume>),
    /// A volume is there that cannot be used.
    Unusable(Box<UnusableVolume>),
    /// The driver refused: this call is over (safety rule 2).
    Final(Failure),
    /// The request can't be met as it stands; asking again soon is of no use.
    Infeasible(Failure),
    /// A call may still be running at the driver.
    Background(Failure),
    /// Nothing was sent to the driver.
    Unsent(Failure),
    /// The selected node can't have the volume; the scheduler should choose again.
    Reschedule(Failure),
}

impl Outcome {
    /// Objects whose change may let the next attempt succeed.
    pub fn awaited(&self) -> &[Dependency] {
        match self {
            Self::Provisioned(_) | Self::Unusable(_) => &[],
            Self::Final(failure)
            | Self::Infeasible(failure)
            | Self::Background(failure)
            | Self::Unsent(failure)
            | Self::Reschedule(failure) => &failure.awaited,
        }
    }

    /// The same; a refusal may be put right by a change of one of these objects.
    #[must_use]
    pub fn awaiting(self, objects: &[Dependency]) -> Self {
        let awaiting = |failure: Failure| failure.awaiting(objects.iter().cloned());
        match self {
            Self::Final(failure) => Self::Final(awaiting(failure)),
            Self::Infeasible(failure) => Self::Infeasible(awaiting(failure)),
            other => other,
        }
    }

    /// What the attempt says of the driver's load.
    pub fn strain(&self) -> Congestion {
        match self {
            Self::Provisioned(_) | Self::Unusable(_) => Congestion::Bearable,
            Self::Final(failure)
            | Self::Infeasible(failure)
            | Self::Background(failure)
            | Self::Unsent(failure)
            | Self::Reschedule(failure) => failure.strain,
        }
    }
}

/// What the end of an attempt says of the driver's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Congestion {
    /// Nothing: no call was made.
    #[default]
    Unknown,
    /// The driver had the time to decide.
    Bearable,
    /// The driver already works on this volume, or on as much as it can.
    Locked,
    /// The driver did not answer in time, or could not.
    Overload,
}

/// What a provisioner made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProvisionedVolume {
    /// The PersistentVolume; it still lacks what the controller adds (claimRef, class, protection
    /// finalizer, who provisioned it).
    pub volume: PersistentVolume,
    /// The driver's id of the volume.
    pub handle: String,
    /// The credentials with which it was made.
    pub credentials: Credentials,
}

/// Why something failed, in the words its user reads in an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    /// Codes that never close an open call (safety rule 3): the driver says that the volume is
    /// there under other terms, or would not say at all.
    inconclusive: bool,
    strain: Congestion,
    kind: &'static str,
    finished: bool,
    lasting: bool,
    awaited: Vec<Dependency>,
}

/// The most that is kept of what a driver or a server says, in bytes.
const MAX_MESSAGE: usize = 8 << 10;

/// The message, cut where it is longer than is kept.
fn bounded(mut message: String) -> String {
    let length = message.len();
    if length > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        return format!("{message}... ({length} bytes)");
    }
    message
}

impl Failure {
    /// A failure told in these words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            message: bounded(message.to_string()),
            inconclusive: false,
            strain: Congestion::Unknown,
            kind: "",
            finished: false,
            lasting: false,
            awaited: Vec::new(),
        }
    }

    /// The same, told with `prefix` before it.
    #[must_use]
    pub fn prefixed(self, prefix: &str) -> Self {
        Self { message: format!("{prefix}{}", self.message), ..self }
    }

    /// Objects whose change may end it.
    pub fn awaited(&self) -> &[Dependency] {
        &self.awaited
    }

    /// A failure that says nothing about whether an earlier call left a volume behind.
    #[must_use]
    pub fn inconclusive(self) -> Self {
        Self { inconclusive: true, ..self }
    }

    /// A failure that a change of these objects may end: it is tried again as soon as one is seen.
    #[must_use]
    pub fn awaiting(self, awaited: impl IntoIterator<Item = Dependency>) -> Self {
        Self { awaited: awaited.into_iter().collect(), ..self }
    }

    /// A failure to read this object. Where there is none, it lasts until there is one.
    #[must_use]
    pub fn unread(self, object: Dependency, is_missing: bool) -> Self {
        if is_missing {
            self.awaiting([object.missing()]).lasting()
        } else {
            self.awaiting([object])
        }
    }

    /// The same after a call whose end says this of the driver's load.
    #[must_use]
    pub fn with_strain(self, strain: Congestion) -> Self {
        Self { strain, ..self }
    }

    /// The same, of a kind that is told from others by this word.
    #[must_use]
    pub fn of_kind(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// A failure that ends the attempt, in the original's sense: what was asked for is refused,
    /// not just out of reach for now.
    #[must_use]
    pub fn finished(self) -> Self {
        Self { finished: true, ..self }
    }

    /// Whether the attempt ended by it, in the original's sense.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// A failure that nothing ends but a change of the claim, of its class or of what is awaited:
    /// another attempt before that fails in the same way.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { lasting: true, ..self }
    }

    /// Whether another attempt fails in the same way until the claim, its class or what is awaited
    /// changes.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// What the end of the call says of the driver's load.
    pub fn strain(&self) -> Congestion {
        self.strain
    }

    /// The word for failures of this kind; empty where there is none.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether the failure says nothing about an earlier call.
    pub fn is_inconclusive(&self) -> bool {
        self.inconclusive
    }
}

/// Why a volume is not deleted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDeleted {
    /// The volume is still attached; it goes on when the attachment does.
    Attached {
        /// The node it is attached to.
        node: String,
    },
    /// The attempt failed.
    Failed(Failure),
}

impl NotDeleted {
    /// What the attempt says of the driver's load.
    pub fn strain(&self) -> Congestion {
        match self {
            Self::Attached { .. } => Congestion::Unknown,
            Self::Failed(failure) => failure.strain,
        }
    }
}
