//! The index of claims: what this process knows of every claim that it works on.
//!
//! The index maps the UID of a claim to its entry: the newest version of the claim, the state of
//! its volume ([`ClaimState`]), the request of its open call and the record that it carries. Events
//! of claims and of PersistentVolumes update it, and so do the results of provisioning attempts.
//! One lock guards it.
//!
//! * A claim stays in the index while a call for it is open, even after the claim is deleted.
//! * A PersistentVolume is matched with its claim by the UID in `claimRef`, whatever its name is.
//!
//! The methods are split by their source: `on_event` for claim events, `volumes` for
//! PersistentVolume events, `attempts` for provisioning attempts, `records` for records of open
//! calls, `reported` for what users were told. The index does not act: it returns the UIDs of the
//! claims that must be queued.

mod attempts;
mod entry;
mod on_event;
mod others;
mod records;
mod reported;
mod volumes;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use self::{
    entry::{Entry, Interest},
    others::{ChangedClaims, OtherClaims},
};
use super::{
    call_record::{Record, RecordStatus},
    state::{ClaimState, Demand},
};
use crate::{
    controller::{
        model::unusable_volume::UnusableVolume, ownership::ProvisionerIdentity,
        provisioner::ProvisionRequest,
    },
    kube::{
        informer::{InformerEvent, cache::Cache},
        objects::{Claim, View as _},
    },
    metrics::Census,
    table::Table,
};

/// The index of claims. Clones share its content.
#[derive(Clone)]
pub struct ClaimIndex(Arc<Shared>);

/// Returns the name of a claim's PersistentVolume, given the claim's UID.
type Naming = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Called with the UID of a claim that no longer needs the source of its volume.
type Closed = Box<dyn Fn(&str) + Send + Sync>;

struct Shared {
    identity: ProvisionerIdentity,
    /// Returns the name of a claim's PersistentVolume.
    volume_name: Naming,
    inner: Mutex<Inner>,
}

struct Inner {
    closed: Closed,
    /// Whether this process is the leader, so that it must follow the records that other processes
    /// left.
    is_leading: bool,
    listed: Listed,
    /// The claims that had watch events while a list of all claims runs beside their watch.
    changed_meanwhile: Option<ChangedClaims>,
    names: Names,
    claims: Cache<Arc<Claim>>,
    entries: Table<String, Entry>,
    /// UIDs by the name of the PersistentVolume that the claim gets.
    by_volume: Table<String, String>,
    /// Claims of other provisioners, which may have a PersistentVolume if they become ours.
    others: OtherClaims,
}

/// Whether a claim still exists. A claim that only our own finalizer keeps counts as gone. The
/// handle stays valid after the claim has left the index.
#[derive(Debug, Clone, Default)]
pub struct Existence(Arc<AtomicBool>);

impl Existence {
    /// Whether the claim is gone.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How far claims and PersistentVolumes have been listed since the term of this leader began. Until
/// both are listed, any claim may have a PersistentVolume that this process does not know of
/// (safety rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Listed {
    /// Claims are not listed, or PersistentVolumes are not listed after the claims.
    #[default]
    NotYet,
    /// Claims are listed at this resource version, beside a watch that began before: events of this
    /// version and older are from before the list. `None`: the version is not a number, and tells
    /// nothing.
    Claims(Option<u64>),
    /// Claims, and after them PersistentVolumes, are listed. The version is that of the claims.
    Both(Option<u64>),
}

impl Listed {
    /// Whether a claim, of which an event comes in this version and which was not listed, was
    /// created after the list.
    fn is_created_since(self, claim: &Claim) -> bool {
        match self {
            Self::Both(Some(listed)) => version(claim).is_some_and(|version| version > listed),
            Self::NotYet | Self::Claims(_) | Self::Both(None) => false,
        }
    }
}

/// The version of the claim, if it is a number.
fn version(claim: &Claim) -> Option<u64> {
    claim.metadata.resource_version.as_ref()?.parse().ok()
}

/// Which names PersistentVolumes of our driver were seen to have.
#[derive(Debug, Clone, Copy, Default)]
struct Names {
    /// A name that [`verification`](super::verification) looks up.
    usual: bool,
    /// Another name, as an earlier `--volume-name-prefix` gives.
    others: bool,
}

/// What a worker must read live before the first call for a claim (safety rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verification {
    /// Nothing: this process has seen every event of the claim since it was created.
    #[default]
    None,
    /// Whether the claim has a PersistentVolume already.
    Volume,
    /// Whether the claim has a PersistentVolume already, and whether it is still unbound.
    VolumeAndClaim,
    /// The claim may have a PersistentVolume under a name that no look-up tries. Only the list of
    /// all PersistentVolumes shows it, so no call is made before that list is complete.
    Unlisted,
}

