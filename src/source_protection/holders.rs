//! Which calls and claims need which source, and what follows for its finalizer.
//!
//! Keeps the pending claims that name a source, from the watch of all claims; the restores and clones that
//! this process began and that have not ended; the sources that have our finalizer for them; and the
//! terminating sources of clones. The decision ([`Holders::due`]) is a pure function of this state. Nothing is
//! freed while a call of this process needs it, whatever has become of its claim. Memory holds only names, of
//! claims that are pending or in progress and of sources that are deleted. Reads, writes and grants belong to
//! the modules beside it.

mod due;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

pub(super) use self::due::Due;
use super::source::{NamedSource, SourceKind};
use crate::kube::{
    InformerEvent,
    objects::{Claim, View},
    take_vanished,
};

/// For how long an object that had our finalizer is believed to have it: whoever may write the object can take it off.
const BELIEVED_FOR: Duration = Duration::from_secs(30);

/// The sources and who needs them.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Whether other processes create volumes from the same sources.
    peers: bool,
    /// Whether a list of claims is under way.
    is_listing: bool,
    /// By UID.
    claims: BTreeMap<String, ClaimEntry>,
    /// The pending claims that name a source: their UIDs, by namespace.
    named_by: BTreeMap<NamedSource, BTreeMap<String, BTreeSet<String>>>,
    /// Terminating sources of clones that have our finalizer.
    terminating: BTreeMap<NamedSource, Terminating>,
    /// The restores and clones that were begun here, by the UIDs of their claims.
    calls: BTreeMap<String, (NamedSource, Call)>,
    /// The same, by source, with the open ones first: a source may have thousands.
    called_for: BTreeSet<(NamedSource, Call, String)>,
    /// The objects that have our finalizer for them, or for which a sweep has found it.
    finalized: BTreeMap<NamedSource, Finalized>,
}

/// What is kept of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClaimEntry {
    /// Its UID.
    uid: String,
    /// The source that it names, while it is pending.
    names: Option<SourceReference>,
    /// Whether it needs the source no longer although it is pending: it has its volume.
    finished: bool,
    /// The UID of the source that it names, if it was created after the deletion of that: a watch has shown them in
    /// that order.
    late_for: Option<String>,
    /// The claim itself, if it is a terminating source with our finalizer.
    terminating: Option<(NamedSource, Terminating)>,
}

/// A claim's reference to its source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceReference {
    source: NamedSource,
    /// The claim's namespace.
    from: String,
}

/// A source that is Terminating and has our finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terminating {
    /// The object's UID.
    pub uid: String,
    /// Its deletion timestamp.
    pub since: Timestamp,
}

/// The state of a restore or clone that was begun here, in the order of [`Holders::called_for`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// A driver may be reading the source.
    Open,
    /// It failed for good. The claim may be tried again.
    Ended,
}

/// An object with our finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finalized {
    /// The object's UID.
    pub uid: String,
    /// Who added the finalizer.
    pub origin: FinalizerOrigin,
    /// When it certainly had it. `None`: a write that removed it may have succeeded without a response.
    pub certain_at: Option<Instant>,
}

/// Who added the finalizer of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinalizerOrigin {
    /// This process: all calls that need it began here.
    Added,
    /// It was there before: an earlier or a concurrent process may need it.
    Existing,
}

impl Holders {
    /// Creates empty state. `peers`: other processes create volumes from the same sources.
    pub(super) fn new(peers: bool) -> Self {
        Self { peers, ..Self::default() }
    }

    /// Handles an event of the watch of claims; returns the sources to check now.
    pub(super) fn on_event(&mut self, event: &InformerEvent<Claim>) -> BTreeSet<NamedSource> {
        match event {
            InformerEvent::InitApply(claim) => {
                self.is_listing = true;
                self.upsert_claim(claim, true)
            }
            InformerEvent::Apply(claim) => self.upsert_claim(claim, false),
            InformerEvent::Delete(claim) => {
                let old = self.claims.remove(claim.uid());
                self.update_indexes(old, None)
            }
            InformerEvent::Unreadable { .. } => BTreeSet::new(),
            InformerEvent::InitDone(listed) => {
                self.is_listing = false;
                let vanished = take_vanished(&mut self.claims, |uid, _| listed.contains(uid));
                for old in vanished.into_values() {
                    self.remove_from_indexes(old);
                }
                let sources = self.terminating.keys().chain(self.finalized.keys());
                sources.filter(|source| self.may_be_due(source)).cloned().collect()
            }
        }
    }

    /// The UID of the source that the claim names, if the claim was created after the deletion of that.
    pub(super) fn late_for(&self, uid: &str) -> Option<String> {
        self.claims.get(uid)?.late_for.clone()
    }

