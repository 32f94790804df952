//! What a provisioner answers.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::{
    failure::Failure,
    unusable_volume::{Credentials, UnusableVolume},
    volume_handle::VolumeHandle,
};
use crate::controller::dependencies::Dependency;

/// How an attempt to provision ended.
#[derive(Debug)]
pub enum Outcome {
    /// The driver has made the volume.
    Provisioned(Box<ProvisionedVolume>),
    /// The driver has made a volume that cannot be used.
    Unusable(Box<UnusableVolume>),
    /// The driver refused with a terminal error: this call has ended (safety rule 2). If no other call is
    /// open, this is next: to try again, to rest if a repeat is useless, or to give the node back.
    Refused(Failure, Next),
    /// The driver may still work on the call.
    Background(Failure),
    /// Nothing was sent to the driver.
    Unsent(Failure),
    /// There was no call: a check before it failed.
    NotPrepared(NotPrepared),
}

impl Outcome {
    /// Why the driver made no volume; `None` if it made one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Provisioned(_) | Self::Unusable(_) => None,
            Self::NotPrepared(why) => why.failure(),
            Self::Refused(failure, _) | Self::Background(failure) | Self::Unsent(failure) => {
                Some(failure)
            }
        }
    }
}

/// What to do after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Save the PersistentVolume.
    Save,
    /// Remove the volume that cannot be used.
    Discard,
    /// Try again with back-off.
    Retry,
    /// Repeat the open call soon to learn its outcome.
    Repeat,
    /// Try again after the longest interval, or when something changes.
    Rest,
    /// Remove the selected node from the claim, so that the scheduler chooses again.
    GiveNodeBack,
    /// The open call is closed by errors: report it and do nothing until the next event.
    ClosedByErrors,
    /// Do nothing until the next event.
    Drop,
}

/// A volume that a provisioner has made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProvisionedVolume {
    /// The PersistentVolume, without what the controller adds (claimRef, class, protection
    /// finalizer, provisioner).
    pub volume: PersistentVolume,
    /// The driver's ID of the volume.
    pub handle: VolumeHandle,
    /// The credentials with which the volume was made.
    pub credentials: Credentials,
}

/// Why a call was not made. The outcome of an earlier call is as unknown as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPrepared {
    /// The claim is another provisioner's: there is nothing to do or to report.
    Ignored {
        /// The kind of the source that is left to its populator.
        kind: String,
        /// The reason, for the log.
        reason: String,
    },
    /// A check failed, or something that the request needs is missing.
    Failed(Failure),
    /// The selected node cannot have the volume; the scheduler should choose again.
    Reschedule(Failure),
    /// The recorded call of an earlier process cannot be repeated as the cluster is now.
    Unrepeatable(Failure),
}

impl NotPrepared {
    /// Why the call was not made; `None` if the claim is another provisioner's.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Ignored { .. } => None,
            Self::Failed(failure) | Self::Reschedule(failure) | Self::Unrepeatable(failure) => {
                Some(failure)
            }
        }
    }

    /// Whether the next attempts fail alike, until the cluster changes.
    pub fn lasts(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.is_lasting,
            Self::Unrepeatable(_) => true,
            Self::Ignored { .. } | Self::Reschedule(_) => false,
        }
    }

    /// The objects whose change may let the next attempt succeed.
    pub fn dependencies(&self) -> &[Dependency] {
        self.failure().map(|failure| &*failure.dependencies).unwrap_or_default()
    }

    /// Whether the attempt ended, in the sense of external-provisioner, so that other claims may
    /// succeed.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Ignored { .. } | Self::Reschedule(_) | Self::Unrepeatable(_) => true,
            Self::Failed(failure) => failure.is_finished,
        }
    }
}

impl From<Failure> for NotPrepared {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Why a volume is not deleted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDeleted {
    /// The volume is still attached. Its deletion continues once it is detached.
    Attached {
        /// The node that it is attached to.
        node: String,
    },
    /// The attempt failed.
    Failed(Failure),
}
