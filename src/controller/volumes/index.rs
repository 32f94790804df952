//! The PersistentVolumes that need work.
//!
//! Keeps the PersistentVolumes for which something is due, by name; the progress of each deletion, by UID,
//! until the PersistentVolume is gone; and the handles of all volumes of the driver. A PersistentVolume
//! with nothing due takes no memory but eight bytes for its handle.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::handles::{HandleIndex, HashedVolume};
use crate::{
    controller::{
        attempts::FailedAttempt,
        item::Key,
        model::finalizer::{Due, due},
        ownership::{ProvisionerIdentity, class_of_volume},
        provisioner::{Deleter, Failure, VolumeHandle},
    },
    kube::{
        InformerEvent, Listed,
        objects::{View as _, Volume},
    },
    workqueue::Flow,
};

/// After this time the event about a volume that is still attached is emitted and counted again.
const ATTACHED_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// The PersistentVolumes that need work.
pub struct VolumeIndex<P> {
    identity: ProvisionerIdentity,
    /// Says whether this process can delete a volume, and which one it is at the driver.
    deleter: Arc<P>,
    /// Not in the index of claims, which knows PersistentVolumes only by their claims.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    volumes: BTreeMap<Key, Arc<Volume>>,
    /// The progress of deletions by UID, from their start until the PersistentVolume is gone, even
    /// while nothing is due for it.
    deletions: BTreeMap<Key, Begun>,
    /// The handles of all PersistentVolumes of the driver, to find those that share a volume.
    handles: HandleIndex,
}

/// A deletion that has begun.
#[derive(Debug, Clone, Default)]
pub(in crate::controller) struct Begun {
    pub(in crate::controller) deletion: Deletion,
    /// How the last attempt failed, if nothing has succeeded since.
    pub(in crate::controller) failure: Option<Box<FailedAttempt>>,
}

/// The progress of a volume's deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Deletion {
    /// The driver has not deleted the volume.
    #[default]
    Pending,
    /// The driver was not called, because the volume is attached. An event about that was emitted.
    Attached(ReportedAttachment),
    /// The driver has deleted the volume and is not called again.
    DeletedAtDriver,
    /// The PersistentVolume is deleted as well. Events about it may still arrive.
    Removed,
}

/// The attachment that the last event was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedAttachment {
    node: Arc<str>,
    at: Instant,
}

impl Deletion {
    /// Whether the driver still has the volume, as far as is known.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending | Self::Attached(_))
    }

    /// Returns the new progress if an event is to be emitted now about the attachment to `node`: at
    /// first, when the node has changed, and when the last event is old.
    pub fn report_attached(&self, node: &str) -> Option<Self> {
        let is_current = |reported: &ReportedAttachment| {
            *reported.node == *node && reported.at.elapsed() < ATTACHED_INTERVAL
        };
        let is_reported = matches!(self, Self::Attached(reported) if is_current(reported));
        (!is_reported)
            .then(|| Self::Attached(ReportedAttachment { node: node.into(), at: Instant::now() }))
    }
}

impl<P: Deleter> VolumeIndex<P> {
    /// Creates an empty index.
    pub fn new(identity: ProvisionerIdentity, deleter: Arc<P>) -> Self {
        Self { identity, deleter, inner: Mutex::default() }
    }

    /// Applies an event of the informer. Returns the names of the volumes to queue.
    pub fn on_event(&self, event: InformerEvent<Volume>) -> Vec<Key> {
        match event {
            InformerEvent::InitApply(volume) => self.on_apply(volume, true),
            InformerEvent::Apply(volume) => self.on_apply(volume, false),
            InformerEvent::Delete(volume) => self.on_gone(&mut self.inner.lock(), &volume),
            InformerEvent::Unreadable { .. } => Vec::new(),
            InformerEvent::InitDone(listed) => self.on_listed(&listed),
        }
    }

    /// All PersistentVolumes are listed: the others are gone.
    fn on_listed(&self, listed: &Listed) -> Vec<Key> {
        let mut inner = self.inner.lock();
        inner.deletions.retain(|uid, _| listed.contains(uid));
        inner.handles.on_listed(listed);
        let is_gone = |_: &Key, volume: &mut Arc<Volume>| !listed.contains(volume.uid());
        let gone: Vec<_> = inner.volumes.extract_if(.., is_gone).collect();
        gone.iter().flat_map(|(_, volume)| self.on_gone(&mut inner, volume)).collect()
    }

