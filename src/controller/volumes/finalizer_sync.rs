//! The protection finalizer of one volume: putting it on, taking it off.
//!
//! Owns the order of reads and writes for that. Promises that the finalizer comes off a volume
//! which the driver still has only by a patch that fits nothing but the view it was decided on: by a
//! late decision the volume would be left at the driver. A view that is out of date is read live and
//! decided on anew, so that other writers cost a look and no more. Leaves what is due to
//! `finalizers`.

use serde_json::Value;

use super::{
    super::provisioner::Provisioner,
    finalizer,
    finalizer::{Due, due},
    sync::VolumeWorker,
};
use crate::{
    kube::{
        ApiError, Name, Patch,
        objects::{Claim, View as _, Volume},
    },
    metrics::SuspectedLeak,
    workqueue::Action,
};

/// So often in a row others may write first before the next try waits for its back-off.
const TRIES: usize = 5;

/// What became of a patch.
#[derive(Debug)]
pub(crate) enum Patched {
    /// It is done.
    Done,
    /// The PersistentVolume is gone or another one.
    Gone,
    /// Somebody else has written first; for a patch that is made for one version alone.
    Outdated(ApiError),
}

impl Patched {
    /// For a patch that others can't make out of date: what they write is an error.
    pub(crate) fn done(self) -> Result<(), ApiError> {
        match self {
            Self::Done | Self::Gone => Ok(()),
            Self::Outdated(error) => Err(error),
        }
    }
}

impl<P: Provisioner> VolumeWorker<P> {
    /// Puts the protection finalizer on.
    pub(crate) async fn protect(&self, volume: &Volume) -> Action {
        let patched = self.patch(volume, finalizer::protect(volume)).await;
        self.unless_failed(volume, patched.and_then(Patched::done))
    }

    /// Takes the protection finalizer off a volume that is to be kept.
    pub(crate) async fn unprotect(&self, volume: &Volume) -> Action {
        let patched = self.try_unprotect(volume.clone()).await;
        self.unless_failed(volume, patched)
    }

    fn unless_failed(&self, volume: &Volume, patched: Result<(), ApiError>) -> Action {
        let Err(error) = patched else { return Action::Done };
        let why = format!("failed to change the protection finalizer: {error}");
        tracing::warn!("{why}");
        // It keeps a PersistentVolume that somebody deletes, and them waiting.
        if volume.is_terminating() {
            self.events.failed_delete(volume, &why);
        }
        Action::Retry
    }

    async fn try_unprotect(&self, mut volume: Volume) -> Result<(), ApiError> {
        let mut tries = 1;
        loop {
            match self.patch(&volume, finalizer::unprotect_as_seen(&volume)).await? {
                Patched::Done | Patched::Gone => return Ok(()),
                Patched::Outdated(error) if tries == TRIES => return Err(error),
                Patched::Outdated(_) => tries += 1,
            }
            match self.live(&volume).await? {
                Some(live) if due(&live) == Due::Unprotect => volume = live,
                // What is due instead comes as an event.
                _ => return Ok(()),
            }
        }
    }

    /// Takes the finalizer off a PersistentVolume that somebody deleted before its claim was bound
    /// to it, so that the claim gets another one of the same volume (safety rule 13). Where the
    /// claim does not wait any more, the cluster binds or releases the volume, and that comes as
    /// an event.
    pub(crate) async fn let_go(&self, volume: &Volume) -> Action {
        let Err(error) = self.try_let_go(volume).await else { return Action::Done };
        let why = format!("failed to let go of a deleted PersistentVolume: {error}");
        tracing::warn!("{why}");
        self.events.failed_delete(volume, &why);
        Action::Retry
    }

    async fn try_let_go(&self, volume: &Volume) -> Result<(), ApiError> {
        let mut tries = 1;
        loop {
            let live = self.live(volume).await?.filter(|live| due(live) == Due::LetGo);
            let Some(live) = live else { return Ok(()) };
            if !self.claim_waits(&live).await? {
                return Ok(());
            }
            self.book.claim_returns(&live);
            match self.patch(&live, finalizer::unprotect_as_seen(&live)).await? {
                Patched::Done | Patched::Gone => return self.gone(&live).await,
                Patched::Outdated(error) if tries == TRIES => return Err(error),
                Patched::Outdated(_) => tries += 1,
            }
        }
    }

    /// The PersistentVolume was let go of. Where its claim was deleted meanwhile, nobody asks for
    /// the volume again, and nothing else tells of it.
    async fn gone(&self, volume: &Volume) -> Result<(), ApiError> {
        self.events.let_go(volume);
        if !self.claim_waits(volume).await.unwrap_or(true) {
            tracing::error!(
                handle = volume.source_id(),
                "suspected leak: the volume's claim is gone"
            );
            self.metrics.suspected_leak(SuspectedLeak::LetGo);
        }
        Ok(())
    }

    /// Whether the claim that the volume is for stands and waits, by a live read.
    async fn claim_waits(&self, volume: &Volume) -> Result<bool, ApiError> {
        let Some(claim) = &volume.spec.claim_ref else { return Ok(false) };
        match self.client.get::<Claim>(Name::namespaced(&claim.namespace, &claim.name)?).await {
            Err(error) if error.is_not_found() => Ok(false),
            found => found
                .map(|live| live.uid() == claim.uid && live.is_unbound() && !live.is_terminating()),
        }
    }

    /// Patches the PersistentVolume if it is still the one meant.
    pub(crate) async fn patch(&self, volume: &Volume, patch: Value) -> Result<Patched, ApiError> {
        let name = Name::cluster(volume.name())?;
        match self.client.patch::<Volume>(name, &Patch::StrategicMerge(patch)).await {
            Err(error) if error.is_not_found() => Ok(Patched::Gone),
            // The UID in the patch does not match: another one under the same name. Told by a
            // live read, since other things can be wrong with a patch.
            Err(error) if error.is_invalid() || error.is_conflict() => {
                match self.is_another(volume).await? {
                    true => Ok(Patched::Gone),
                    false if error.is_conflict() => Ok(Patched::Outdated(error)),
                    false => Err(error),
                }
            }
            patched => patched.map(|_| Patched::Done),
        }
    }
}
