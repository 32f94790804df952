//! What the controller requires of a storage back end.
//!
//! As in sig-storage-lib-external-provisioner, one part makes volumes for claims ([`Provisioner`]) and one
//! deletes them ([`Deleter`]). Each answer is a variant on which the controller decides, never a text that
//! it must parse. The implementation for CSI drivers is [`csi_provisioner`](crate::csi_provisioner).

use std::future::Future;

use super::model::unusable_volume::UnusableVolume;
pub use super::model::{
    failure::Failure,
    outcome::{Next, NotDeleted, NotPrepared, Outcome, ProvisionedVolume},
    request::{ProvisionRequest, ShouldProvision},
    volume_handle::VolumeHandle,
};
use crate::kube::objects::Volume;

/// Makes volumes for claims.
pub trait Provisioner: Deleter {
    /// A prepared request, ready to be sent.
    type Prepared: Send;

    /// Decides whether this process provisions for the claim, if the claim itself does not say so.
    /// If several processes could, this may write the claim to settle it. It is not called while a
    /// call is open, as that belongs to the process that made it.
    fn should_provision(
        &self,
        request: &ProvisionRequest,
    ) -> impl Future<Output = ShouldProvision> + Send;

    /// The names of the secrets that the request needs, in a fixed order. They are part of the
    /// request's digest ([`super::model::record::Record`]).
    fn secret_names(&self, request: &ProvisionRequest) -> Vec<String>;

    /// Checks the request and reads what it needs, without asking the driver. What must not change
    /// while a call is open is written into `request`, or taken from it if it is there already.
    ///
    /// # Errors
    /// The call cannot be made, or need not be.
    fn prepare(
        &self,
        request: &mut ProvisionRequest,
    ) -> impl Future<Output = Result<Self::Prepared, NotPrepared>> + Send;

    /// Whether the driver was connected when the request was prepared, so that it may be sent.
    fn can_send(&self, prepared: &Self::Prepared) -> bool;

    /// Sends the request to the driver. Repeating an open call shows its outcome; the request is
    /// the same then.
    fn create(
        &self,
        request: &ProvisionRequest,
        prepared: Self::Prepared,
    ) -> impl Future<Output = Outcome> + Send;
}

/// Deletes volumes.
pub trait Deleter: Send + Sync + 'static {
    /// What the deletion of a volume needs beside the volume.
    type PreparedDelete: Send;

    /// The driver's ID of the volume of a PersistentVolume, if it is this driver's. In-tree volumes
    /// that the driver has taken over are.
    fn handle(&self, volume: &Volume) -> Option<VolumeHandle>;

    /// Whether this process is the one that should delete the volume.
    fn should_delete(&self, volume: &Volume) -> bool;

    /// Fails while the volume of the PersistentVolume is attached to a node under its name. Does no I/O.
    ///
    /// # Errors
    /// It is attached, or that is not known.
    fn check_detached(&self, volume: &Volume) -> Result<(), NotDeleted>;

    /// Checks whether the driver can be asked to delete the volume, and reads what that needs. This
    /// may take long: the volume is read again before [`Deleter::delete`].
    ///
    /// # Errors
    /// The volume cannot be deleted now.
    fn prepare_delete(
        &self,
        volume: &Volume,
    ) -> impl Future<Output = Result<Self::PreparedDelete, NotDeleted>> + Send;

    /// Deletes the volume at the driver without delay.
    ///
    /// # Errors
    /// It may still be there.
    fn delete(
        &self,
        volume: &Volume,
        removal: Self::PreparedDelete,
    ) -> impl Future<Output = Result<(), NotDeleted>> + Send;

    /// Removes an unusable volume, which has no PersistentVolume. Only the caller knows whether that is
    /// safe, so `is_safe` is called before each try but the first.
    ///
    /// # Errors
    /// It may still be there.
    fn discard(
        &self,
        request: &ProvisionRequest,
        unusable: &UnusableVolume,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}
