//! What is known of every volume in work.
//!
//! Owns the cache of volumes with something due, by name, the memory of how far deletions have
//! come (by UID, until the PersistentVolume is gone), and the index of the driver's handles.
//! Promises that volumes with nothing due cost no more than their place in that index, and that
//! each one going past is first compared with our claims.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::{
    finalizer::{Due, due},
    handles::Handles,
};
use crate::{
    controller::{claims::index::ClaimIndex, events::EVENT_LASTS, ownership::Identity},
    kube::{
        informer::{
            InformerEvent,
            cache::{Cache, Change},
        },
        objects::{View as _, Volume},
    },
    table::Table,
};

/// How long an event that nobody has looked at since is news.
const NEWS: Duration = Duration::from_secs(2);

/// Every volume in work. Clones share it.
#[derive(Clone)]
pub struct VolumeIndex(Arc<Shared>);

struct Shared {
    identity: Identity,
    claims: ClaimIndex,
    in_reach: InReach,
    key: Key,
    inner: Mutex<Inner>,
}

/// Whether a volume is for this process to look after.
type InReach = Box<dyn Fn(&Volume) -> bool + Send + Sync>;

/// What tells the driver's volumes apart; none for a volume that is no driver's of ours.
type Key = Box<dyn Fn(&Volume) -> Option<String> + Send + Sync>;

#[derive(Default)]
struct Inner {
    volumes: Cache<Arc<Volume>>,
    /// When a watch event showed a volume that nobody has looked at since; it may have been under
    /// way for any time before.
    sighted: Table<String, Instant>,
    /// How far the deletion of a volume has come, by UID: from when it is taken in hand until the
    /// PersistentVolume is gone, whether or not anything is due for it meanwhile.
    deletions: Cache<Deletion>,
    /// Every PersistentVolume of our driver, to find those that share a volume.
    handles: Handles,
}

/// How far the deletion of a volume has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Deletion {
    /// The driver was not asked, or has not deleted it yet.
    #[default]
    NotYet,
    /// The driver was not asked: the volume is attached, and whoever reads its events knows.
    Attached(AttachmentTold),
    /// The driver has deleted it and is not asked again.
    AtDriver,
    /// The PersistentVolume is removed as well: what still comes is an echo.
    Removed,
}

/// What a volume's user was told last of the node that it is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentTold {
    node: Arc<str>,
    at: Instant,
}

impl Deletion {
    /// Whether the driver still has the volume, as far as we know.
    pub fn is_ahead(&self) -> bool {
        matches!(self, Self::NotYet | Self::Attached(_))
    }

    /// The volume is attached to this node, which its user is to be told now: at once, when the node
    /// changes, and again before the event is forgotten.
    pub fn tell_attached(&self, node: &str) -> Option<Self> {
        let is_told =
            |told: &AttachmentTold| *told.node == *node && told.at.elapsed() < EVENT_LASTS;
        let is_known = matches!(self, Self::Attached(told) if is_told(told));
        (!is_known)
            .then(|| Self::Attached(AttachmentTold { node: node.into(), at: Instant::now() }))
    }
}

/// What a sighting asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Volumes to look at, by name.
    pub volumes: Vec<String>,
    /// Whether a volume is to be adopted, which can wait.
    pub adoption: bool,
    /// Claims to look at, by UID.
    pub claims: Vec<String>,
}

/// One volume as a worker finds it.
#[derive(Debug, Clone)]
pub struct VolumeState {
    /// The volume as last seen.
    pub volume: Arc<Volume>,
    /// When the watch showed that view, where nobody has looked at it since.
    sighted: Option<Instant>,
    /// How far its deletion has come.
    pub deletion: Deletion,
    /// Whether its deletion was taken in hand before.
    pub begun: bool,
}

impl VolumeState {
    /// Whether the view has just arrived; how old it is that does not say.
    pub fn is_news(&self) -> bool {
        self.sighted.is_some_and(|at| at.elapsed() < NEWS)
    }
}

impl VolumeIndex {
    /// An empty book, which tells `claims` of the volumes that go past and keeps those that are
    /// `in_reach`. Two with the same `key` are the same volume of the driver.
    pub fn new(
        identity: Identity,
        claims: ClaimIndex,
        in_reach: impl Fn(&Volume) -> bool + Send + Sync + 'static,
        key: impl Fn(&Volume) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let (in_reach, key) = (Box::new(in_reach), Box::new(key));
        let inner = Mutex::default();
        Self(Arc::new(Shared { identity, claims, in_reach, key, inner }))
    }

