//! What is known of every claim in work: the claim as last seen, its state, its open request.
//!
//! Owns the one map from UID to [`ClaimState`], and feeds it from what the watches show.
//! Promises that a claim leaves the map only when nothing of it is open, and that a
//! PersistentVolume for a claim is noticed whatever its name. Leaves acting on it to `claims`.

mod attempts;
mod entry;
mod on_event;
mod records;
mod reported;
mod stood;
mod volumes;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use self::{
    entry::{Entry, Interest},
    stood::{ClaimSet, Stood},
};
use super::{
    call_record::{Record, RecordStatus},
    state::{ClaimState, Demand},
};
use crate::{
    controller::{
        model::unusable_volume::UnusableVolume, ownership::Identity, provisioner::ProvisionRequest,
    },
    kube::{
        informer::{InformerEvent, cache::Cache},
        objects::{Claim, View as _},
    },
    metrics::Census,
    table::Table,
};

/// Every claim in work. Clones share it.
#[derive(Clone)]
pub struct ClaimIndex(Arc<Shared>);

/// Names a claim's PersistentVolume by the claim's UID.
type Naming = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Told the UID of a claim that needs nothing any more of what its volume is made from.
type Closed = Box<dyn Fn(&str) + Send + Sync>;

struct Shared {
    identity: Identity,
    /// The name of a claim's PersistentVolume, from its UID.
    volume_name: Naming,
    inner: Mutex<Inner>,
}

struct Inner {
    closed: Closed,
    /// Whether this process works: records that others left are its to follow.
    working: bool,
    listed: Listed,
    /// While claims are listed beside their watch: whom that has shown since.
    shown_meanwhile: Option<ClaimSet>,
    names: Names,
    claims: Cache<Arc<Claim>>,
    entries: Table<String, Entry>,
    /// UIDs by the name of the PersistentVolume that the claim gets.
    by_volume: Table<String, String>,
    /// Claims that are not ours, or not yet, or not any more, and may have a PersistentVolume.
    stood: Stood,
}

/// Whether a claim still exists, bound or not, but for our mark; known beyond the end of its entry.
#[derive(Debug, Clone, Default)]
pub struct Existence(Arc<AtomicBool>);

impl Existence {
    /// Whether the claim's end was seen.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How far claims and PersistentVolumes are listed since this process works. Until both are, any claim
/// may have a PersistentVolume that nobody here has seen (safety rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Listed {
    /// They are not: claims are not, or PersistentVolumes not after them.
    #[default]
    NotYet,
    /// Claims are, beside a watch that began before: what it shows of this version and older is old. Of
    /// `None` nothing can be told.
    Claims(Option<u64>),
    /// Both are.
    Both(Option<u64>),
}

impl Listed {
    /// Whether a claim that is shown in this version, and was not listed, was born since.
    fn is_born_since(self, claim: &Claim) -> bool {
        let version = claim.metadata.resource_version.as_deref();
        match self {
            Self::Both(Some(listed)) => {
                version.and_then(|version| version.parse().ok()).is_some_and(|it: u64| it > listed)
            }
            Self::NotYet | Self::Claims(_) | Self::Both(None) => false,
        }
    }
}

/// Under which names PersistentVolumes of ours have gone past.
#[derive(Debug, Clone, Copy, Default)]
struct Names {
    /// Under those that look-ups try.
    usual: bool,
    /// Under others, of an earlier `--volume-name-prefix`.
    others: bool,
}

/// What must be read live before a claim's first call (safety rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verification {
    /// Nothing: the claim was born under our eyes.
    #[default]
    None,
    /// Whether it has a PersistentVolume already.
    Volume,
    /// The same, and whether the claim is still unbound.
    VolumeAndClaim,
    /// Whether it has a PersistentVolume of a name that no look-up tries: only the list of all of them
    /// tells, and there is no call before it is whole.
    Unlisted,
}

/// One claim as a worker finds it.
#[derive(Debug, Clone)]
pub struct ClaimSnapshot {
    /// The claim as last seen.
    pub claim: Arc<Claim>,
    /// Whether anybody still wants its volume.
    pub demand: Demand,
    /// Whether the driver may be asked for it now.
    pub may_call: bool,
    /// What must be read live first.
    pub verification: Verification,
    /// How often it was put in doubt before.
    pub doubted: u32,
    /// The request of the call that this process has open.
    pub order: Option<ProvisionRequest>,
    /// Whether a changed class and another node count though that is open (safety rule 3).
    pub loosened: bool,
    /// The record of a call that an earlier process left open and this one has not asked for yet.
    pub recorded: Option<Record>,
    /// The record of a call of another node's process.
    pub elsewhere: Option<Record>,
    /// The volume that it led to and that must go first.
    pub leftover: Option<Box<UnusableVolume>>,
    /// The handle of a volume that may have gone with another's PersistentVolume.
    pub bared: Option<String>,
}

