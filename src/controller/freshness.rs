//! How old at most what the watch of PersistentVolumes shows is.
//!
//! Owns the proof (safety rule 10): when an event arrived says nothing of its age, for it may have
//! waited in a watch that stood still. What a write of our own made does: it came into being after
//! the write was sent, and once the watch has shown it, or anything newer, all that the watch has
//! shown up to there was still so when the write was sent, or became so later. The end of what
//! our write has still found is as good, whoever brought it about: the one that takes the last
//! finalizer off is answered with the version before, and only the watch tells that of the end.
//! Promises that nothing is believed without that: versions that are no numbers, answers that may
//! tell of somebody else's write, and a list that is not whole yet prove nothing. Leaves to its
//! callers what they read live instead; of many who would at about the same time, most are kept
//! waiting for a moment, since the first of them prove the view for the rest.
//!
//! Versions are compared among PersistentVolumes only, in which they grow with each write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedMutexGuard},
    time::timeout,
};

use crate::{
    kube_api::{
        reflector::Sighting,
        views::{View as _, Volume},
    },
    runtime::Clock,
};

/// How long ago the write may have been sent for the view to be trusted.
const FRESH: Duration = Duration::from_secs(2);

/// For how long at most a proof by others is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// So many within that time don't wait.
const FIRST: usize = 16;

/// How old at most what the watch shows is. Clones share it.
#[derive(Clone)]
pub struct Freshness {
    /// Counts a suspended machine, during which views age as well.
    clock: Arc<dyn Clock>,
    proof: Arc<Mutex<Proof>>,
    /// Told of each proof.
    proved: Arc<Notify>,
    /// When those who did not wait came.
    first: Arc<Mutex<Vec<Duration>>>,
    /// Whose turn it is to look.
    turn: Arc<Turn>,
}

/// Fair: who came first goes first.
type Turn = tokio::sync::Mutex<()>;

/// When a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// On [`Clock::boot`].
    at: Duration,
    /// The newest version that the watch had shown by then.
    shown: u64,
}

impl Freshness {
    /// Of a watch that has shown nothing yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (proof, proved) = (Arc::default(), Arc::default());
        let (first, turn) = (Arc::default(), Arc::default());
        Self { clock, proof, proved, first, turn }
    }

    /// Taken right before a request is sent.
    pub fn sending(&self) -> Sent {
        Sent { at: self.clock.boot(), shown: self.proof.lock().shown }
    }

    /// The answer to a POST sent at `sent` was this PersistentVolume.
    pub fn created(&self, sent: Sent, made: &Volume) {
        if let Some(version) = version_of(&made.metadata) {
            self.change(|proof| proof.written(sent, version));
        }
    }

    /// A request that helps the PersistentVolume of this UID to its end is about to be sent.
    pub fn ending(&self, uid: &str) {
        let sent = self.sending();
        self.change(|proof| proof.ending(uid, sent));
    }

    /// That request has succeeded: the PersistentVolume was there when it was carried out.
    pub fn stood(&self, uid: &str) {
        self.change(|proof| proof.stood(uid));
    }

    /// The watch has shown this, and whoever keeps it has taken it in.
    pub fn shown(&self, sighting: Shown) {
        self.change(|proof| proof.shown(sighting));
    }

    /// Whether what the watch has shown is proven to be at most two seconds old.
    pub fn is_proven(&self) -> bool {
        self.proof.lock().is_younger(FRESH, self.clock.boot())
    }

    /// Now, on [`Clock::boot`].
    pub fn now(&self) -> Duration {
        self.clock.boot()
    }

    /// Whether what was so at `time` or later, on [`Clock::boot`], was so at most two seconds ago: an
    /// answer may have been under way for longer, or have waited for a process that stood still.
    pub fn is_recent(&self, time: Duration) -> bool {
        self.clock.boot() < time + FRESH
    }

    /// Waits until it is proven, for half a second at most, and not at all where only few others
    /// have come in that time: they are about to write, and that proves it for all.
    pub async fn wait(&self) {
        if self.is_proven() || self.is_among_the_first() {
            return;
        }
        // In vain or not: whoever waited looks for himself.
        let _ = timeout(PATIENCE, self.proven()).await;
    }

    /// Waits for the turn to look, which ends when what is returned is dropped: requests that are
    /// under way together may be answered in any order, and volumes are deleted in the order in
    /// which they were released. `None` where somebody takes half a second for it.
    pub async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        timeout(PATIENCE, Arc::clone(&self.turn).lock_owned()).await.ok()
    }

    /// Waits until it is proven.
    pub async fn proven(&self) {
        loop {
            // Made before looking, so that a proof between looking and waiting is not missed.
            let proved = self.proved.notified();
            if self.is_proven() {
                return;
            }
            proved.await;
        }
    }

    fn is_among_the_first(&self) -> bool {
        let now = self.clock.boot();
        let mut first = self.first.lock();
        first.retain(|came| now < *came + PATIENCE);
        let is_one = first.len() < FIRST;
        if is_one {
            first.push(now);
        }
        is_one
    }

    fn change(&self, change: impl FnOnce(&mut Proof)) {
        let mut proof = self.proof.lock();
        let before = proof.proven;
        change(&mut proof);
        if proof.proven != before {
            self.proved.notify_waiters();
        }
    }
}