/// What the index knows of one claim, copied for a worker.
#[derive(Debug, Clone)]
pub struct ClaimSnapshot {
    /// The newest version of the claim.
    pub claim: Arc<Claim>,
    /// Whether anybody still wants its volume.
    pub demand: Demand,
    /// Whether the state of the claim allows a call now.
    pub may_call: bool,
    /// What must be read live before the call.
    pub verification: Verification,
    /// How often the index has required a verification of this claim. A live read from before the
    /// last requirement does not satisfy it.
    pub verification_epoch: u32,
    /// The request of the call that this process has open.
    pub request: Option<ProvisionRequest>,
    /// Whether a changed class and another node are accepted although a call is open (safety rule
    /// 3).
    pub accepts_changes: bool,
    /// The record of a call that an earlier process left open and that this process has not
    /// repeated yet.
    pub recorded: Option<Record>,
    /// The record of a call that the process of another node made.
    pub elsewhere: Option<Record>,
    /// The unusable volume that the call made. It must be removed before the next call.
    pub unusable: Option<Box<UnusableVolume>>,
    /// The handle of a volume that may have been deleted together with another claim's
    /// PersistentVolume.
    pub pv_gone: Option<String>,
}

/// What the index knows of one claim that concerns its record ([`super::call_record`]).
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not the states of one thing
pub struct RecordView {
    /// The newest version of the claim.
    pub claim: Arc<Claim>,
    /// Whether a call is open, or its volume is neither saved nor removed.
    pub is_open: bool,
    /// Whether the outcome of the call is unknown, or whether its volume still exists.
    pub is_outcome_unknown: bool,
    /// What the finalizer and the record on the claim mean. `None`: there are none, or not ours.
    pub record_status: Option<RecordStatus>,
    /// Whether this process has written the record on the claim, or follows it.
    pub is_record_known: bool,
    /// Whether the claim has its PersistentVolume.
    pub has_volume: bool,
    /// Whether anybody still wants its volume.
    pub demand: Demand,
    /// The request of the open call, if this process knows it.
    pub request: Option<ProvisionRequest>,
    /// The name of the claim's PersistentVolume.
    pub volume_name: String,
    /// How long ago this process first saw that the claim is being deleted.
    pub terminating_for: Duration,
}

impl ClaimIndex {
    /// Creates an empty index. `volume_name` returns the name of the PersistentVolume of the claim
    /// with the given UID. `closed` is called at least once for each claim that no longer needs the
    /// source of its volume; the index is locked meanwhile, so it must not call the index.
    pub fn new(
        identity: ProvisionerIdentity,
        volume_name: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        closed: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let inner = Mutex::new(Inner::new(Box::new(closed)));
        Self(Arc::new(Shared { identity, volume_name: Box::new(volume_name), inner }))
    }

    /// This process becomes the leader. Events from before may be older than the last work of the
    /// previous leader. So each claim is verified live before its first call, and the records on
    /// the claims are of calls that this process must follow.
    pub fn begin_term(&self) {
        let mut inner = self.0.inner.lock();
        inner.is_leading = true;
        inner.listed = Listed::NotYet;
        inner.changed_meanwhile = Some(ChangedClaims::default());
        let verification = inner.verification();
        for entry in inner.entries.values_mut() {
            entry.verification = Verification::None;
            entry.requires(verification);
            // `--claim-protection-timeout` counts only the time in which this process is the
            // leader.
            entry.terminating_since = entry.terminating_since.map(|_| Instant::now());
            entry.follow_record();
        }
    }

