//! The [`Provisioner`] trait: what the controller requires of a storage back end.
//!
//! Each answer of a provisioner is a variant on which the controller decides, never a text that it
//! must parse. The implementation for CSI drivers is [`csi_provisioner`](crate::csi_provisioner).

use std::{borrow::Cow, future::Future, time::Duration};

pub use super::model::{
    failure::Failure,
    outcome::{NotDeleted, NotPrepared, Outcome, ProvisionedVolume},
    request::{ProvisionRequest, Turn},
};
use super::{model::unusable_volume::UnusableVolume, ownership::ProvisionerIdentity};
use crate::kube::objects::Volume;

/// Makes volumes for claims and removes them.
pub trait Provisioner: Send + Sync + 'static {
    /// What the deletion of a volume needs beside the volume.
    type Removal: Send;
    /// A prepared request, ready to be sent.
    type Request: Send;

    /// The names under which claims, classes and volumes are this process's.
    fn identity(&self) -> ProvisionerIdentity;

    /// The name of the PersistentVolume for the claim with this UID. It never changes.
    ///
    /// # Errors
    /// No name can be made of the UID; the failure says why.
    fn volume_name(&self, claim_uid: &str) -> Result<String, Failure>;

    /// Returns once what the provisioner watches to create volumes has been listed.
    fn ready_to_create(&self) -> impl Future<Output = ()> + Send;

    /// Returns once what the provisioner looks at before it deletes a volume has been listed.
    fn ready_to_delete(&self) -> impl Future<Output = ()> + Send;

    /// The kind that the provisioner looks at before it deletes and that is not listed yet, if any.
    fn unlisted(&self) -> Option<&'static str> {
        None
    }

    /// Decides whether this process provisions for the claim, if the claim itself does not say so.
    /// If several processes could, this may write the claim to settle it. It is not called while a
    /// call is open, as that belongs to the process that made it.
    fn turn(&self, request: &ProvisionRequest) -> impl Future<Output = Turn> + Send;

    /// How long this process waits before it does for the claim with this UID what any process may
    /// do. The time is random, so that not all processes act at once.
    fn wait_among_peers(&self, _claim_uid: &str) -> Duration {
        Duration::ZERO
    }

    /// The names of the secrets that the request needs, in a fixed order. They are part of the
    /// request's digest ([`super::model::record::Record`]).
    fn secret_names(&self, _request: &ProvisionRequest) -> Vec<String> {
        Vec::new()
    }

    /// Checks the request and reads what it needs, without sending anything. What must not change
    /// while a call is open is written into `request`, or taken from it if it is there already.
    ///
    /// # Errors
    /// The call cannot be made, or need not be.
    fn prepare(
        &self,
        request: &mut ProvisionRequest,
    ) -> impl Future<Output = Result<Self::Request, NotPrepared>> + Send;

    /// Whether the driver was connected when the request was prepared, so that it may be sent.
    fn can_send(&self, _prepared: &Self::Request) -> bool {
        true
    }

    /// Sends the request to the driver. Repeating an open call shows its outcome; the request is
    /// the same then.
    fn create(
        &self,
        request: &ProvisionRequest,
        prepared: Self::Request,
    ) -> impl Future<Output = Outcome> + Send;

    /// No call for the claim is open, though more may follow. Until then only the claim's reference
    /// holds the source of its volume. The caller holds locks, so this must not block.
    fn call_ended(&self, _claim_uid: &str) {}

    /// The claim needs the source of its volume no more: the volume is saved, or the claim is gone and
    /// no call for it is open. Called at least once, also for claims without any call. The caller holds
    /// locks, so this must not block.
    fn release_source(&self, _claim_uid: &str) {}

    /// The claim is not provisioned for any more.
    fn forget(&self, _claim_uid: &str) {}

    /// Removes an unusable volume. Only the caller knows whether that is safe, so `is_safe` is
    /// called before each try but the first.
    fn discard(
        &self,
        unusable: &UnusableVolume,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The driver's ID of the volume of a PersistentVolume, if it is this driver's. In-tree volumes
    /// that the driver has taken over are.
    fn handle<'a>(&self, volume: &'a Volume) -> Option<Cow<'a, str>>;

    /// The part of a volume ID by which volumes are compared. IDs that are known to name the same
    /// volume have the same key.
    fn key<'a>(&self, handle: &'a str) -> &'a str {
        handle
    }

    /// Whether this process is the one that should delete the volume.
    fn should_delete(&self, volume: &Volume) -> bool;

    /// Fails while the volume of the PersistentVolume is attached to a node under its name. Does no I/O.
    fn check_detached(&self, volume: &Volume) -> Result<(), NotDeleted>;

    /// Checks whether the driver can be asked to delete the volume, and reads what that needs. This
    /// may take long: the volume is read again before [`Provisioner::delete`].
    fn prepare_delete(
        &self,
        volume: &Volume,
    ) -> impl Future<Output = Result<Self::Removal, NotDeleted>> + Send;

    /// Deletes the volume at the driver without delay.
    fn delete(
        &self,
        volume: &Volume,
        removal: Self::Removal,
    ) -> impl Future<Output = Result<(), NotDeleted>> + Send;
}
