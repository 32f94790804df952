//! The PersistentVolumes that need work.
//!
//! Keeps the PersistentVolumes for which something is due, by name, with the progress of their deletion. One
//! whose deletion has begun at the driver is kept until it is gone, even while nothing is due for it. Of any other
//! PersistentVolume of the driver it keeps two hashes, of the handle and of the UID: to delete a volume that
//! several PersistentVolumes stand for would destroy the others' data (safety rule 10).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    controller::{
        Key,
        attempts::FailedAttempt,
        model::finalizer::{Due, due},
        ownership::{ProvisionerIdentity, class_of_volume},
        provisioner::{Deleter, Failure, NotDeleted, VolumeHandle},
    },
    kube::{
        InformerEvent, Listed,
        informer::hash,
        objects::{View as _, Volume},
        take_vanished,
    },
    workqueue::Flow,
};

/// The PersistentVolumes that need work.
pub struct VolumeIndex<P> {
    identity: ProvisionerIdentity,
    /// Says whether this process can delete a volume, and which one it is at the driver.
    deleter: Arc<P>,
    /// Apart from the index of claims, which knows a PersistentVolume only by its claim.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// By name.
    volumes: BTreeMap<Key, VolumeEntry>,
    /// All PersistentVolumes of the driver, to find those that share a volume.
    handles: BTreeSet<HashedVolume>,
}

/// A PersistentVolume by the [`hash`] of its handle and that of its UID.
type HashedVolume = (u64, u64);

fn hashed(handle: &VolumeHandle, volume: &Volume) -> HashedVolume {
    (hash(handle.key()), hash(volume.uid()))
}

/// What is kept of a PersistentVolume.
#[derive(Debug, Clone)]
pub(in crate::controller) struct VolumeEntry {
    volume: Arc<Volume>,
    /// Whether something is due for it, as it was last seen.
    is_due: bool,
    pub(in crate::controller) deletion: Deletion,
    /// How the last attempt of its deletion failed, if nothing has succeeded since.
    pub(in crate::controller) failure: Option<Box<FailedAttempt>>,
}

