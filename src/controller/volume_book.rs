//! What is known of every volume in work.
//!
//! Owns the cache of volumes with something due, by name, and the memory of how far deletions
//! have come (by UID, until the PersistentVolume is gone). Promises that volumes with nothing
//! due cost nothing, and that each one going past is first compared with our claims.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::{
    claim_book::ClaimBook,
    finalizers::{Due, due},
    ownership::Identity,
};
use crate::kube_api::{
    cache::{Cache, Change},
    reflector::Sighting,
    views::{View as _, Volume},
};

/// How old the event that made a deletion due may be for the view to be trusted (safety rule 10).
const FRESH: Duration = Duration::from_secs(2);

/// Every volume in work. Clones share it.
#[derive(Clone)]
pub struct VolumeBook(Arc<Shared>);

struct Shared {
    identity: Identity,
    claims: ClaimBook,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    volumes: Cache<Arc<Volume>>,
    /// When a watch event showed a volume that nobody has looked at since; a list does not tell
    /// how old its news is.
    sighted: BTreeMap<String, Instant>,
    /// How far the deletion of a volume has come, by UID: from when it is taken in hand until the
    /// PersistentVolume is gone, whether or not anything is due for it meanwhile.
    deletions: Cache<Deletion>,
}

/// How far the deletion of a volume has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deletion {
    /// The driver was not asked, or has not deleted it yet.
    #[default]
    NotYet,
    /// The driver has deleted it and is not asked again.
    AtDriver,
    /// The PersistentVolume is removed as well: what still comes is an echo.
    Removed,
}

/// What a sighting asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Volumes to look at, by name.
    pub volumes: Vec<String>,
    /// Claims to look at, by UID.
    pub claims: Vec<String>,
}

/// One volume as a worker finds it.
#[derive(Debug, Clone)]
pub struct Glance {
    /// The volume as last seen.
    pub volume: Arc<Volume>,
    /// Whether that view may be acted on without reading it live.
    pub fresh: bool,
    /// How far its deletion has come.
    pub deletion: Deletion,
}

impl VolumeBook {
    /// An empty book, which tells `claims` of the volumes that go past.
    pub fn new(identity: Identity, claims: ClaimBook) -> Self {
        Self(Arc::new(Shared { identity, claims, inner: Mutex::default() }))
    }

    /// Takes in what the volume watch shows.
    pub fn observe(&self, sighting: Sighting<Volume>) -> Wake {
        match sighting {
            Sighting::Restarted => {
                self.0.claims.volumes_restarted();
                let mut inner = self.0.inner.lock();
                inner.volumes.restarted();
                inner.deletions.restarted();
                Wake::default()
            }
            Sighting::Listed(volume) => self.seen(volume, None),
            Sighting::Applied(volume) => self.seen(volume, Some(Instant::now())),
            Sighting::Deleted(volume) => self.gone(&volume),
            Sighting::Unreadable { name, uid, .. } => {
                let mut inner = self.0.inner.lock();
                inner.volumes.unreadable(&name);
                inner.deletions.unreadable(&uid);
                Wake::default()
            }
            Sighting::Complete => {
                let mut inner = self.0.inner.lock();
                let vanished = inner.volumes.complete();
                drop(inner.deletions.complete());
                drop(inner);
                let mut wake = Wake::default();
                for volume in vanished {
                    wake.claims.extend(self.gone(&volume).claims);
                }
                self.0.claims.volumes_listed();
                wake
            }
        }
    }

    fn seen(&self, volume: Volume, at: Option<Instant>) -> Wake {
        let closed = self.0.claims.volume_passes(&volume);
        let name = volume.name().to_owned();
        let interesting = self.0.identity.owns_volume(&volume) && due(&volume) != Due::Nothing;
        let mut inner = self.0.inner.lock();
        // It exists: what is remembered of its deletion stays.
        inner.deletions.unreadable(volume.uid());
        match at.filter(|_| interesting) {
            Some(at) => inner.sighted.insert(name.clone(), at),
            None => inner.sighted.remove(&name),
        };
        let volumes = match inner.volumes.seen(&name, interesting.then(|| Arc::new(volume))) {
            Change::Entered(_) | Change::Updated { .. } => vec![name],
            Change::Left(_) | Change::Gone(_) | Change::Nothing => Vec::new(),
        };
        Wake { volumes, claims: closed.into_iter().collect() }
    }

    fn gone(&self, volume: &Volume) -> Wake {
        let mut inner = self.0.inner.lock();
        inner.volumes.deleted(volume.name());
        inner.sighted.remove(volume.name());
        inner.deletions.deleted(volume.uid());
        drop(inner);
        Wake {
            volumes: Vec::new(),
            claims: self.0.claims.volume_gone(volume).into_iter().collect(),
        }
    }

    /// One volume, as a worker needs it; none when nothing is due for it. The view counts as
    /// fresh once: whoever comes again has waited.
    pub fn glance(&self, name: &str) -> Option<Glance> {
        let mut inner = self.0.inner.lock();
        let volume = Arc::clone(inner.volumes.get(name)?);
        let fresh = inner.sighted.remove(name).is_some_and(|at| at.elapsed() < FRESH);
        let deletion = inner.deletions.get(volume.uid()).copied().unwrap_or_default();
        Some(Glance { volume, fresh, deletion })
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

    /// Whether the volume's PersistentVolume is removed, and only its echo awaited.
    pub fn is_removed(&self, name: &str) -> bool {
        let inner = self.0.inner.lock();
        let deletion = inner.volumes.get(name).and_then(|it| inner.deletions.get(it.uid()));
        deletion == Some(&Deletion::Removed)
    }

    /// Every volume in work.
    pub fn all(&self) -> Vec<String> {
        self.0.inner.lock().volumes.iter().map(|(name, _)| name.to_owned()).collect()
    }

    /// How many volumes are in work, and how many deleted ones are remembered.
    #[cfg(test)]
    fn len(&self) -> (usize, usize) {
        let inner = self.0.inner.lock();
        (inner.volumes.len(), inner.deletions.len())
    }
}

#[cfg(test)]
mod tests;