    fn upsert_claim(&mut self, claim: &Claim, is_from_list: bool) -> BTreeSet<NamedSource> {
        let uid = claim.uid();
        let before = self.claims.get(uid);
        let finished = before.is_some_and(|entry| entry.finished);
        let entry = ClaimEntry::of(claim).map(|entry| {
            let names = entry.names.as_ref();
            let deleted = names.and_then(|it| self.terminating.get(&it.source));
            let deleted = deleted.filter(|_| !is_from_list).map(|it| it.uid.clone());
            let late_for = before.map_or(deleted, |before| before.late_for.clone());
            ClaimEntry { finished, late_for, ..entry }
        });
        if before == entry.as_ref() {
            return BTreeSet::new();
        }
        let old = match &entry {
            Some(entry) => self.claims.insert(uid.to_owned(), entry.clone()),
            None => self.claims.remove(uid),
        };
        self.update_indexes(old, entry)
    }

    /// Updates the indexes for one claim; returns the sources that may be due now.
    fn update_indexes(
        &mut self,
        old: Option<ClaimEntry>,
        new: Option<ClaimEntry>,
    ) -> BTreeSet<NamedSource> {
        let mut affected = BTreeSet::new();
        if let Some(old) = old {
            affected.extend(self.remove_from_indexes(old));
        }
        if let Some(new) = new {
            affected.extend(self.add_to_indexes(new));
        }
        affected.retain(|source| self.may_be_due(source));
        affected
    }

    /// Removes a claim from the indexes; returns the source that it named.
    fn remove_from_indexes(&mut self, old: ClaimEntry) -> Option<NamedSource> {
        // Another object of that name may have been added meanwhile.
        if let Some((source, terminating)) = old.terminating
            && self.terminating.get(&source).is_some_and(|other| other.uid == terminating.uid)
        {
            self.terminating.remove(&source);
        }
        let SourceReference { source, from } = old.names?;
        self.remove_reference(&source, &from, &old.uid);
        Some(source)
    }

    /// Adds a claim to the indexes; returns the claim itself if it is a terminating source.
    fn add_to_indexes(&mut self, new: ClaimEntry) -> Option<NamedSource> {
        if let Some(SourceReference { source, from }) = new.names {
            self.named_by.entry(source).or_default().entry(from).or_default().insert(new.uid);
        }
        let (source, terminating) = new.terminating?;
        self.terminating.insert(source.clone(), terminating);
        Some(source)
    }

    fn remove_reference(&mut self, source: &NamedSource, from: &str, uid: &str) {
        let Some(namespaces) = self.named_by.get_mut(source) else { return };
        if let Some(claims) = namespaces.get_mut(from) {
            claims.remove(uid);
        }
        namespaces.retain(|_, claims| !claims.is_empty());
        if namespaces.is_empty() {
            self.named_by.remove(source);
        }
    }

    /// Begins a restore or clone for the claim: from now on it holds its source. Returns whether it
    /// did not before.
    pub(super) fn begin_call(&mut self, claim: &str, source: &NamedSource) -> bool {
        if let Some(entry) = self.claims.get_mut(claim) {
            entry.finished = false;
        }
        let is_new = self.calls.get(claim).is_none_or(|(known, _)| known != source);
        if is_new {
            self.drop_call(claim);
        }
        self.set_call(claim, source.clone(), Call::Open);
        is_new
    }

    /// Sets the state of the claim's call, which is for no other source.
    fn set_call(&mut self, claim: &str, source: NamedSource, call: Call) {
        if let Some((of, before)) = self.calls.insert(claim.to_owned(), (source.clone(), call)) {
            self.called_for.remove(&(of, before, claim.to_owned()));
        }
        self.called_for.insert((source, call, claim.to_owned()));
    }

    /// No call is open for the claim, which may be tried again. From now on it holds its source
    /// only as a claim that names it. Returns the source if it must be checked now.
    pub(super) fn call_ended(&mut self, claim: &str) -> Option<NamedSource> {
        let (source, Call::Open) = self.calls.get(claim)?.clone() else { return None };
        self.set_call(claim, source.clone(), Call::Ended);
        self.may_be_due(&source).then_some(source)
    }

    /// This process needs the claim's source no longer; if `is_served`, as the claim has its volume. Returns the
    /// sources to check now.
    pub(super) fn claim_finished(&mut self, claim: &str, is_served: bool) -> BTreeSet<NamedSource> {
        let mut affected: BTreeSet<NamedSource> = self.drop_call(claim).into_iter().collect();
        // A claim that has moved to another node may have a call there.
        let is_known = !self.peers || is_served && !affected.is_empty();
        if let Some(entry) = self.claims.get_mut(claim).filter(|_| is_known)
            && !std::mem::replace(&mut entry.finished, true)
        {
            affected.extend(entry.names.as_ref().map(|reference| reference.source.clone()));
        }
        affected.retain(|source| self.may_be_due(source));
        affected
    }