    /// Takes in what the volume watch shows.
    pub fn observe(&self, event: InformerEvent<Volume>) -> Wake {
        match event {
            InformerEvent::Init => {
                self.0.claims.volumes_restarted();
                let mut inner = self.0.inner.lock();
                inner.volumes.restarted();
                inner.deletions.restarted();
                inner.handles.restarted();
                Wake::default()
            }
            InformerEvent::InitApply(volume) => self.seen(volume, None),
            InformerEvent::Apply(volume) => self.seen(volume, Some(Instant::now())),
            InformerEvent::Delete(volume) => self.gone(&volume),
            InformerEvent::Unreadable { name, uid, .. } => {
                self.0.claims.unreadable_volume_passes(&name);
                let mut inner = self.0.inner.lock();
                inner.volumes.unreadable(&name);
                inner.deletions.unreadable(&uid);
                inner.handles.unreadable();
                Wake::default()
            }
            InformerEvent::InitDone => {
                let mut inner = self.0.inner.lock();
                let vanished = inner.volumes.complete();
                drop(inner.deletions.complete());
                inner.handles.complete();
                drop(inner);
                let mut wake = Wake::default();
                for volume in vanished {
                    let woken = self.gone(&volume);
                    wake.volumes.extend(woken.volumes);
                    wake.claims.extend(woken.claims);
                }
                wake.claims.extend(self.0.claims.volumes_listed());
                wake
            }
        }
    }

    fn seen(&self, volume: Volume, at: Option<Instant>) -> Wake {
        let closed = self.0.claims.volume_passes(&volume);
        let name = volume.name().to_owned();
        let due = self.0.due(&volume);
        let in_reach = (self.0.in_reach)(&volume);
        let interesting = due != Due::Nothing;
        let key = (self.0.key)(&volume);
        let mut inner = self.0.inner.lock();
        if let Some(key) = key {
            inner.handles.seen(&key, volume.uid());
        }
        // It exists: what is remembered of its deletion stays.
        inner.deletions.unreadable(volume.uid());
        match at.filter(|_| interesting) {
            Some(at) => inner.sighted.insert(name.clone(), at),
            None => inner.sighted.remove(&name),
        };
        let mut wake = match inner.volumes.seen(&name, interesting.then(|| Arc::new(volume))) {
            // Shown again by a new list: those that wait and back off are not woken for that.
            Change::Updated { old, new } if at.is_none() && new.is_same_version_as(&old) => {
                Wake::default()
            }
            Change::Entered(_) | Change::Updated { .. } if due == Due::Protect => {
                Wake { adoption: in_reach, ..Wake::default() }
            }
            Change::Entered(_) | Change::Updated { .. } => {
                Wake { volumes: vec![name], ..Wake::default() }
            }
            Change::Left(_) | Change::Gone(_) | Change::Nothing => Wake::default(),
        };
        wake.claims.extend(closed);
        wake
    }

    fn gone(&self, volume: &Volume) -> Wake {
        let mut inner = self.0.inner.lock();
        // A list may have shown its successor under this name before the watch comes to its end.
        if inner.volumes.get(volume.name()).is_none_or(|known| known.uid() == volume.uid()) {
            inner.volumes.deleted(volume.name());
            inner.sighted.remove(volume.name());
        }
        inner.deletions.deleted(volume.uid());
        let freed = self.0.freed(&mut inner, volume);
        drop(inner);
        let claims = self.0.claims.volume_gone(volume).into_iter().collect();
        Wake { volumes: freed, claims, ..Wake::default() }
    }

    /// One volume, as a worker needs it; none when nothing is due for it. The view is news once.
    pub fn snapshot(&self, name: &str) -> Option<VolumeState> {
        let mut inner = self.0.inner.lock();
        let volume = Arc::clone(inner.volumes.get(name)?);
        let sighted = inner.sighted.remove(name);
        let known = inner.deletions.get(volume.uid()).cloned();
        let begun = known.is_some();
        Some(VolumeState { volume, sighted, deletion: known.unwrap_or_default(), begun })
    }

    /// Whether another PersistentVolume may stand for the same volume of the driver, which `key`
    /// tells apart.
    pub fn may_share_handle(&self, key: &str, volume: &Volume) -> bool {
        self.0.inner.lock().handles.may_share(key, volume.uid())
    }

