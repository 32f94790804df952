//! How old at most what the watch of PersistentVolumes shows is.
//!
//! Owns the proof (safety rule 10): when an event arrived says nothing of its age, for it may have
//! waited in a watch that stood still. What a write of our own made does: it came into being after
//! the write was sent, and once the watch has shown it, or anything newer, all that the watch has
//! shown up to there was still so when the write was sent, or became so later. Promises that nothing is
//! believed without that: versions that are no numbers, answers that may tell of somebody else's
//! write, and a list that is not whole yet prove nothing. Leaves to its callers what they read
//! live instead.
//!
//! Versions are compared among PersistentVolumes only, in which they grow with each write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::{
    kube_api::{reflector::Sighting, views::Volume},
    runtime::Clock,
};

/// How long ago the write may have been sent for the view to be trusted.
const FRESH: Duration = Duration::from_secs(2);

/// How old at most what the watch shows is. Clones share it.
#[derive(Clone)]
pub struct Freshness {
    /// Counts a suspended machine, during which views age as well.
    clock: Arc<dyn Clock>,
    proof: Arc<Mutex<Proof>>,
}

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
        Self { clock, proof: Arc::default() }
    }

    /// Taken right before a request is sent.
    pub fn sending(&self) -> Sent {
        Sent { at: self.clock.boot(), shown: self.proof.lock().shown }
    }

    /// The answer to a POST sent at `sent` was this PersistentVolume.
    pub fn created(&self, sent: Sent, made: &Volume) {
        if let Some(version) = version_of(&made.metadata) {
            self.proof.lock().written(sent, version);
        }
    }

    /// The answer to a request sent at `sent` showed the PersistentVolume `before`, and that to a later
    /// one `after`. If it has changed, then since the first: whoever wrote it, us or somebody else.
    pub fn changed(&self, sent: Sent, before: &ObjectMeta, after: &ObjectMeta) {
        if let (Some(before), Some(after)) = (version_of(before), version_of(after))
            && before < after
        {
            self.proof.lock().written(sent, after);
        }
    }

    /// The watch has shown this, and whoever keeps it has taken it in.
    pub fn shown(&self, sighting: Shown) {
        self.proof.lock().shown(sighting);
    }

    /// Whether what the watch has shown is proven to be at most two seconds old.
    pub fn is_proven(&self) -> bool {
        self.proof.lock().is_younger(FRESH, self.clock.boot())
    }
}

/// What a sighting says of how far the watch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// A list begins.
    Restarted,
    /// An object in it or a change of one, in this version, where it has one that is a number.
    Version(Option<u64>),
    /// The list is whole.
    Complete,
}

impl Shown {
    /// What `sighting` says.
    pub fn by(sighting: &Sighting<Volume>) -> Self {
        match sighting {
            Sighting::Restarted => Self::Restarted,
            Sighting::Complete => Self::Complete,
            Sighting::Listed(volume) | Sighting::Applied(volume) | Sighting::Deleted(volume) => {
                Self::Version(version_of(&volume.metadata))
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
    /// leaves when the next comes.
    awaited: BTreeMap<u64, Sent>,
}

impl Proof {
    fn written(&mut self, sent: Sent, version: u64) {
        // What is written later has a greater version, unless the server's storage was put back to
        // an earlier state meanwhile.
        if version <= sent.shown {
            return;
        }
        self.awaited.retain(|_, earlier| earlier.at + FRESH > sent.at);
        let latest = self.awaited.entry(version).or_insert(sent);
        *latest = sent.max(*latest);
        self.prove();
    }

    fn shown(&mut self, sighting: Shown) {
        match sighting {
            Shown::Restarted => (self.whole, self.shown, self.proven) = (false, 0, None),
            Shown::Version(version) => self.shown = self.shown.max(version.unwrap_or_default()),
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
