//! The volume worker: deletes volumes, first at the driver and then their PersistentVolumes.
//!
//! It guarantees that a live read right before each DeleteVolume decides (safety rule 10), and that a driver
//! that has deleted a volume is not called again. [`finalizer`] decides what is due.

use std::sync::Arc;

use tokio::time::{Duration, Instant};
use tracing::{Instrument as _, field};

use super::{
    index::{Deletion, VolumeIndex},
    sharers::HandleLock,
};
use crate::{
    controller::{
        Deps, Key,
        claims::index::ClaimIndex,
        events::{PANICKED, attached},
        live::is_recent,
        model::{
            finalizer,
            finalizer::{Due, due},
        },
        provisioner::{Deleter, Failure, NotDeleted},
    },
    kube::{
        ApiError, Name,
        objects::{View as _, Volume},
    },
    workqueue::{Action, Worker},
};

/// The delay before a volume that waits for its detachment is checked again without an event. As long as it
/// waits, that is said and counted as often.
const DETACH_RECHECK: Duration = Duration::from_secs(15 * 60);

/// The delay before a volume that another worker deletes for another PersistentVolume is looked at again
/// without an event.
const SHARED_RECHECK: Duration = Duration::from_secs(15);

/// The error if no live read was recent enough.
const READ_TOO_OLD: &str = "the volume is not deleted: how its PersistentVolume stands was more than two seconds under way from the API server, and may have changed. It is read again";

/// The number of live reads before a deletion fails with [`READ_TOO_OLD`].
const MAX_READS: usize = 3;

/// The worker of the queue of volumes.
pub struct VolumeWorker<P> {
    /// What all workers share.
    pub deps: Arc<Deps<P>>,
    /// The volumes that need work.
    pub index: Arc<VolumeIndex<P>>,
    /// What is known of the claims. Its lock admits one worker per volume at a time, including that of the
    /// claim (safety rule 5).
    pub claims: ClaimIndex,
}

impl From<ApiError> for NotDeleted {
    fn from(error: ApiError) -> Self {
        Self::Failed(Failure::new(error))
    }
}

impl<P: Deleter> Worker<Key> for Arc<VolumeWorker<P>> {
    /// Does what is due for the volume of this name.
    async fn sync(&self, name: &Key) -> Action {
        let _lock = self.claims.volume_keys().lock(name).await;
        // Taken while the key is held, so that it includes what another worker has just done.
        let Some(volume) = self.index.volume(name) else {
            self.deps.peers.forget(name);
            return Action::Done;
        };
        let claim = volume.spec.claim_ref.as_ref();
        let claim = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let driver = &self.deps.identity.driver;
        let span = tracing::info_span!("volume", pv = &**name, claim, driver, code = field::Empty);
        let action = self.do_what_is_due(&volume).instrument(span).await;
        if action == Action::Done {
            self.deps.peers.forget(name);
        }
        action
    }

    /// An event says so. The volume is synced again when it changes, or at the next resync.
    fn after_panic(&self, name: &Key) {
        if let Some(volume) = self.index.volume(name) {
            self.deps.events.failed_delete(&volume, PANICKED);
        }
    }
}

impl<P: Deleter> VolumeWorker<P> {
    /// How long this process still leaves the volume to one that can reach it.
    fn wait_out_of_reach(&self, volume: &Volume) -> Duration {
        if self.deps.provisioner.should_delete(volume) {
            return Duration::ZERO;
        }
        self.deps.peers.wait(volume.name())
    }

    async fn do_what_is_due(&self, volume: &Arc<Volume>) -> Action {
        let deletion = self.index.deletion(volume.name());
        tracing::debug!(due = ?due(volume), ?deletion, "syncing the volume");
        match due(volume) {
            Due::Nothing => Action::Done,
            Due::Protect => self.protect(volume).await,
            Due::Unprotect => match self.wait_out_of_reach(volume) {
                Duration::ZERO => self.unprotect(volume).await,
                wait => Action::RequeueAfter(wait),
            },
            Due::UnprotectUnbound => self.unprotect_unbound(volume).await,
            Due::Delete => self.delete(volume, deletion).await,
        }
    }

    /// Whether the PersistentVolume is gone, or another one has its name, by a live read.
    pub(super) async fn is_gone_or_replaced(&self, volume: &Volume) -> Result<bool, ApiError> {
        self.read_live(volume).await.map(|live| live.is_none())
    }

    async fn delete(&self, volume: &Arc<Volume>, deletion: Deletion) -> Action {
        if deletion == Deletion::Removed || !self.deps.provisioner.should_delete(volume) {
            return Action::Done;
        }
        let Some(held) = self.hold_handle(volume) else {
            return Action::RequeueAfter(SHARED_RECHECK);
        };
        let started = Instant::now();
        match self.try_delete(volume, &held).await {
            Ok(Some(volume)) => {
                self.index.set_deletion(&volume, Deletion::Removed);
                self.deps.metrics.controller.deleted(class_label(&volume), started.elapsed());
                tracing::info!("volume deleted");
                Action::Done
            }
            Ok(None) => Action::Done,
            Err(NotDeleted::Failed(why)) => {
                self.report_failure(volume, &why);
                Action::Retry
            }
            Err(NotDeleted::Attached { node }) => {
                // Its detachment queues it earlier. It counts as a failed deletion, as in
                // external-provisioner.
                self.report_failure(volume, &Failure::new(attached(volume, &node)));
                Action::RequeueAfter(DETACH_RECHECK)
            }
        }
    }