    /// Applies a volume from a list (`is_from_list`), or from a watch event.
    fn on_apply(&self, volume: Volume, is_from_list: bool) -> Vec<Key> {
        let name = Key::from(volume.name());
        let due = self.due(&volume);
        // It waits for the resync: the process that can reach it adds the finalizer.
        let is_for_others = self.is_for_resync(&volume);
        let handle = self.deleter.handle(&volume);
        let mut inner = self.inner.lock();
        if let Some(handle) = handle {
            inner.handles.insert(HashedVolume::new(&handle, volume.uid()));
        }
        let volume = Arc::new(volume);
        let before = match due {
            Due::Nothing => inner.volumes.remove(&name),
            _ => inner.volumes.insert(Key::clone(&name), Arc::clone(&volume)),
        };
        // A new list repeats unchanged volumes: those that back off are not woken for that.
        let is_repeated =
            is_from_list && before.is_some_and(|before| volume.is_same_version_as(&before));
        let is_woken = due != Due::Nothing && !is_repeated && !is_for_others;
        is_woken.then_some(name).into_iter().collect()
    }

    /// The PersistentVolume is gone. Returns the names of the kept volumes with the same handle, whose
    /// deletion may have waited for this.
    fn on_gone(&self, inner: &mut Inner, gone: &Volume) -> Vec<Key> {
        // A list may have added another PersistentVolume of this name before the watch reports the
        // deletion of this one.
        if inner.volumes.get(gone.name()).is_none_or(|known| known.uid() == gone.uid()) {
            inner.volumes.remove(gone.name());
        }
        inner.deletions.remove(gone.uid());
        let Some(handle) = self.deleter.handle(gone) else { return Vec::new() };
        let own = HashedVolume::new(&handle, gone.uid());
        inner.handles.remove(own);
        if !inner.handles.may_share(own) {
            return Vec::new();
        }
        let has_same_handle =
            |volume: &Volume| self.deleter.handle(volume).as_ref() == Some(&handle);
        let waiting = inner.volumes.iter().filter(|(_, volume)| has_same_handle(volume));
        waiting.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the volume of this name, as the watch last reported it; `None` if nothing is due for it.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.inner.lock().volumes.get(name).cloned()
    }

    /// Whose volume it is, by class and namespace, and whether it comes after others: its deletion was begun
    /// before, or it only lacks the protection finalizer, which at the first start may be every volume.
    pub fn flow(&self, name: &str, id: &dyn Fn((&str, &str)) -> u64) -> Flow {
        let inner = self.inner.lock();
        let Some(volume) = inner.volumes.get(name) else { return Flow::default() };
        let claim = volume.spec.claim_ref.as_ref();
        let namespace = claim.map_or("", |claim| &*claim.namespace);
        let is_repeat = inner.deletions.get(volume.uid()).is_some() || due(volume) == Due::Protect;
        Flow { id: id((class_of_volume(volume), namespace)), is_repeat }
    }

    /// Whether another PersistentVolume may have the same volume at the driver.
    pub fn may_share_handle(&self, handle: &VolumeHandle, volume: &Volume) -> bool {
        self.inner.lock().handles.may_share(HashedVolume::new(handle, volume.uid()))
    }

    /// Records that the deletion of the volume begins.
    pub fn begin_deletion(&self, volume: &Volume) {
        let mut inner = self.inner.lock();
        if inner.deletions.get(volume.uid()).is_none() {
            inner.deletions.insert(volume.uid().into(), Begun::default());
        }
    }

    /// Records that the deletion of a volume begins that this PersistentVolume stands for, too. Does
    /// nothing if it is gone already, as the record would never be removed.
    pub fn begin_shared_deletion(&self, handle: &VolumeHandle, volume: &Volume) {
        let mut inner = self.inner.lock();
        let is_known = inner.handles.contains(HashedVolume::new(handle, volume.uid()));
        if is_known && inner.deletions.get(volume.uid()).is_none() {
            inner.deletions.insert(volume.uid().into(), Begun::default());
        }
    }

