//! One volume, from its queue to its end.
//!
//! Owns the order of things for a volume: its protection finalizer, and its deletion, first at
//! the driver and then of the PersistentVolume. Promises that nothing is deleted on an old view,
//! that a driver which has deleted a volume is not asked again, and that only our finalizer is
//! taken off. Leaves what is due to `finalizers`, and the driver to the [`Provisioner`].

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{Instrument as _, field};

use super::{
    events::{PANICKED, VolumeEvents},
    exclusive::Exclusive,
    finalizers::{self, Due, due},
    ownership::class_of_volume,
    provisioner::{DeleteOutcome, Provisioner},
    volume_book::{Deletion, Glance, VolumeBook},
};
use crate::{
    kube_api::{
        ApiError, Client, Name, Patch,
        views::{View as _, Volume},
    },
    metrics::ControllerMetrics,
    mutations::{self, Mutation},
    workqueue::Verdict,
};

/// Works on volumes.
pub struct VolumeWorker<P> {
    /// Deletes at the driver.
    pub provisioner: Arc<P>,
    /// What is known of the volumes.
    pub book: VolumeBook,
    /// Reads and writes PersistentVolumes.
    pub client: Client,
    /// Tells users.
    pub events: VolumeEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// One actor a volume.
    pub exclusive: Exclusive,
}

impl<P: Provisioner> VolumeWorker<P> {
    /// Brings one volume a step further.
    pub async fn sync(&self, name: &str) -> Verdict {
        let key = if mutations::is_on(Mutation::SeparateKeys) { "" } else { name };
        let _held = self.exclusive.hold(key).await;
        // Looked at under the key: what another actor has just done is seen.
        let Some(glance) = self.book.glance(name) else { return Verdict::Done };
        let claim = glance.volume.spec.claim_ref.as_ref();
        let claim = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let span = tracing::info_span!("volume", pv = name, claim, code = field::Empty);
        self.step(glance).instrument(span).await
    }

    async fn step(&self, glance: Glance) -> Verdict {
        let volume = Arc::clone(&glance.volume);
        tracing::debug!(due = ?due(&volume), deletion = ?glance.deletion, "looking at the volume");
        match due(&volume) {
            Due::Nothing => Verdict::Done,
            Due::Protect => self.finalizer(&volume, finalizers::protect(volume.uid())).await,
            Due::Unprotect => self.finalizer(&volume, finalizers::unprotect(volume.uid())).await,
            Due::Delete => self.delete(glance).await,
        }
    }

    /// Puts the protection finalizer on or takes it off.
    async fn finalizer(&self, volume: &Volume, patch: serde_json::Value) -> Verdict {
        match self.patch(volume, patch).await {
            Ok(()) => Verdict::Done,
            Err(error) => {
                let why = format!("failed to change the protection finalizer: {error}");
                tracing::warn!("{why}");
                // It keeps a PersistentVolume that somebody deletes, and them waiting.
                if volume.is_terminating() {
                    self.events.failed_delete(volume, &why);
                }
                Verdict::Retry
            }
        }
    }

    /// Patches the PersistentVolume if it is still the one meant.
    async fn patch(&self, volume: &Volume, patch: serde_json::Value) -> Result<(), ApiError> {
        let name = Name::cluster(volume.name())?;
        match self.client.patch::<Volume>(name, &Patch::StrategicMerge(patch)).await {
            Err(error) if error.is_not_found() => Ok(()),
            // The UID in the patch does not match: another one under the same name. Told by a
            // live read, since other things can be wrong with a patch.
            Err(error) if error.is_invalid() || error.is_conflict() => {
                if self.is_another(volume).await? { Ok(()) } else { Err(error) }
            }
            patched => patched.map(drop),
        }
    }

    /// Whether the PersistentVolume of this name is gone or another one by now.
    async fn is_another(&self, volume: &Volume) -> Result<bool, ApiError> {
        match self.client.get::<Volume>(Name::cluster(volume.name())?).await {
            Err(error) if error.is_not_found() => Ok(true),
            found => found.map(|found| found.uid() != volume.uid()),
        }
    }

