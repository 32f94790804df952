//! One volume, from its queue to its end.
//!
//! Owns the order of things for a volume: its protection finalizer (`protection`), and its
//! deletion, first at the driver and then of the PersistentVolume. Promises that a live read right
//! before each DeleteVolume decides (safety rule 10), that a driver which has deleted a volume is not asked again, and that only our
//! finalizer is taken off. Leaves what is due to `finalizers`, and the driver to the [`Provisioner`].

use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use tokio::time::{Duration, Instant};
use tracing::{Instrument as _, field};

use super::{
    finalizer,
    finalizer::{Due, due},
    index::{Deletion, VolumeIndex, VolumeState},
};
use crate::{
    controller::{
        claims::save::PvStore,
        dependencies::index::DependencyIndex,
        events::{PANICKED, VolumeEvents},
        item::Item,
        limiter::{Attempt, ConcurrencyLimiter, Permit},
        live::Live,
        ownership::class_of_volume,
        provisioner::{Congestion, Failure, NotDeleted, Provisioner},
    },
    kube::{
        ApiError, Client, Name, Scope,
        objects::{View as _, Volume},
    },
    metrics::{ControllerMetrics, Panicked},
    mutations,
    mutations::Mutation,
    runtime::Random,
    workqueue::{Action, KeyedMutex},
};

/// When a volume that waits to be detached is looked at without having been woken.
const MISSED_DETACH: Duration = Duration::from_secs(5 * 60);

/// For how long at least the process that reaches a volume has precedence over all others.
const PRECEDENCE: Duration = Duration::from_secs(2);

/// Why a volume is not deleted on what the API server took so long to say.
const LOOKED_TOO_LONG_AGO: &str = "the volume is not deleted: how its PersistentVolume stands was more than two seconds under way from the API server, and may have changed. It is read again";

/// So often a PersistentVolume is read whose answer was too long under way.
const READS: usize = 3;

/// Works on volumes.
pub struct VolumeWorker<P> {
    /// Deletes at the driver.
    pub provisioner: Arc<P>,
    /// What is known of the volumes.
    pub book: VolumeIndex,
    /// Reads and writes PersistentVolumes.
    pub client: Client,
    /// Tells users.
    pub events: VolumeEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// One actor a volume.
    pub exclusive: KeyedMutex,
    /// How many DeleteVolume calls there may be.
    pub limiter: ConcurrencyLimiter,
    /// Knows the volumes that are being saved.
    pub store: PvStore,
    /// How old what was read is.
    pub live: Live,
    /// What else the volumes wait for.
    pub waits: DependencyIndex,
    /// Jitter.
    pub random: Arc<dyn Random>,
}

impl From<ApiError> for NotDeleted {
    fn from(error: ApiError) -> Self {
        Self::Failed(Failure::new(error))
    }
}

impl<P: Provisioner> VolumeWorker<P> {
    /// Brings one volume a step further.
    pub async fn sync(&self, name: &str) -> Action {
        let look = self.limiter.look(Item::volume(name));
        let _held = self.exclusive.hold(&key(name)).await;
        // Looked at under the key: what another actor has just done is seen.
        let Some(snapshot) = self.book.snapshot(name) else {
            self.waits.forget(&Item::volume(name));
            return Action::Done;
        };
        let claim = snapshot.volume.spec.claim_ref.as_ref();
        let claim = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let span = tracing::info_span!("volume", pv = name, claim, code = field::Empty);
        let verdict = self.step(snapshot, look).instrument(span).await;
        if verdict == Action::Done {
            self.waits.forget(&Item::volume(name));
        }
        verdict
    }

    async fn step(&self, snapshot: VolumeState, look: Attempt) -> Action {
        let volume = Arc::clone(&snapshot.volume);
        tracing::debug!(due = ?due(&volume), deletion = ?snapshot.deletion, "looking at the volume");
        match due(&volume) {
            Due::Nothing => Action::Done,
            Due::Protect => self.protect(&volume).await,
            // Whoever reaches the volume comes first.
            Due::Unprotect if snapshot.is_news() && !self.provisioner.should_delete(&volume) => {
                Action::RequeueAfter(PRECEDENCE.mul_f64(1.0 + 5.0 * self.random.unit()))
            }
            Due::Unprotect => self.unprotect(&volume).await,
            Due::LetGo => self.let_go(&volume).await,
            Due::Delete => self.delete(snapshot, look).await,
        }
    }

    /// Whether the PersistentVolume of this name is gone or another one by now.
    pub(super) async fn is_another(&self, volume: &Volume) -> Result<bool, ApiError> {
        self.live(volume).await.map(|live| live.is_none())
    }