/// How a claim stands with regard to its mark ([`super::call_record`]).
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not the states of one thing
pub struct RecordView {
    /// The claim as last seen.
    pub claim: Arc<Claim>,
    /// Whether a call is open, or what it made is neither saved nor removed.
    pub open: bool,
    /// Whether it is not known what came of that call, or whether its volume is still there.
    pub unknown: bool,
    /// What its mark means.
    pub mark: Option<RecordStatus>,
    /// Whether a mark on it is known: this process has put one on it, or follows the one it found.
    pub is_known: bool,
    /// Whether it has its PersistentVolume.
    pub is_served: bool,
    /// Whether anybody still wants its volume.
    pub demand: Demand,
    /// The request of the open call, where it is known.
    pub order: Option<ProvisionRequest>,
    /// The name of its volume.
    pub volume_name: String,
    /// How long ago it was first seen to be deleted.
    pub seen_deleted: Duration,
}

impl ClaimIndex {
    /// An empty book. `volume_name` names the PersistentVolume of the claim with a given UID.
    /// `closed` is told, at least once, of each claim that needs nothing any more of what its
    /// volume is made from; it must not call back.
    pub fn new(
        identity: Identity,
        volume_name: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        closed: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let inner = Mutex::new(Inner::new(Box::new(closed)));
        Self(Arc::new(Shared { identity, volume_name: Box::new(volume_name), inner }))
    }

    /// From now on this process works, and another one may have until now. What was shown before may be
    /// older than its last work: every claim is looked up before its first call, and a record that it
    /// carries is of a call to follow.
    pub fn begin_term(&self) {
        let mut inner = self.0.inner.lock();
        (inner.working, inner.listed) = (true, Listed::NotYet);
        inner.shown_meanwhile = Some(ClaimSet::default());
        let verification = inner.verification();
        for entry in inner.entries.values_mut() {
            entry.verification = Verification::None;
            entry.requires(verification);
            // A deleted claim is kept for as long as this process has worked, too.
            entry.deleted = entry.deleted.map(|_| Instant::now());
            entry.take_up_record();
        }
    }

    /// A list of all claims that was asked for since the term began shows this one, beside the watch: who
    /// is not known yet is taken in. Whom the watch has shown meanwhile it may have shown to go. Names the
    /// claims to look at now.
    pub fn stands(&self, event: InformerEvent<Claim>) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        match event {
            InformerEvent::InitApply(claim) if !inner.is_known(claim.uid()) => {
                self.seen(&mut inner, claim, true)
            }
            InformerEvent::Unreadable { uid, .. } => {
                inner.stood.insert(&uid);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Claims were listed since the term began, in this version where that is a number.
    pub fn claims_listed(&self, version: Option<u64>) {
        let mut inner = self.0.inner.lock();
        if inner.listed == Listed::NotYet && inner.working {
            inner.listed = Listed::Claims(version);
            inner.shown_meanwhile = None;
        }
    }

    /// After the claims PersistentVolumes were listed as well: a claim that is first seen from now on
    /// is born under our eyes. Names the claims that have waited for this.
    pub fn listed(&self) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        let Listed::Claims(version) = inner.listed else { return Vec::new() };
        inner.listed = Listed::Both(version);
        let waited = inner
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.verification == Verification::Unlisted);
        let waited = waited.map(|(uid, entry)| {
            entry.verification = Verification::VolumeAndClaim;
            uid.clone()
        });
        waited.collect()
    }

    /// The claims that wait for the list of all PersistentVolumes.
    pub fn unlisted(&self) -> Vec<String> {
        let inner = self.0.inner.lock();
        let waiting =
            inner.entries.iter().filter(|(_, entry)| entry.verification == Verification::Unlisted);
        waiting.map(|(uid, _)| uid.clone()).collect()
    }