    /// Handles an event of the list of all claims that started after the term began, beside the
    /// watch. A claim that is not known is added, also if the watch has shown it as another
    /// provisioner's: the watch may lag behind. A claim that had a newer watch event during the list
    /// is skipped: it may have been its deletion. Returns the claims to queue.
    pub fn on_relist_event(&self, event: InformerEvent<Claim>) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        match event {
            InformerEvent::InitApply(claim) if !inner.is_known(&claim) => {
                self.apply(&mut inner, claim, true)
            }
            InformerEvent::Unreadable { uid, .. } => {
                inner.others.insert(&uid);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// All claims have been listed since the term began, at this resource version if it is a
    /// number.
    pub fn claims_listed(&self, version: Option<u64>) {
        let mut inner = self.0.inner.lock();
        if inner.listed == Listed::NotYet && inner.is_leading {
            inner.listed = Listed::Claims(version);
            inner.changed_meanwhile = None;
        }
    }

    /// PersistentVolumes have been listed after the claims. A claim that is first seen from now on
    /// is new. Returns the claims that were waiting for this list.
    pub fn both_listed(&self) -> Vec<String> {
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

    /// Returns the claims that wait for the list of all PersistentVolumes.
    pub fn awaiting_volume_list(&self) -> Vec<String> {
        let inner = self.0.inner.lock();
        let waiting =
            inner.entries.iter().filter(|(_, entry)| entry.verification == Verification::Unlisted);
        waiting.map(|(uid, _)| uid.clone()).collect()
    }

    /// Returns the key of the lock under which one worker at a time works for the claim: the name
    /// of its PersistentVolume, or its UID if no name can be made of it. `None`: the claim is not
    /// in the index.
    pub fn key(&self, uid: &str) -> Option<String> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(entry.volume_name.clone().unwrap_or_else(|| uid.to_owned()))
    }

    /// Returns what a worker needs to know of the claim. `None`: the claim is not in the index.
    pub fn snapshot(&self, uid: &str) -> Option<ClaimSnapshot> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(ClaimSnapshot {
            claim: Arc::clone(&entry.claim),
            demand: entry.demand(),
            may_call: entry.state.may_call(),
            verification: entry.verification(),
            verification_epoch: entry.verification_epoch,
            request: entry.request.as_deref().cloned(),
            accepts_changes: entry.state.accepts_changes(),
            recorded: entry.recorded(),
            elsewhere: entry.elsewhere(),
            unusable: match &entry.state {
                ClaimState::Unusable(unusable) => Some(unusable.clone()),
                _ => None,
            },
            pv_gone: match &entry.state {
                ClaimState::PvGone(handle) => Some(handle.clone()),
                _ => None,
            },
        })
    }

    /// Returns what concerns the claim's record. `None`: the claim is not in the index.
    pub fn record_view(&self, uid: &str) -> Option<RecordView> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(RecordView {
            claim: Arc::clone(&entry.claim),
            is_open: entry.state.is_open(),
            is_outcome_unknown: entry.state.is_outcome_unknown(),
            record_status: entry.record_status.as_deref().cloned(),
            is_record_known: entry.record_is_known,
            has_volume: entry.state == ClaimState::Done,
            demand: entry.demand(),
            request: entry.request.as_deref().cloned(),
            volume_name: entry.volume_name.clone().unwrap_or_default(),
            terminating_for: entry.terminating_since.map(|at| at.elapsed()).unwrap_or_default(),
        })
    }