    async fn delete(&self, snapshot: VolumeState, mut look: Attempt) -> Action {
        if snapshot.deletion == Deletion::Removed
            || !self.provisioner.should_delete(&snapshot.volume)
        {
            return Action::Done;
        }
        let mut permit = None;
        if snapshot.deletion.is_ahead() {
            permit = look.permit(class_of_volume(&snapshot.volume), snapshot.begun);
            if permit.is_none() {
                return Action::AwaitChange;
            }
        }
        let started = Instant::now();
        let deleted = self.try_delete(&snapshot, permit).await;
        if !matches!(deleted, Err(NotDeleted::Attached { .. })) {
            self.book.is_detached(&snapshot.volume);
        }
        match deleted {
            Ok(Some(volume)) => {
                self.book.deletion_reached(&volume, Deletion::Removed);
                self.metrics.deleted(class_label(&volume), started.elapsed());
                tracing::info!("volume deleted");
                Action::Done
            }
            Ok(None) => Action::Done,
            Err(NotDeleted::Attached { node }) => self.wait_for_detach(&snapshot, &node),
            Err(NotDeleted::Failed(why)) => self.failed(&snapshot.volume, &why),
        }
    }

    /// Deletes the volume and then its PersistentVolume; `None` where it is not due any more.
    /// Without a permit the driver has removed it already.
    async fn try_delete(
        &self,
        snapshot: &VolumeState,
        permit: Option<Permit>,
    ) -> Result<Option<Arc<Volume>>, NotDeleted> {
        let removal = match permit {
            None => None,
            Some(permit) => {
                self.book.deletion_begins(&snapshot.volume);
                Some((permit, self.provisioner.prepare_delete(&snapshot.volume).await?))
            }
        };
        let volume = match removal {
            None => Arc::clone(&snapshot.volume),
            Some((permit, removal)) => {
                self.check_handle(&snapshot.volume).await?;
                // Whatever took its time comes before this look, and nothing after it.
                let Some(volume) = self.due_now(&snapshot.volume).await? else { return Ok(None) };
                self.delete_at_driver(&volume, permit, removal).await?;
                volume
            }
        };
        self.remove(&volume).await?;
        Ok(Some(volume))
    }

    async fn delete_at_driver(
        &self,
        volume: &Volume,
        permit: Permit,
        removal: P::Removal,
    ) -> Result<(), NotDeleted> {
        self.store.on_volume_deletion(volume.name());
        tracing::trace!("asking the provisioner to delete");
        let deleted = self.provisioner.delete(volume, removal).await;
        permit.ended(deleted.as_ref().err().map_or(Congestion::Bearable, NotDeleted::congestion));
        deleted?;
        if !mutations::is_on(Mutation::DeleteTwice) {
            self.book.deletion_reached(volume, Deletion::AtDriver);
        }
        Ok(())
    }

    /// The volume by a live read that is not old (safety rule 10), if it is to be deleted.
    ///
    /// # Errors
    /// It could not be read, or not in time: then nothing is deleted.
    async fn due_now(&self, volume: &Arc<Volume>) -> Result<Option<Arc<Volume>>, NotDeleted> {
        if mutations::is_on(Mutation::DeleteUnseen) {
            return Ok(Some(Arc::clone(volume)));
        }
        for _ in 0..READS {
            let Some((live, at)) = self.live_dated(volume).await? else { return Ok(None) };
            if due(&live) != Due::Delete {
                return Ok(None);
            }
            if self.live.is_recent(at) {
                return Ok(Some(Arc::new(live)));
            }
        }
        Err(NotDeleted::Failed(Failure::new(LOOKED_TOO_LONG_AGO)))
    }

    /// The PersistentVolume as it is now, if it still is the one meant.
    pub(super) async fn live(&self, volume: &Volume) -> Result<Option<Volume>, ApiError> {
        Ok(self.live_dated(volume).await?.map(|(live, _)| live))
    }