    /// The key under which one actor at a time works for the claim: the name of its
    /// PersistentVolume, its UID where that makes no name; none when nothing is known of it.
    pub fn key(&self, uid: &str) -> Option<String> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(entry.volume_name.clone().unwrap_or_else(|| uid.to_owned()))
    }

    /// One claim, as a worker needs it; none when nothing is known of it.
    pub fn snapshot(&self, uid: &str) -> Option<ClaimSnapshot> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(ClaimSnapshot {
            claim: Arc::clone(&entry.claim),
            demand: entry.demand(),
            may_call: entry.state.may_call(),
            verification: entry.verification(),
            doubted: entry.doubted,
            order: entry.order.as_deref().cloned(),
            loosened: entry.state.is_loosened(),
            recorded: entry.recorded(),
            elsewhere: entry.elsewhere(),
            leftover: match &entry.state {
                ClaimState::Unusable(leftover) => Some(leftover.clone()),
                _ => None,
            },
            bared: match &entry.state {
                ClaimState::PvGone(handle) => Some(handle.clone()),
                _ => None,
            },
        })
    }

    /// How the claim stands with regard to its mark; none when nothing is known of it.
    pub fn standing(&self, uid: &str) -> Option<RecordView> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(RecordView {
            claim: Arc::clone(&entry.claim),
            open: entry.state.is_open(),
            unknown: entry.state.is_unknown(),
            mark: entry.mark.as_deref().cloned(),
            is_known: entry.mark_is_known,
            is_served: entry.state == ClaimState::Done,
            demand: entry.demand(),
            order: entry.order.as_deref().cloned(),
            volume_name: entry.volume_name.clone().unwrap_or_default(),
            seen_deleted: entry.deleted.map(|at| at.elapsed()).unwrap_or_default(),
        })
    }

    /// Whether a call for the claim is open, or what it made is neither saved nor removed.
    pub fn is_open(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.state.is_open())
    }

    /// Whether the claim bears the mark of an open call.
    pub fn is_marked(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.mark.is_some())
    }

    /// Whether the claim carries a record of this very request, by an answer of the API server to this
    /// process: an event may be older than the last write.
    pub fn is_recorded(&self, uid: &str, record: &Record) -> bool {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid).filter(|entry| entry.record_is_confirmed);
        let mark = entry.and_then(|entry| entry.mark.as_deref());
        matches!(mark, Some(RecordStatus::Open(mark)) if mark == record)
    }

    /// The claim's mark was to be changed or taken off, and the API server may have done so although it
    /// answered with an error.
    pub fn mark_is_doubtful(&self, uid: &str) {
        self.change(uid, |entry| entry.record_is_confirmed = false);
    }

    /// The claim's mark was written, or taken off.
    pub fn marked(&self, uid: &str, mark: Option<RecordStatus>) {
        self.change(uid, |entry| {
            entry.record_is_confirmed = matches!(mark, Some(RecordStatus::Open(_)));
            entry.mark = mark.map(Box::new);
        });
    }

    /// The claims that name this class.
    pub fn of_class(&self, class: &str) -> Vec<String> {
        let inner = self.0.inner.lock();
        let named = inner.entries.iter().filter(|(_, entry)| {
            crate::controller::ownership::class_of_claim(&entry.claim) == class
        });
        named.map(|(uid, _)| uid.clone()).collect()
    }

    /// Every claim in work.
    pub fn all(&self) -> Vec<String> {
        self.0.inner.lock().entries.keys().cloned().collect()
    }

    /// What will tell whether the claim still exists, whatever becomes of its entry.
    pub fn existence(&self, uid: &str) -> Existence {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).map(|entry| entry.existence.clone()).unwrap_or_default()
    }

    /// Whether the claim is being deleted, or gone: nobody can use its volume any more.
    pub fn is_leaving(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        let leaves = |entry: &Entry| entry.existence.is_over() || entry.claim.is_terminating();
        inner.entries.get(uid).is_none_or(leaves)
    }

    /// Whether the claim stands, unbound, and waits for its volume.
    pub fn is_wanted(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.demand() == Demand::Wanted)
    }

    /// Whether the claim still needs what its volume is made from.
    pub fn needs_source(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(Entry::needs_source)
    }

    /// Whether a call for the claim is open, here or by what its record says.
    pub fn may_have_open_call(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(Entry::may_have_open_call)
    }

    /// How long ago the claim was first seen; none when nothing is known of it.
    pub fn waited(&self, uid: &str) -> Option<Duration> {
        let inner = self.0.inner.lock();
        inner.entries.get(uid)?.since.map(|since| since.elapsed())
    }

    /// Counts the claims in work by where they stand.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for entry in self.0.inner.lock().entries.values() {
            let count = match entry.state {
                ClaimState::Waiting => &mut census.waiting,
                ClaimState::InFlight { .. } => &mut census.in_flight,
                ClaimState::Recorded | ClaimState::Background(_) | ClaimState::PvGone(_) => {
                    &mut census.background
                }
                ClaimState::Saving(_) => &mut census.saving,
                ClaimState::Unusable(_) => &mut census.unusable,
                ClaimState::Suspect => &mut census.suspect,
                ClaimState::Done => continue,
            };
            *count += 1;
            let age = entry.since.map(|since| since.elapsed()).unwrap_or_default();
            census.oldest = census.oldest.max(age);
        }
        census
    }

    /// The audit queues this claim, and nothing else has.
    pub fn resynced(&self, uid: &str) {
        self.change(uid, |entry| entry.resynced = true);
    }

    /// Whether the claim comes from the audit alone; asked once, when it is taken from its queue.
    pub fn take_resynced(&self, uid: &str) -> bool {
        self.change(uid, |entry| std::mem::take(&mut entry.resynced)).unwrap_or(false)
    }

    /// Whether the claim is gone for good: deleted, or bound to something.
    pub fn is_gone(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        let stands = |entry: &Entry| !entry.existence.is_over() && entry.claim.is_unbound();
        !inner.entries.get(uid).is_some_and(stands)
    }

    /// Whether the claim's volume still waits to be saved.
    pub fn is_saving(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| matches!(entry.state, ClaimState::Saving(_)))
    }

    fn change<T>(&self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.0.inner.lock().change(uid, change)
    }

    /// How many claims are in work.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.inner.lock().entries.len()
    }

    /// Whether no claim is in work.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn new(closed: Closed) -> Self {
        Self {
            closed,
            working: false,
            listed: Listed::default(),
            shown_meanwhile: None,
            names: Names::default(),
            claims: Cache::default(),
            entries: Table::default(),
            by_volume: Table::default(),
            stood: Stood::default(),
        }
    }

    /// Changes an entry, and lets it go when nothing holds it any more.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let result = change(self.entries.get_mut(uid)?);
        self.tidy(uid);
        Some(result)
    }

    /// What is in doubt about a claim that was not born under our eyes. Where PersistentVolumes of ours
    /// bear other names than look-ups try, or none was seen that says so, it may have one of any name.
    fn verification(&self) -> Verification {
        let is_listed = matches!(self.listed, Listed::Both(_));
        let are_usual = self.names.usual && !self.names.others;
        if is_listed || are_usual { Verification::VolumeAndClaim } else { Verification::Unlisted }
    }

    fn is_known(&self, uid: &str) -> bool {
        let is_shown = self.shown_meanwhile.as_ref().is_some_and(|shown| shown.contains(uid));
        is_shown
            || self.entries.contains_key(uid)
            || self.claims.get(uid).is_some()
            || self.stood.contains(uid)
    }

    /// Takes in a claim that was not known. `is_born`: under our eyes.
    fn enter(&mut self, uid: &str, volume_name: Option<String>, is_born: bool) {
        let verification = if is_born { Verification::None } else { self.verification() };
        if let Some(name) = &volume_name {
            self.by_volume.insert(name.clone(), uid.to_owned());
        }
        let since = Some(Instant::now());
        let entry = Entry { volume_name, verification, since, ..Entry::default() };
        self.entries.insert(uid.to_owned(), entry);
    }

    /// Clears what a closed call leaves and tells what needs its source no longer; lets a claim go
    /// that is of no interest with nothing open.
    fn tidy(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        // What a record alone tells of is asked for by the claim as it is.
        if !entry.state.is_open() || entry.state == ClaimState::Recorded {
            entry.order = None;
        }
        if !entry.needs_source() {
            (self.closed)(uid);
        }
        let is_kept = entry.interest != Interest::None || entry.superseded.is_some();
        if is_kept || entry.state.is_open() {
            return;
        }
        let Some(entry) = self.entries.remove(uid) else { return };
        // Two claims share a name where UIDs are cut short: the other one keeps it.
        if let Some(name) = entry
            .volume_name
            .filter(|name| self.by_volume.get(name).is_some_and(|owner| owner == uid))
        {
            self.by_volume.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests;
