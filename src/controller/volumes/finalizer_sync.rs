//! The part of the volume worker that adds and removes the protection finalizer.
//!
//! If the driver still has the volume, the patch that removes the finalizer contains the version on which
//! that was decided: on an outdated view the volume would be leaked. After a conflict the PersistentVolume
//! is read live and the decision repeated.

use serde_json::Value;

use super::{super::provisioner::Deleter, sync::VolumeWorker};
use crate::{
    controller::claims::index::{Entry, claim_uid},
    controller::model::finalizer::{self, Due, due},
    kube::{
        ApiError, Name, Patch,
        objects::{Claim, View as _, Volume},
    },
    workqueue::Action,
};

/// The number of attempts after conflicts before the back-off begins.
const MAX_ATTEMPTS: usize = 5;

/// Why a PersistentVolume that was deleted before its claim was bound to it stays.
const OF_ANOTHER_NAME: &str = "deleted before its claim was bound to it, and the claim would get a volume of another name: it stays until the claim is gone";

impl<P: Deleter> VolumeWorker<P> {
    /// Adds the protection finalizer.
    pub(crate) async fn protect(&self, volume: &Volume) -> Action {
        let patched = self.patch(volume, finalizer::protect(volume)).await;
        self.finish_patch(volume, patched)
    }

    /// Removes the protection finalizer of a volume that is to be kept.
    pub(crate) async fn unprotect(&self, volume: &Volume) -> Action {
        let patched = self.try_unprotect(volume, Due::Unprotect).await;
        self.finish_patch(volume, patched.map(drop))
    }

    /// Reports a failed patch and returns the next action.
    fn finish_patch(&self, volume: &Volume, patched: Result<(), ApiError>) -> Action {
        let Err(error) = patched else { return Action::Done };
        let why = format!("failed to change the protection finalizer: {error}");
        // Whoever deletes the PersistentVolume waits for this.
        if volume.is_terminating() {
            self.deps.events.failed_delete(volume, &why);
        } else {
            tracing::warn!("{why}");
        }
        Action::Retry
    }

    /// Removes the finalizer while `what` is due; returns whether it was. The first attempt for a volume to be kept
    /// is on the version that the watch has shown; all others follow a live read.
    async fn try_unprotect(&self, volume: &Volume, what: Due) -> Result<bool, ApiError> {
        let is_unbound = what == Due::UnprotectUnbound;
        let mut volume = volume.clone();
        let mut attempts = 0;
        loop {
            attempts += 1;
            if attempts > 1 || is_unbound {
                match self.read_live(&volume).await? {
                    Some(live) if due(&live) == what => volume = live,
                    // The watch reports what is due instead.
                    _ => return Ok(false),
                }
            }
            // The claim is to get another PersistentVolume of the same volume once this one is gone (safety rule 13).
            if is_unbound {
                if !self.claim_waits(&volume).await? {
                    return Ok(false);
                }
                let let_go = |claim: &mut Entry| claim.let_go(&volume);
                if self.claims.update(claim_uid(&volume), let_go) != Some(true) {
                    self.deps.events.failed_delete(&volume, OF_ANOTHER_NAME);
                    return Ok(false);
                }
            }
            match self.patch(&volume, finalizer::unprotect_if_unchanged(&volume)).await {
                Err(error) if error.is_conflict() && attempts < MAX_ATTEMPTS => {}
                patched => return patched.map(|()| true),
            }
        }
    }

    /// Removes the finalizer of a PersistentVolume that was deleted before its claim was bound to it, so
    /// that the claim gets another one of the same volume (safety rule 13). If the claim does not wait
    /// any more, the cluster binds or releases the volume, and the watch reports that. If the claim goes before it
    /// has the other one, the volume is a suspected leak.
    pub(crate) async fn unprotect_unbound(&self, volume: &Volume) -> Action {
        match self.try_unprotect(volume, Due::UnprotectUnbound).await {
            Ok(true) => self.deps.events.deleted_before_bound(volume),
            Ok(false) => {}
            Err(error) => {
                let why = format!("failed to let go of a deleted PersistentVolume: {error}");
                self.deps.events.failed_delete(volume, &why);
                return Action::Retry;
            }
        }
        Action::Done
    }

    /// Whether the volume's claim exists and is unbound, by a live read.
    async fn claim_waits(&self, volume: &Volume) -> Result<bool, ApiError> {
        let Some(claim) = &volume.spec.claim_ref else { return Ok(false) };
        let name = Name::namespaced(&claim.namespace, &claim.name)?;
        let live = self.deps.client.get_opt::<Claim>(name).await?;
        Ok(live.is_some_and(|it| it.uid() == claim.uid && it.is_unbound() && !it.is_terminating()))
    }

    /// Patches the PersistentVolume. Does nothing if it is gone, or another one has its name.
    ///
    /// # Errors
    /// A conflict: it no longer has the version in the patch.
    pub(crate) async fn patch(&self, volume: &Volume, patch: Value) -> Result<(), ApiError> {
        let name = Name::cluster(volume.name())?;
        match self.deps.client.patch::<Volume>(name, &Patch::Strategic(patch)).await {
            Err(error) if error.is_not_found() => Ok(()),
            // Perhaps the UID in the patch does not match. A live read decides, as a patch can fail for
            // other reasons as well.
            Err(error) if error.is_invalid() || error.is_conflict() => {
                if self.is_gone_or_replaced(volume).await? { Ok(()) } else { Err(error) }
            }
            patched => patched.map(drop),
        }
    }
}