    /// Records the progress of a deletion that has begun. Does nothing if the PersistentVolume is gone
    /// already, as the record would never be removed.
    pub fn set_deletion(&self, volume: &Volume, deletion: Deletion) {
        if let Some(begun) = self.inner.lock().deletions.get_mut(volume.uid()) {
            *begun = Begun { deletion, failure: None };
        }
    }

    /// Records how an attempt of a deletion that has begun failed.
    pub fn set_failure(&self, volume: &Volume, failure: &Failure) {
        if let Some(begun) = self.inner.lock().deletions.get_mut(volume.uid()) {
            begun.failure = Some(Box::new(FailedAttempt::now(failure)));
        }
    }

    /// Records that the volume does not wait for its detachment.
    pub fn clear_attached(&self, volume: &Volume) {
        if let Some(begun) = self.inner.lock().deletions.get_mut(volume.uid())
            && matches!(begun.deletion, Deletion::Attached(_))
        {
            begun.deletion = Deletion::Pending;
        }
    }

    /// The number of volumes whose deletion waits for a detachment.
    pub fn attached_count(&self) -> usize {
        let inner = self.inner.lock();
        let is_waiting = |volume: &Volume| {
            let deletion = inner.deletions.get(volume.uid()).map(|begun| &begun.deletion);
            due(volume) == Due::Delete && matches!(deletion, Some(Deletion::Attached(_)))
        };
        inner.volumes.values().filter(|volume| is_waiting(volume)).count()
    }

    /// Returns the names of all volumes except those for the resync.
    pub fn all(&self) -> Vec<Key> {
        self.names(|volume| !self.is_for_resync(volume))
    }

    /// Returns the names of the volumes out of reach that lack the protection finalizer: the process that
    /// can reach them has not added it yet.
    pub fn to_protect_elsewhere(&self) -> Vec<Key> {
        self.names(|volume| self.is_for_resync(volume))
    }

    /// How far the deletion of the volume of this name is.
    pub fn deletion(&self, name: &str) -> Deletion {
        let inner = self.inner.lock();
        let begun = inner.volumes.get(name).and_then(|it| inner.deletions.get(it.uid()));
        begun.map(|begun| begun.deletion.clone()).unwrap_or_default()
    }

    /// Lists up to `max` of the volumes to delete for which `is_asked_for` holds: first those that fail, then
    /// the others, by name. Returns the number of those that are not listed, too.
    pub(in crate::controller) fn to_delete(
        &self,
        max: usize,
        is_asked_for: impl Fn(&str) -> bool,
    ) -> (Vec<(Key, Begun)>, usize) {
        let inner = self.inner.lock();
        let is_listed = |(name, volume): &(&Key, &Arc<Volume>)| {
            due(volume) == Due::Delete && is_asked_for(name)
        };
        let with_progress = |(name, volume): (&Key, &Arc<Volume>)| {
            (name.clone(), inner.deletions.get(volume.uid()))
        };
        let mut found: Vec<_> = inner.volumes.iter().filter(is_listed).map(with_progress).collect();
        found.sort_by_key(|(_, begun)| begun.is_none_or(|begun| begun.failure.is_none()));
        let more = found.len().saturating_sub(max);
        let listed = found.into_iter().take(max);
        (listed.map(|(name, begun)| (name, begun.cloned().unwrap_or_default())).collect(), more)
    }

    fn names(&self, predicate: impl Fn(&Volume) -> bool) -> Vec<Key> {
        let inner = self.inner.lock();
        let volumes = inner.volumes.iter().filter(|(_, volume)| predicate(volume));
        volumes.map(|(name, _)| name.clone()).collect()
    }

    /// What is due for this process to do for the volume. For volumes out of reach that is only the
    /// finalizer, as the process that can reach them may be gone for good.
    fn due(&self, volume: &Volume) -> Due {
        if !self.identity.owns_volume(volume) {
            return Due::Nothing;
        }
        match due(volume) {
            Due::Delete | Due::UnprotectUnbound if !self.deleter.should_delete(volume) => {
                Due::Nothing
            }
            due => due,
        }
    }

    /// Whether the volume only lacks the protection finalizer, and is out of reach.
    fn is_for_resync(&self, volume: &Volume) -> bool {
        due(volume) == Due::Protect && !self.deleter.should_delete(volume)
    }

    /// The number of volumes, and of deletions.
    #[cfg(test)]
    fn len(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.volumes.len(), inner.deletions.len())
    }
}

#[cfg(test)]
mod tests;