    /// The same, and when that was asked.
    async fn live_dated(&self, volume: &Volume) -> Result<Option<(Volume, Duration)>, ApiError> {
        match self.client.get_dated::<Volume>(Name::cluster(volume.name())?).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(|found| Some(found).filter(|(live, _)| live.uid() == volume.uid())),
        }
    }

    /// Refuses to delete a volume that another PersistentVolume stands for (safety rule 10).
    async fn check_handle(&self, volume: &Volume) -> Result<(), NotDeleted> {
        let Some(handle) = self.provisioner.handle(volume) else { return Ok(()) };
        let refuse = |other: &str| {
            NotDeleted::Failed(Failure::new(format!(
                "the volume {handle:?} is not deleted: {other} stands for it, too. To keep it, set this PersistentVolume's reclaim policy to Retain and delete it"
            )))
        };
        let key = self.provisioner.key(&handle);
        let same = |other: &str| self.provisioner.key(other) == key;
        if self.store.holds_as_another(same, volume.name()) {
            return Err(refuse("a PersistentVolume that is being saved"));
        }
        if !self.book.may_share_handle(key, volume) {
            return Ok(());
        }
        match self.sharer(volume, same).await? {
            Some(name) => Err(refuse(&format!("PersistentVolume {name:?}"))),
            None => Ok(()),
        }
    }

    /// Another PersistentVolume of the same handle, by what the API server says now.
    async fn sharer(
        &self,
        volume: &Volume,
        same: impl Fn(&str) -> bool + Send,
    ) -> Result<Option<String>, ApiError> {
        let mut sharer = None;
        let look = |other: Volume| {
            let is_same = self.provisioner.handle(&other).is_some_and(|handle| same(&handle));
            if !is_same || other.uid() == volume.uid() {
                return ControlFlow::Continue(());
            }
            sharer = Some(other.name().to_owned());
            ControlFlow::Break(())
        };
        self.client.list(&Scope::all(), look).await?;
        Ok(sharer)
    }

    /// A detachment wakes the volume. What its user is told is counted as the original counts it.
    fn wait_for_detach(&self, snapshot: &VolumeState, node: &str) -> Action {
        tracing::debug!(node, "waiting for detach");
        let volume = &snapshot.volume;
        if let Some(attached) = snapshot.deletion.tell_attached(node) {
            self.events.still_attached(volume, node);
            self.metrics.delete_failed(class_label(volume));
            self.book.deletion_reached(volume, attached);
        }
        Action::RequeueAfter(MISSED_DETACH)
    }

    /// Removes the PersistentVolume, whose volume is gone.
    async fn remove(&self, volume: &Volume) -> Result<(), ApiError> {
        let name = Name::cluster(volume.name())?;
        let uid = (!mutations::is_on(Mutation::DeleteWithoutUid)).then(|| volume.uid());
        let kept_by = match self.client.delete::<Volume>(name, uid).await {
            Err(error) if error.is_not_found() => return Ok(()),
            // The UID is a precondition; told by a live read, as other things can conflict too.
            Err(error) if error.is_conflict() => {
                return if self.is_another(volume).await? { Ok(()) } else { Err(error) };
            }
            deleted => deleted?,
        };
        // Somebody may have put it on since the volume was seen.
        let is_kept = kept_by.iter().any(|finalizer| finalizer == finalizer::PROTECTION);
        if is_kept || volume.has_finalizer(finalizer::PROTECTION) {
            // Whatever has changed about it since: there is nothing left to protect.
            let patch = finalizer::unprotect(volume.uid());
            self.patch(volume, patch).await?.done()?;
        }
        Ok(())
    }

    /// The task that worked on the volume died: the volume is set aside until it changes or the
    /// next audit, and its user told.
    pub fn panicked(&self, name: &str, panic: &str) {
        tracing::error!(pv = name, panic, "working on a volume panicked; this is a bug");
        self.metrics.panicked(Panicked::Volumes);
        if let Some(snapshot) = self.book.snapshot(name) {
            self.events.failed_delete(&snapshot.volume, PANICKED);
        }
    }

    fn failed(&self, volume: &Volume, why: &Failure) -> Action {
        tracing::warn!(error = %why, "deleting the volume failed");
        self.waits.wait(&Item::volume(volume.name()), why.dependencies());
        self.events.failed_delete(volume, &why.to_string());
        self.metrics.delete_failed(class_label(volume));
        Action::Retry
    }
}

/// The key under which one actor at a time works on the volume: that of its claim.
fn key(name: &str) -> Cow<'_, str> {
    if mutations::is_on(Mutation::SeparateKeys) {
        return format!("{name} to be deleted").into();
    }
    name.into()
}

/// How metrics name the volume's class: by its field alone, as in the original and as for claims.
fn class_label(volume: &Volume) -> &str {
    &volume.spec.storage_class_name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_do_not_follow_the_older_annotation_of_the_class() {
        let volume = serde_json::from_value(json!({
            "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
            "spec": {"storageClassName": "new"},
        }))
        .unwrap();
        assert_eq!(class_label(&volume), "new");
        assert_eq!(class_label(&Volume::default()), "");
    }
}