    /// Deletes the volume, unless the driver has deleted it already, and then its PersistentVolume. Returns
    /// `None` if the deletion is not due any more.
    async fn try_delete(
        &self,
        volume: &Arc<Volume>,
        held: &HandleLock,
    ) -> Result<Option<Arc<Volume>>, NotDeleted> {
        let mut volume = Arc::clone(volume);
        // Whoever held the handle before may have deleted the volume for this PersistentVolume as well.
        if self.index.deletion(volume.name()) == Deletion::Pending {
            let removal = self.deps.provisioner.prepare_delete(&volume).await?;
            let sharers = self.list_sharers(&volume, held).await?;
            // The last thing awaited before the call, so that the reads are recent.
            let Some((live, sharers)) = self.read_if_due(&volume, sharers, held).await? else {
                return Ok(None);
            };
            volume = live;
            self.check_sharers(&volume, &sharers, held)?;
            self.delete_at_driver(&volume, removal).await?;
            self.deleted_with(sharers, held);
        }
        self.remove(&volume).await?;
        Ok(Some(volume))
    }

    async fn delete_at_driver(
        &self,
        volume: &Arc<Volume>,
        removal: P::PreparedDelete,
    ) -> Result<(), NotDeleted> {
        self.claims.on_volume_deletion(volume.name());
        tracing::trace!("asking the provisioner to delete");
        self.deps.provisioner.delete(volume, removal).await?;
        self.index.set_deletion(volume, Deletion::DeletedAtDriver);
        Ok(())
    }

    /// Reads the PersistentVolume and its sharers live, and returns those that are there if the deletion is
    /// due and the reads are recent (safety rule 10).
    ///
    /// # Errors
    /// A PersistentVolume could not be read, or not recently enough, or a sharer is not due.
    async fn read_if_due(
        &self,
        volume: &Arc<Volume>,
        mut sharers: Vec<Volume>,
        held: &HandleLock,
    ) -> Result<Option<(Arc<Volume>, Vec<Volume>)>, NotDeleted> {
        for _ in 0..MAX_READS {
            // At once: a request may wait for a token of --kube-api-qps for longer than an answer counts.
            let own = async { Ok(self.read_live_with_time(volume).await?) };
            let (live, of_sharers) = tokio::try_join!(own, self.read_sharers(sharers, held))?;
            let Some((live, at)) = live.filter(|(live, _)| due(live) == Due::Delete) else {
                return Ok(None);
            };
            let times: Vec<Duration>;
            (sharers, times) = of_sharers.into_iter().unzip();
            if [at].iter().chain(&times).all(|time| is_recent(&*self.deps.clock, *time)) {
                return Ok(Some((Arc::new(live), sharers)));
            }
        }
        Err(NotDeleted::Failed(Failure::new(READ_TOO_OLD)))
    }

    /// Reads the PersistentVolume; `None` if it is gone or another one has its name.
    pub(super) async fn read_live(&self, volume: &Volume) -> Result<Option<Volume>, ApiError> {
        Ok(self.read_live_with_time(volume).await?.map(|(live, _)| live))
    }

    /// Reads as [`VolumeWorker::read_live`] does, and returns when the request was sent as well.
    pub(super) async fn read_live_with_time(
        &self,
        volume: &Volume,
    ) -> Result<Option<(Volume, Duration)>, ApiError> {
        match self.deps.client.get_dated::<Volume>(Name::cluster(volume.name())?).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(|found| Some(found).filter(|(live, _)| live.uid() == volume.uid())),
        }
    }

    /// Deletes the PersistentVolume of a deleted volume, and removes the protection finalizer.
    async fn remove(&self, volume: &Volume) -> Result<(), ApiError> {
        let name = Name::cluster(volume.name())?;
        let kept_by = match self.deps.client.delete::<Volume>(name, Some(volume.uid())).await {
            Err(error) if error.is_not_found() => return Ok(()),
            // Perhaps the UID in the precondition does not match. A live read decides, as there are
            // other conflicts as well.
            Err(error) if error.is_conflict() => {
                return if self.is_gone_or_replaced(volume).await? { Ok(()) } else { Err(error) };
            }
            deleted => deleted?,
        };
        // The finalizer may have been added since the volume was read.
        let is_kept = kept_by.iter().any(|finalizer| finalizer == finalizer::PROTECTION);
        if is_kept || volume.has_finalizer(finalizer::PROTECTION) {
            // Without a version, as there is nothing left to protect.
            let patch = finalizer::unprotect(volume.uid());
            self.patch(volume, patch).await?;
        }
        Ok(())
    }

    fn report_failure(&self, volume: &Volume, why: &Failure) {
        self.index.set_failure(volume, why);
        self.deps.events.failed_delete(volume, &why.to_string());
        self.deps.metrics.controller.delete_failed(class_label(volume));
    }
}

/// The label of the volume's class in metrics: the field alone, as in external-provisioner.
fn class_label(volume: &Volume) -> &str {
    &volume.spec.storage_class_name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_class_label_in_metrics_ignores_the_beta_annotation() {
        let volume = serde_json::from_value(json!({
            "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
            "spec": {"storageClassName": "new"},
        }))
        .unwrap();
        assert_eq!(class_label(&volume), "new");
        assert_eq!(class_label(&Volume::default()), "");
    }
}