    /// Whether a call for the claim is open, or its volume is neither saved nor removed.
    pub fn is_open(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.state.is_open())
    }

    /// Whether the claim carries our finalizer.
    pub fn is_protected(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.record_status.is_some())
    }

    /// Whether the API server has confirmed to this process that the claim carries exactly this
    /// record. An event does not confirm it: it may be older than the last write.
    pub fn has_record(&self, uid: &str, record: &Record) -> bool {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid).filter(|entry| entry.record_is_confirmed);
        let record_status = entry.and_then(|entry| entry.record_status.as_deref());
        matches!(record_status, Some(RecordStatus::Open(record_status)) if record_status == record)
    }

    /// A write of the claim's record ended with an error, and the API server may have carried it
    /// out.
    pub fn set_record_unclear(&self, uid: &str) {
        self.change(uid, |entry| entry.record_is_confirmed = false);
    }

    /// The record was written or, with `None`, removed.
    pub fn set_record_status(&self, uid: &str, record_status: Option<RecordStatus>) {
        self.change(uid, |entry| {
            entry.record_is_confirmed = matches!(record_status, Some(RecordStatus::Open(_)));
            entry.record_status = record_status.map(Box::new);
        });
    }

    /// Returns the claims that name this class.
    pub fn of_class(&self, class: &str) -> Vec<String> {
        let inner = self.0.inner.lock();
        let named = inner.entries.iter().filter(|(_, entry)| {
            crate::controller::ownership::class_of_claim(&entry.claim) == class
        });
        named.map(|(uid, _)| uid.clone()).collect()
    }

    /// Returns the UIDs of all claims in the index.
    pub fn all(&self) -> Vec<String> {
        self.0.inner.lock().entries.keys().cloned().collect()
    }

    /// Returns a handle that tells whether the claim exists, even after it has left the index.
    pub fn existence(&self, uid: &str) -> Existence {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).map(|entry| entry.existence.clone()).unwrap_or_default()
    }

    /// Whether the claim is being deleted or gone, so that nobody can use its volume.
    pub fn is_gone_or_terminating(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        let is_leaving = |entry: &Entry| entry.existence.is_over() || entry.claim.is_terminating();
        inner.entries.get(uid).is_none_or(is_leaving)
    }

    /// Whether the claim is unbound, not being deleted, and ours.
    pub fn is_wanted(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.demand() == Demand::Wanted)
    }

    /// Whether the claim still needs the source of its volume.
    pub fn needs_source(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(Entry::needs_source)
    }

    /// Whether this process has a call for the claim open, or a record says that another one has.
    pub fn may_have_open_call(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(Entry::may_have_open_call)
    }

    /// How long ago the claim was added to the index. `None`: it is not in the index.
    pub fn age(&self, uid: &str) -> Option<Duration> {
        let inner = self.0.inner.lock();
        inner.entries.get(uid)?.known_since.map(|since| since.elapsed())
    }

    /// Counts the claims by their states, for the metrics.
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
                ClaimState::SuspectedLeak => &mut census.suspect,
                ClaimState::Done => continue,
            };
            *count += 1;
            let age = entry.known_since.map(|since| since.elapsed()).unwrap_or_default();
            census.oldest = census.oldest.max(age);
        }
        census
    }

    /// The resync queues this claim, and nothing else had queued it.
    pub fn set_resynced(&self, uid: &str) {
        self.change(uid, |entry| entry.resynced = true);
    }

    /// Whether only the resync has queued the claim. Resets the flag.
    pub fn take_resynced(&self, uid: &str) -> bool {
        self.change(uid, |entry| std::mem::take(&mut entry.resynced)).unwrap_or(false)
    }

    /// Whether the claim is deleted or bound.
    pub fn is_gone_or_bound(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        let is_waiting = |entry: &Entry| !entry.existence.is_over() && entry.claim.is_unbound();
        !inner.entries.get(uid).is_some_and(is_waiting)
    }

    /// Whether the claim's volume still waits to be saved.
    pub fn is_saving(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| matches!(entry.state, ClaimState::Saving(_)))
    }

    fn change<T>(&self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.0.inner.lock().change(uid, change)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.inner.lock().entries.len()
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn new(closed: Closed) -> Self {
        Self {
            closed,
            is_leading: false,
            listed: Listed::default(),
            changed_meanwhile: None,
            names: Names::default(),
            claims: Cache::default(),
            entries: Table::default(),
            by_volume: Table::default(),
            others: OtherClaims::default(),
        }
    }

    /// Changes the entry of the claim, if there is one, and removes the entry if nothing needs it
    /// any more.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let result = change(self.entries.get_mut(uid)?);
        self.tidy(uid);
        Some(result)
    }

    /// What must be verified for a claim that may have had events which this process has not seen.
    /// It may have a PersistentVolume of any name if PersistentVolumes of our driver have other
    /// names than the usual ones, or if none was seen that proves the opposite.
    fn verification(&self) -> Verification {
        let is_listed = matches!(self.listed, Listed::Both(_));
        let are_usual = self.names.usual && !self.names.others;
        if is_listed || are_usual { Verification::VolumeAndClaim } else { Verification::Unlisted }
    }

    /// Whether the index knows at least as much of the claim as the list that runs beside the watch.
    fn is_known(&self, listed: &Claim) -> bool {
        let uid = listed.uid();
        let changed = self.changed_meanwhile.as_ref();
        changed.is_some_and(|claims| claims.have_newer(listed))
            || self.entries.contains_key(uid)
            || self.claims.get(uid).is_some()
    }

    fn insert(&mut self, uid: &str, volume_name: Option<String>, is_new: bool) {
        let verification = if is_new { Verification::None } else { self.verification() };
        if let Some(name) = &volume_name {
            self.by_volume.insert(name.clone(), uid.to_owned());
        }
        let known_since = Some(Instant::now());
        let entry = Entry { volume_name, verification, known_since, ..Entry::default() };
        self.entries.insert(uid.to_owned(), entry);
    }

    /// Drops what is left of a closed call, calls `closed` for a claim that no longer needs its
    /// source, and removes the entry of a claim that is not ours and has nothing open.
    fn tidy(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        // A recorded call is repeated with the claim as it is now, not with an old request.
        if !entry.state.is_open() || entry.state == ClaimState::Recorded {
            entry.request = None;
        }
        if !entry.needs_source() {
            (self.closed)(uid);
        }
        let is_kept = entry.interest != Interest::None || entry.superseded.is_some();
        if is_kept || entry.state.is_open() {
            return;
        }
        let Some(entry) = self.entries.remove(uid) else { return };
        // Two claims may share a name if it holds only a part of the UID: the other one keeps it.
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