    /// The claim that the volume is for waits for another one: it is looked at once this one's
    /// PersistentVolume is gone (safety rule 13).
    pub fn claim_returns(&self, volume: &Volume) {
        self.0.claims.returns(volume);
    }

    /// The deletion of the volume is taken in hand.
    pub fn deletion_begins(&self, volume: &Volume) {
        let mut inner = self.0.inner.lock();
        if inner.deletions.get(volume.uid()).is_none() {
            inner.deletions.seen(volume.uid(), Some(Deletion::NotYet));
        }
    }

    /// The deletion of the volume has come this far. Not remembered of one whose end was seen
    /// meanwhile: nothing would make it forgotten again.
    pub fn deletion_reached(&self, volume: &Volume, deletion: Deletion) {
        let mut inner = self.0.inner.lock();
        if inner.deletions.get(volume.uid()).is_some() {
            inner.deletions.seen(volume.uid(), Some(deletion));
        }
    }

    /// The volume does not wait to be detached, or no longer.
    pub fn is_detached(&self, volume: &Volume) {
        let mut inner = self.0.inner.lock();
        if let Some(Deletion::Attached(_)) = inner.deletions.get(volume.uid()) {
            inner.deletions.seen(volume.uid(), Some(Deletion::NotYet));
        }
    }

    /// How many volumes wait to be detached.
    pub fn attached(&self) -> usize {
        let inner = self.0.inner.lock();
        let waits = |volume: &Volume| {
            let deletion = inner.deletions.get(volume.uid());
            due(volume) == Due::Delete && matches!(deletion, Some(Deletion::Attached(_)))
        };
        inner.volumes.iter().filter(|(_, volume)| waits(volume)).count()
    }

    /// Whether the volume's PersistentVolume is removed, and only its echo awaited.
    pub fn is_removed(&self, name: &str) -> bool {
        let inner = self.0.inner.lock();
        let deletion = inner.volumes.get(name).and_then(|it| inner.deletions.get(it.uid()));
        deletion == Some(&Deletion::Removed)
    }

    /// Every volume in work but those to be adopted.
    pub fn all(&self) -> Vec<String> {
        self.names(|volume| due(volume) != Due::Protect)
    }

    /// The volumes to be adopted: they lack the protection finalizer.
    pub fn to_adopt(&self) -> Vec<String> {
        self.names(|volume| due(volume) == Due::Protect && (self.0.in_reach)(volume))
    }

    /// The volumes that whoever reaches them has not adopted yet.
    pub fn orphans(&self) -> Vec<String> {
        self.names(|volume| due(volume) == Due::Protect && !(self.0.in_reach)(volume))
    }

    fn names(&self, such: impl Fn(&Volume) -> bool) -> Vec<String> {
        let inner = self.0.inner.lock();
        let volumes = inner.volumes.iter().filter(|(_, volume)| such(volume));
        volumes.map(|(name, _)| name.to_owned()).collect()
    }

    /// How many volumes are in work, and how many deleted ones are remembered.
    #[cfg(test)]
    fn len(&self) -> (usize, usize) {
        let inner = self.0.inner.lock();
        (inner.volumes.len(), inner.deletions.len())
    }
}

impl Shared {
    /// What is due here for a volume that goes past. Of those out of reach only the finalizer is
    /// looked after, since the process that reaches them may be gone for good.
    fn due(&self, volume: &Volume) -> Due {
        if !self.identity.owns_volume(volume) {
            return Due::Nothing;
        }
        match due(volume) {
            Due::Delete | Due::LetGo if !(self.in_reach)(volume) => Due::Nothing,
            due => due,
        }
    }

    /// The PersistentVolume is gone: the volumes in work that waited for its handle, by name.
    fn freed(&self, inner: &mut Inner, gone: &Volume) -> Vec<String> {
        let Some(key) = (self.key)(gone) else { return Vec::new() };
        inner.handles.deleted(&key, gone.uid());
        if !inner.handles.may_share(&key, gone.uid()) {
            return Vec::new();
        }
        let same = |volume: &Volume| (self.key)(volume).as_ref() == Some(&key);
        let waiting = inner.volumes.iter().filter(|(_, volume)| same(volume));
        waiting.map(|(name, _)| name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests;