    async fn delete(&self, glance: Glance) -> Verdict {
        if glance.deletion == Deletion::Removed {
            return Verdict::Done;
        }
        let started = Instant::now();
        let volume = match self.confirmed(&glance).await {
            Ok(Some(volume)) => volume,
            Ok(None) => return Verdict::Done,
            Err(error) => return self.failed(&glance.volume, &error.to_string()),
        };
        if !self.provisioner.should_delete(&volume) {
            return Verdict::Done;
        }
        if glance.deletion == Deletion::NotYet
            && let Err(why) = self.delete_at_driver(&volume).await
        {
            return self.failed(&volume, &why);
        }
        match self.remove(&volume).await {
            Ok(()) => {
                self.book.deletion_reached(&volume, Deletion::Removed);
                self.metrics.deleted(class_of_volume(&volume), started.elapsed());
                tracing::info!("volume deleted");
                Verdict::Done
            }
            Err(error) => self.failed(&volume, &error.to_string()),
        }
    }

    /// The volume on the newest view, if it is still to be deleted (safety rule 10).
    async fn confirmed(&self, glance: &Glance) -> Result<Option<Arc<Volume>>, ApiError> {
        if glance.fresh || mutations::is_on(Mutation::DeleteUnseen) {
            return Ok(Some(Arc::clone(&glance.volume)));
        }
        match self.client.get::<Volume>(Name::cluster(glance.volume.name())?).await {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
            Ok(live) => {
                let due = live.uid() == glance.volume.uid() && due(&live) == Due::Delete;
                Ok(due.then(|| Arc::new(live)))
            }
        }
    }

    async fn delete_at_driver(&self, volume: &Arc<Volume>) -> Result<(), String> {
        self.book.deletion_begins(volume);
        tracing::trace!("asking the provisioner to delete");
        match self.provisioner.delete(Arc::clone(volume)).await {
            DeleteOutcome::Deleted => {
                if !mutations::is_on(Mutation::DeleteTwice) {
                    self.book.deletion_reached(volume, Deletion::AtDriver);
                }
                Ok(())
            }
            DeleteOutcome::Attached { node } => {
                Err(format!("persistentvolume {} is still attached to node {node}", volume.name()))
            }
            DeleteOutcome::Failed(failure) => Err(failure.to_string()),
        }
    }

    /// Removes the PersistentVolume, whose volume is gone.
    async fn remove(&self, volume: &Volume) -> Result<(), ApiError> {
        let name = Name::cluster(volume.name())?;
        let uid = (!mutations::is_on(Mutation::DeleteWithoutUid)).then(|| volume.uid());
        match self.client.delete::<Volume>(name, uid).await {
            Err(error) if error.is_not_found() => return Ok(()),
            // The UID is a precondition; told by a live read, as other things can conflict too.
            Err(error) if error.is_conflict() => {
                return if self.is_another(volume).await? { Ok(()) } else { Err(error) };
            }
            deleted => deleted?,
        }
        if volume.has_finalizer(finalizers::PROTECTION) {
            self.patch(volume, finalizers::unprotect(volume.uid())).await?;
        }
        Ok(())
    }

    /// The task that worked on the volume died: the volume is set aside until it changes or the
    /// next audit, and its user told.
    pub fn panicked(&self, name: &str, panic: &str) {
        tracing::error!(pv = name, panic, "working on a volume panicked; this is a bug");
        self.metrics.panicked("volumes");
        if let Some(glance) = self.book.glance(name) {
            self.events.failed_delete(&glance.volume, PANICKED);
        }
    }

    fn failed(&self, volume: &Volume, why: &str) -> Verdict {
        tracing::warn!(error = why, "deleting the volume failed");
        self.events.failed_delete(volume, why);
        self.metrics.delete_failed(class_of_volume(volume));
        Verdict::Retry
    }
}