/// The progress of a volume's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deletion {
    /// The driver has not deleted the volume.
    #[default]
    Pending,
    /// The driver has deleted the volume and is not called again.
    DeletedAtDriver,
    /// The PersistentVolume is deleted as well. Events about it may still arrive.
    Removed,
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
        let known = mem::take(&mut inner.handles).into_iter();
        // Collected in order, a set is packed more densely than as it has grown.
        inner.handles = known.filter(|(_, uid)| listed.contains_hash(*uid)).collect();
        let is_listed = |_: &_, entry: &VolumeEntry| listed.contains(entry.volume.uid());
        let gone = take_vanished(&mut inner.volumes, is_listed);
        gone.values().flat_map(|entry| self.on_gone(&mut inner, &entry.volume)).collect()
    }

    /// Applies a volume from a list (`is_from_list`), or from a watch event.
    fn on_apply(&self, volume: Volume, is_from_list: bool) -> Vec<Key> {
        let name = Key::from(volume.name());
        let is_due = self.due(&volume) != Due::Nothing;
        // It waits for the resync: the process that can reach it adds the finalizer.
        let is_for_others = self.is_for_resync(&volume);
        let handle = self.deleter.handle(&volume);
        let mut inner = self.inner.lock();
        if let Some(handle) = handle {
            inner.handles.insert(hashed(&handle, &volume));
        }
        // Another PersistentVolume that had the name is gone.
        let before = inner.volumes.remove(&name).filter(|it| it.volume.uid() == volume.uid());
        // A new list repeats unchanged volumes: those that back off are not woken for that.
        let is_repeated = is_from_list
            && before.as_ref().is_some_and(|it| it.is_due && volume.is_same_version_as(&it.volume));
        let new = VolumeEntry::new(Arc::new(volume), is_due);
        let entry = match before {
            Some(VolumeEntry { deletion, failure, .. }) => VolumeEntry { deletion, failure, ..new },
            None => new,
        };
        if is_due || entry.deletion != Deletion::Pending {
            inner.volumes.insert(Key::clone(&name), entry);
        }
        (is_due && !is_repeated && !is_for_others).then_some(name).into_iter().collect()
    }

    /// The PersistentVolume is gone. Returns the names of the kept volumes with the same handle, whose
    /// deletion may have waited for this.
    fn on_gone(&self, inner: &mut Inner, gone: &Volume) -> Vec<Key> {
        // A list may have added another PersistentVolume of this name before the watch reports the
        // deletion of this one.
        if inner.volumes.get(gone.name()).is_some_and(|entry| entry.volume.uid() == gone.uid()) {
            inner.volumes.remove(gone.name());
        }
        let Some(handle) = self.deleter.handle(gone) else { return Vec::new() };
        let own = hashed(&handle, gone);
        inner.handles.remove(&own);
        if !inner.may_share(own) {
            return Vec::new();
        }
        let has_same_handle =
            |volume: &Volume| self.deleter.handle(volume).as_ref() == Some(&handle);
        let waiting = inner.with_work().filter(|(_, entry)| has_same_handle(&entry.volume));
        waiting.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the volume of this name, as the watch last reported it; `None` if nothing is due for it.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        let inner = self.inner.lock();
        inner.volumes.get(name).filter(|entry| entry.is_due).map(|entry| Arc::clone(&entry.volume))
    }

    /// Whose volume it is, by class and namespace, and whether it comes after others: its deletion was tried
    /// before, or it only lacks the protection finalizer, which at the first start may be every volume.
    pub fn flow(&self, name: &str, id: &dyn Fn((&str, &str)) -> u64) -> Flow {
        let inner = self.inner.lock();
        let Some(VolumeEntry { volume, deletion, failure, .. }) = inner.volumes.get(name) else {
            return Flow::default();
        };
        let claim = volume.spec.claim_ref.as_ref();
        let namespace = claim.map_or("", |claim| &*claim.namespace);
        let is_tried = failure.is_some() || *deletion != Deletion::Pending;
        let is_repeat = is_tried || due(volume) == Due::Protect;
        Flow { id: id((class_of_volume(volume), namespace)), is_repeat }
    }

    /// Whether another PersistentVolume may have the same volume at the driver. Hashes may collide: a live list
    /// decides.
    pub fn may_share_handle(&self, handle: &VolumeHandle, volume: &Volume) -> bool {
        self.inner.lock().may_share(hashed(handle, volume))
    }

    /// Records the progress of the volume's deletion. Does nothing if the PersistentVolume is gone already, as
    /// the record would never be removed.
    pub fn set_deletion(&self, volume: &Arc<Volume>, deletion: Deletion) {
        let handle = self.deleter.handle(volume);
        let mut inner = self.inner.lock();
        let is_known = |handle| inner.handles.contains(&hashed(&handle, volume));
        if !inner.volumes.contains_key(volume.name()) && handle.is_some_and(is_known) {
            let entry = VolumeEntry::new(Arc::clone(volume), false);
            inner.volumes.insert(volume.name().into(), entry);
        }
        if let Some(entry) = inner.entry(volume) {
            (entry.deletion, entry.failure) = (deletion, None);
        }
    }

    /// Records how an attempt of the volume's deletion failed.
    pub fn set_failure(&self, volume: &Volume, failure: &Failure) {
        if let Some(entry) = self.inner.lock().entry(volume) {
            entry.failure = Some(Box::new(FailedAttempt::now(failure)));
        }
    }

    /// The number of volumes whose deletion waits for a detachment.
    pub fn attached_count(&self) -> usize {
        let is_attached = |volume: &Volume| {
            matches!(self.deleter.check_detached(volume), Err(NotDeleted::Attached { .. }))
        };
        let inner = self.inner.lock();
        let to_delete = inner.with_work().filter(|(_, entry)| due(&entry.volume) == Due::Delete);
        to_delete.filter(|(_, entry)| is_attached(&entry.volume)).count()
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
        self.inner.lock().volumes.get(name).map(|entry| entry.deletion).unwrap_or_default()
    }

    /// Lists up to `max` of the volumes to delete for which `is_asked_for` holds: first those that fail, then
    /// the others, by name. Returns the number of those that are not listed, too.
    pub(in crate::controller) fn to_delete(
        &self,
        max: usize,
        is_asked_for: impl Fn(&str) -> bool,
    ) -> (Vec<(Key, VolumeEntry)>, usize) {
        let inner = self.inner.lock();
        let is_listed = |(name, entry): &(&Key, &VolumeEntry)| {
            due(&entry.volume) == Due::Delete && is_asked_for(name)
        };
        let mut found: Vec<_> = inner.with_work().filter(is_listed).collect();
        found.sort_by_key(|(_, entry)| entry.failure.is_none());
        let more = found.len().saturating_sub(max);
        let listed = found.into_iter().take(max);
        (listed.map(|(name, entry)| (name.clone(), entry.clone())).collect(), more)
    }

    fn names(&self, predicate: impl Fn(&Volume) -> bool) -> Vec<Key> {
        let inner = self.inner.lock();
        let volumes = inner.with_work().filter(|(_, entry)| predicate(&entry.volume));
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
}

impl VolumeEntry {
    fn new(volume: Arc<Volume>, is_due: bool) -> Self {
        Self { volume, is_due, deletion: Deletion::Pending, failure: None }
    }
}

impl Inner {
    /// Whether another PersistentVolume may have the volume of this one.
    fn may_share(&self, own: HashedVolume) -> bool {
        let same = (own.0, u64::MIN)..=(own.0, u64::MAX);
        self.handles.range(same).any(|it| *it != own)
    }

    /// The volumes for which something is due.
    fn with_work(&self) -> impl Iterator<Item = (&Key, &VolumeEntry)> {
        self.volumes.iter().filter(|(_, entry)| entry.is_due)
    }

    /// What is kept of this PersistentVolume, not of another one of its name.
    fn entry(&mut self, volume: &Volume) -> Option<&mut VolumeEntry> {
        let entry = self.volumes.get_mut(volume.name())?;
        (entry.volume.uid() == volume.uid()).then_some(entry)
    }
}

#[cfg(test)]
mod tests;