/// What a sighting says of how far the watch has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A list begins.
    Restarted,
    /// An object in it or a change of one, in this version, where it has one that is a number.
    Version(Option<u64>),
    /// The end of the object of this UID, in this version.
    Gone(String, Option<u64>),
    /// The list is whole.
    Complete,
}

impl Shown {
    /// What `sighting` says.
    pub fn by(sighting: &Sighting<Volume>) -> Self {
        match sighting {
            Sighting::Restarted => Self::Restarted,
            Sighting::Complete => Self::Complete,
            Sighting::Listed(volume) | Sighting::Applied(volume) => {
                Self::Version(version_of(&volume.metadata))
            }
            Sighting::Deleted(volume) => {
                Self::Gone(volume.uid().to_owned(), version_of(&volume.metadata))
            }
            Sighting::Unreadable { .. } => Self::Version(None),
        }
    }
}

/// The object's version, where it is a number.
pub(super) fn version_of(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

/// What was written, what was shown, and what follows.
#[derive(Debug, Default)]
struct Proof {
    /// Whether the first list or a newer one is whole: until then it has not shown all there is.
    whole: bool,
    /// The newest version shown since the list began.
    shown: u64,
    /// When the newest of our writes that was shown was sent.
    proven: Option<Sent>,
    /// What is still to be shown: when it was sent, by version. What is too old to prove anything
    /// leaves when the next comes, once all before it have left.
    awaited: BTreeMap<u64, Sent>,
    /// What we help to its end, by UID, until that proves something or is too old to.
    ends: BTreeMap<String, End>,
}

/// How much is known of the end of a PersistentVolume for which a request was sent then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing yet.
    Asked(Sent),
    /// It is later than that: the request has found the object.
    Later(Sent),
    /// It made this version; whether it is later than that is not known yet.
    Shown(Sent, u64),
}

impl End {
    fn sent(self) -> Sent {
        match self {
            Self::Asked(sent) | Self::Later(sent) | Self::Shown(sent, _) => sent,
        }
    }
}

impl Proof {
    fn written(&mut self, sent: Sent, version: u64) {
        // What is written later has a greater version, unless the server's storage was put back to
        // an earlier state meanwhile.
        if version <= sent.shown {
            return;
        }
        self.forget_before(sent);
        let latest = self.awaited.entry(version).or_insert(sent);
        *latest = sent.max(*latest);
        self.prove();
    }

    /// Forgets what is too old at `sent` to prove anything, up to the first that is not: versions grow
    /// with time, and whoever looked through all of them would do so at every write of a burst.
    fn forget_before(&mut self, sent: Sent) {
        while let Some(first) = self.awaited.first_entry()
            && first.get().at + FRESH <= sent.at
        {
            first.remove();
        }
    }

    fn ending(&mut self, uid: &str, sent: Sent) {
        self.ends.retain(|_, earlier| earlier.sent().at + FRESH > sent.at);
        self.ends.insert(uid.to_owned(), End::Asked(sent));
    }

    fn stood(&mut self, uid: &str) {
        match self.ends.remove(uid) {
            Some(End::Shown(sent, version)) => self.written(sent, version),
            Some(End::Asked(sent) | End::Later(sent)) => {
                self.ends.insert(uid.to_owned(), End::Later(sent));
            }
            None => {}
        }
    }

    fn gone(&mut self, uid: String, version: u64) {
        match self.ends.remove(&uid) {
            Some(End::Later(sent)) => self.written(sent, version),
            Some(End::Asked(sent) | End::Shown(sent, _)) => {
                self.ends.insert(uid, End::Shown(sent, version));
            }
            None => {}
        }
    }

    fn shown(&mut self, sighting: Shown) {
        match sighting {
            Shown::Restarted => (self.whole, self.shown, self.proven) = (false, 0, None),
            Shown::Version(version) => self.shown = self.shown.max(version.unwrap_or_default()),
            Shown::Gone(uid, version) => {
                let version = version.unwrap_or_default();
                self.shown = self.shown.max(version);
                self.gone(uid, version);
            }
            Shown::Complete => self.whole = true,
        }
        self.prove();
    }

    fn prove(&mut self) {
        if !self.whole {
            return;
        }
        while let Some(next) = self.awaited.first_entry()
            && *next.key() <= self.shown
        {
            self.proven = self.proven.max(Some(next.remove()));
        }
    }

    fn is_younger(&self, age: Duration, now: Duration) -> bool {
        self.proven.is_some_and(|sent| now < sent.at + age)
    }
}

#[cfg(test)]
mod tests;