    /// Drops the claim's call; returns its source.
    pub(super) fn drop_call(&mut self, claim: &str) -> Option<NamedSource> {
        let (source, call) = self.calls.remove(claim)?;
        self.called_for.remove(&(source.clone(), call, claim.to_owned()));
        // That of a snapshot is still to be removed.
        if source.kind.is_claim() && !self.has_call(&source) {
            self.finalized.remove(&source);
        }
        Some(source)
    }

    /// Whether the object `uid` had the finalizer a moment ago, for a call that was begun here.
    pub(super) fn is_finalized(&self, source: &NamedSource, uid: &str) -> bool {
        let finalized = self.finalized.get(source).filter(|it| it.uid == uid);
        let certain_at = finalized.and_then(|it| it.certain_at);
        certain_at.is_some_and(|at| at.elapsed() < BELIEVED_FOR)
    }

    /// Records that the object `uid` certainly has the finalizer, and who added it.
    pub(super) fn record_finalizer(
        &mut self,
        source: &NamedSource,
        uid: &str,
        origin: FinalizerOrigin,
    ) {
        // The claim may have ended meanwhile: then a snapshot is to be freed again.
        if source.kind.is_claim() && !self.has_call(source) {
            return;
        }
        // Once it was found there, other processes may still need it.
        let known = self.finalized.get(source).filter(|known| known.uid == uid);
        let origin = known.map_or(origin, |known| known.origin);
        let certain_at = Some(Instant::now());
        let finalized = Finalized { uid: uid.to_owned(), origin, certain_at };
        self.finalized.insert(source.clone(), finalized);
    }

    /// The sweep has found the finalizer on the object `uid`. Returns whether it may be due to be removed.
    pub(super) fn finalizer_found(&mut self, source: &NamedSource, uid: &str) -> bool {
        let is_known = self.finalized.contains_key(source) || self.has_call(source);
        self.finalized.entry(source.clone()).or_insert_with(|| Finalized {
            uid: uid.to_owned(),
            origin: FinalizerOrigin::Existing,
            certain_at: None,
        });
        let is_due = self.may_be_due(source);
        if !is_due && !is_known {
            // Anybody can set it on snapshots of his own.
            self.finalized.remove(source);
        }
        is_due
    }

    /// The finalizer is about to be removed. From now on it may be gone, whether or not the write
    /// gets a response; until that is known, it is due as before.
    pub(super) fn removing_finalizer(&mut self, source: &NamedSource) {
        if let Some(finalized) = self.finalized.get_mut(source) {
            finalized.certain_at = None;
        }
    }

    /// The finalizer was removed, or is left to others, or the source is gone.
    pub(super) fn finalizer_removed(&mut self, source: &NamedSource) {
        self.finalized.remove(source);
    }

    /// The Terminating sources of clones that have our finalizer.
    pub(super) fn terminating(&self) -> &BTreeMap<NamedSource, Terminating> {
        &self.terminating
    }
}

impl ClaimEntry {
    /// What is kept of a claim; `None` for most.
    fn of(claim: &Claim) -> Option<Self> {
        let from = || claim.namespace().to_owned();
        let names = named_by_pending(claim).map(|source| SourceReference { source, from: from() });
        let terminating = Terminating::of(claim, SourceKind::Claim)
            .map(|terminating| (NamedSource::itself(SourceKind::Claim, claim), terminating));
        let is_kept = names.is_some() || terminating.is_some();
        let (uid, finished, late_for) = (claim.uid().to_owned(), false, None);
        is_kept.then_some(Self { uid, names, finished, late_for, terminating })
    }
}

impl Terminating {
    /// The object as a source of this kind, if it is Terminating and has our finalizer.
    pub(super) fn of(object: &impl View, kind: SourceKind) -> Option<Self> {
        let deleted = object.meta().deletion_timestamp.as_ref()?;
        let has_ours = object.has_finalizer(kind.finalizer());
        has_ours.then(|| Self { uid: object.uid().to_owned(), since: deleted.0 })
    }
}

/// The source that a claim without a volume names, whichever driver the claim is for.
fn named_by_pending(claim: &Claim) -> Option<NamedSource> {
    let pending = matches!(&*claim.status.phase, "" | "Pending");
    pending.then(|| NamedSource::of(claim)).flatten()
}

#[cfg(test)]
mod tests;
