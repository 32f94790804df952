//! The part of the volume worker that looks at other PersistentVolumes of the same volume at the driver
//! (safety rule 10).
//!
//! A volume is deleted only when each PersistentVolume that stands for it is due for deletion by this
//! process, by a live read. Then one DeleteVolume serves all of them.

use std::{ops::ControlFlow, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Duration;

use super::{index::Deletion, sync::VolumeWorker};
use crate::{
    controller::{
        model::{
            finalizer::{Due, due},
            unsaved_volume::UnsavedVolume,
        },
        provisioner::{Deleter, Failure, NotDeleted, VolumeHandle},
    },
    kube::{
        Scope,
        objects::{View as _, Volume},
    },
    workqueue::KeyedMutexGuard,
};

/// How many sharers are read at once.
const READS_AT_ONCE: usize = 16;

/// The volume at the driver that a PersistentVolume stands for, while no other worker deletes it.
pub(super) struct HandleLock {
    handle: Option<VolumeHandle>,
    _lock: Option<KeyedMutexGuard>,
}

impl<P: Deleter> VolumeWorker<P> {
    /// Holds the volume at the driver. `None` if another worker deletes it now for another
    /// PersistentVolume.
    pub(super) fn hold_handle(&self, volume: &Volume) -> Option<HandleLock> {
        // Without one, preparing the deletion fails with the reason.
        let Some(handle) = self.deps.provisioner.handle(volume) else {
            return Some(HandleLock { handle: None, _lock: None });
        };
        // No PersistentVolume has a name with a space.
        let lock = self.claims.volume_keys().try_lock(&format!("handle {}", handle.key()))?;
        Some(HandleLock { handle: Some(handle), _lock: Some(lock) })
    }

    /// Lists the other PersistentVolumes of the volume.
    ///
    /// # Errors
    /// One of them is not due for deletion, or is being saved.
    pub(super) async fn list_sharers(
        &self,
        volume: &Volume,
        held: &HandleLock,
    ) -> Result<Vec<Volume>, NotDeleted> {
        let Some(handle) = &held.handle else { return Ok(Vec::new()) };
        self.check_unsaved(volume, held)?;
        if !self.index.may_share_handle(handle, volume) {
            return Ok(Vec::new());
        }
        let mut sharers = Vec::new();
        let mut blocking = None;
        let collect = |other: Volume| {
            let has_same = self.deps.provisioner.handle(&other).is_some_and(|it| it == *handle);
            if !has_same || other.uid() == volume.uid() {
                return ControlFlow::Continue(());
            }
            if self.must_delete(&other) {
                sharers.push(other);
                return ControlFlow::Continue(());
            }
            blocking = Some(other.name().to_owned());
            ControlFlow::Break(())
        };
        self.deps.client.list(&Scope::all(), collect).await?;
        match blocking {
            Some(name) => Err(stands_for_it_too(handle, &format!("PersistentVolume {name:?}"))),
            None => Ok(sharers),
        }
    }

    /// Whether this process deletes the volume because of this PersistentVolume as well.
    fn must_delete(&self, volume: &Volume) -> bool {
        let is_ours =
            self.deps.identity.owns_volume(volume) && self.deps.provisioner.should_delete(volume);
        is_ours && due(volume) == Due::Delete
    }

    /// Reads the sharers live, and returns those that are still there, with when each request was sent.
    ///
    /// # Errors
    /// One of them is not due for deletion any more, or could not be read.
    pub(super) async fn read_sharers(
        &self,
        sharers: Vec<Volume>,
        held: &HandleLock,
    ) -> Result<Vec<(Volume, Duration)>, NotDeleted> {
        let reads = stream::iter(sharers).map(|sharer| async move {
            match self.read_live_with_time(&sharer).await.map_err(NotDeleted::from)? {
                Some((live, _)) if !self.must_delete(&live) => Err(held.refused_for(&live)),
                live => Ok(live),
            }
        });
        let live: Vec<Option<_>> = reads.buffered(READS_AT_ONCE).try_collect().await?;
        Ok(live.into_iter().flatten().collect())
    }

    /// The last look at the other PersistentVolumes of the volume, by what this process knows, without a
    /// wait before the call.
    ///
    /// # Errors
    /// One of them is attached, or is being saved.
    pub(super) fn check_sharers(
        &self,
        volume: &Volume,
        sharers: &[Volume],
        held: &HandleLock,
    ) -> Result<(), NotDeleted> {
        self.check_unsaved(volume, held)?;
        for sharer in sharers {
            self.deps.provisioner.check_detached(sharer).map_err(|why| match why {
                NotDeleted::Attached { node } => held.refused_for_attached(sharer, &node),
                failed @ NotDeleted::Failed(_) => failed,
            })?;
        }
        Ok(())
    }

    /// Fails if a PersistentVolume of another name is being saved for the volume.
    fn check_unsaved(&self, volume: &Volume, held: &HandleLock) -> Result<(), NotDeleted> {
        let Some(handle) = &held.handle else { return Ok(()) };
        let is_another = |it: &UnsavedVolume| it.handle == *handle && it.name() != volume.name();
        if self.claims.any_unsaved(is_another) {
            return Err(stands_for_it_too(handle, "a PersistentVolume that is being saved"));
        }
        Ok(())
    }

    /// Records that the driver has deleted the volume of the sharers. The end of the PersistentVolume that
    /// was deleted wakes them. One with another ID, such as a disk's in a project that the other does not name,
    /// has a DeleteVolume of its own: it may be another volume after all.
    pub(super) fn deleted_with(&self, sharers: Vec<Volume>, held: &HandleLock) {
        let Some(deleted) = &held.handle else { return };
        for sharer in sharers {
            if self.deps.provisioner.handle(&sharer).is_some_and(|it| it.id() == deleted.id()) {
                self.index.set_deletion(&Arc::new(sharer), Deletion::DeletedAtDriver);
            }
        }
    }
}

impl HandleLock {
    fn refused_for(&self, sharer: &Volume) -> NotDeleted {
        let handle = self.handle.clone().unwrap_or_default();
        stands_for_it_too(&handle, &format!("PersistentVolume {:?}", sharer.name()))
    }

    fn refused_for_attached(&self, sharer: &Volume, node: &str) -> NotDeleted {
        let handle = self.handle.clone().unwrap_or_default();
        let sharer = sharer.name();
        NotDeleted::Failed(Failure::new(format!(
            "the volume {handle:?} is not deleted: PersistentVolume {sharer:?}, which stands for it, too, is still attached to node {node}"
        )))
    }
}

fn stands_for_it_too(handle: &VolumeHandle, other: &str) -> NotDeleted {
    NotDeleted::Failed(Failure::new(format!(
        "the volume {handle:?} is not deleted: {other} stands for it, too. To keep it, set this PersistentVolume's reclaim policy to Retain and delete it"
    )))
}
