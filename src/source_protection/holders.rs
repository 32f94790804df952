//! Who needs which source, and what follows for its finalizer.
//!
//! Owns what is known of that: the pending claims that name a source, from the watch of claims,
//! whoever's they are; the restores and clones that were begun here and have not ended; the
//! sources that wear our finalizer on their behalf; the sources of clones that are deleted and
//! wait for us; and the deleted sources whose time-out is over. The decisions ([`Holders::due`],
//! [`Holders::is_orphan`]) are pure functions of it. Promises that nothing is freed while a call
//! that was begun here needs it, whatever has become of its claim, and that memory holds no more
//! than names, of claims that are pending or under way and of sources that are deleted. Leaves
//! reading and writing sources, and the judgement of grants, to the rooms beside it.

mod due;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

pub(super) use self::due::{Due, NamedBy};
use super::source::{NamedSource, SourceKind};
use crate::{
    kube::{
        Cache, Change, InformerEvent,
        objects::{Claim, View},
    },
    mutations,
    mutations::Mutation,
};

/// Names the driver that a claim is for.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// What is known of sources and of those that need them.
#[derive(Debug)]
pub(super) struct Holders {
    /// Whether others make volumes of the same sources beside this process.
    peers: bool,
    claims: Cache<Kept>,
    /// The pending claims that name a source: their UIDs, by their namespace.
    naming: BTreeMap<NamedSource, BTreeMap<String, BTreeSet<String>>>,
    /// Sources of clones that are deleted and wear our finalizer.
    leaving: BTreeMap<NamedSource, Terminating>,
    /// Sources that claims have kept from going for as long as the time-out allows, with their UIDs.
    overdue: BTreeMap<NamedSource, String>,
    /// What the restores and clones begun here are made from, by their claims' UIDs.
    begun: BTreeMap<String, NamedSource>,
    held: BTreeMap<NamedSource, Held>,
}

/// What is kept of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    /// Its UID.
    uid: String,
    /// What it names, while it is pending.
    names: Option<Naming>,
    /// Whether it needs that no longer, though it is pending still: it has its volume.
    closed: bool,
    /// Itself, where it is a source that is deleted and wears our finalizer.
    leaving: Option<(NamedSource, Terminating)>,
}

/// A claim's reference to its source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Naming {
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

/// Where a restore or clone that was begun here stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// A driver may be reading the source.
    Open,
    /// It failed for good. The claim may be asked for again.
    Ended,
}

/// A source that restores or clones begun here are made from.
#[derive(Debug, Default)]
struct Held {
    /// Their claims' UIDs.
    by: BTreeMap<String, Call>,
    /// The object that wears our finalizer for them.
    worn: Option<Worn>,
    /// Whether it does for certain: a write that took it off may have been carried out unanswered.
    certain: bool,
}

/// An object that wears our finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Worn {
    /// The object's UID.
    pub uid: String,
    /// How the finalizer came there.
    pub origin: Origin,
}

/// How a finalizer came onto a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// This process put it there: whoever needs it, began here.
    Ours,
    /// It was there already: a process before this one, or one beside it, may need it.
    Found,
}

impl Holders {
    /// Nothing is known yet. `peers`: others make volumes of the same sources at the same time.
    pub(super) fn new(peers: bool) -> Self {
        Self {
            peers,
            claims: Cache::default(),
            naming: BTreeMap::new(),
            leaving: BTreeMap::new(),
            overdue: BTreeMap::new(),
            begun: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Takes in what the watch of claims shows, and names the sources to look at now.
    pub(super) fn observe(&mut self, event: &InformerEvent<Claim>) -> BTreeSet<NamedSource> {
        match event {
            InformerEvent::Init => {
                self.claims.restarted();
                BTreeSet::new()
            }
            InformerEvent::InitApply(claim) | InformerEvent::Apply(claim) => self.seen(claim),
            InformerEvent::Delete(claim) => match self.claims.deleted(claim.uid()) {
                Change::Gone(old) => self.replaced(Some(old), None),
                _ => BTreeSet::new(),
            },
            InformerEvent::Unreadable { uid, .. } => {
                self.claims.unreadable(uid);
                BTreeSet::new()
            }
            InformerEvent::InitDone => {
                let vanished = self.claims.complete();
                vanished.into_iter().flat_map(|old| self.replaced(Some(old), None)).collect()
            }
        }
    }

    fn seen(&mut self, claim: &Claim) -> BTreeSet<NamedSource> {
        let uid = claim.uid();
        let before = self.claims.get(uid);
        let closed = before.is_some_and(|kept| kept.closed);
        let kept = Kept::of(claim).map(|kept| Kept { closed, ..kept });
        if before == kept.as_ref() {
            self.claims.seen(uid, kept);
            return BTreeSet::new();
        }
        match self.claims.seen(uid, kept.clone()) {
            Change::Updated { old, .. } | Change::Left(old) | Change::Gone(old) => {
                self.replaced(Some(old), kept)
            }
            Change::Entered(_) | Change::Nothing => self.replaced(None, kept),
        }
    }

    /// Keeps the indexes in step with what is kept of one claim, and names the sources that this
    /// may free.
    fn replaced(&mut self, old: Option<Kept>, new: Option<Kept>) -> BTreeSet<NamedSource> {
        let mut touched = BTreeSet::new();
        if let Some(old) = old {
            touched.extend(self.forget(old));
        }
        if let Some(new) = new {
            touched.extend(self.note(new));
        }
        touched.retain(|source| self.may_be_due(source));
        touched
    }

    /// Takes what was kept of a claim out of the indexes; the source that it named.
    fn forget(&mut self, old: Kept) -> Option<NamedSource> {
        // A namesake may have come meanwhile.
        if let Some((source, terminating)) = old.leaving
            && self.leaving.get(&source).is_some_and(|other| other.uid == terminating.uid)
        {
            self.leaving.remove(&source);
        }
        let Naming { source, from } = old.names?;
        self.remove_naming(&source, &from, &old.uid);
        Some(source)
    }

    /// Puts what is kept of a claim into the indexes; the claim itself, where it is a source that
    /// is deleted.
    fn note(&mut self, new: Kept) -> Option<NamedSource> {
        if let Some(Naming { source, from }) = new.names {
            self.naming.entry(source).or_default().entry(from).or_default().insert(new.uid);
        }
        let (source, terminating) = new.leaving?;
        self.leaving.insert(source.clone(), terminating);
        Some(source)
    }

    fn remove_naming(&mut self, source: &NamedSource, from: &str, uid: &str) {
        let Some(namespaces) = self.naming.get_mut(source) else { return };
        if let Some(claims) = namespaces.get_mut(from) {
            claims.remove(uid);
        }
        namespaces.retain(|_, claims| !claims.is_empty());
        if namespaces.is_empty() {
            self.naming.remove(source);
        }
    }

    /// A restore or clone for the claim begins: from now on it holds its source. Whether it did
    /// not before.
    pub(super) fn begin(&mut self, claim: &str, source: &NamedSource) -> bool {
        if let Some(kept) = self.claims.get_mut(claim) {
            kept.closed = false;
        }
        let is_new = self.begun.get(claim) != Some(source);
        if is_new {
            self.end(claim);
            self.begun.insert(claim.to_owned(), source.clone());
        }
        let held = self.held.entry(source.clone()).or_default();
        held.by.insert(claim.to_owned(), Call::Open);
        is_new
    }

    /// No call is open for the claim; it may be asked for again. From now on it holds its source no
    /// more than a claim that merely names it. Names the source, where it is to be looked at now.
    pub(super) fn call_ended(&mut self, claim: &str) -> Option<NamedSource> {
        let source = self.begun.get(claim)?.clone();
        let call = self.held.get_mut(&source)?.by.get_mut(claim)?;
        let was_open = std::mem::replace(call, Call::Ended) == Call::Open;
        (was_open && self.may_be_due(&source)).then_some(source)
    }

    /// The claim needs its source no longer. Names the sources to look at now.
    pub(super) fn closed(&mut self, claim: &str) -> BTreeSet<NamedSource> {
        let ended = self.end(claim);
        // What a peer does for a claim that nothing was begun for here, nobody here knows.
        let is_known = ended.is_some() || !self.peers;
        let mut touched: BTreeSet<NamedSource> = ended.into_iter().collect();
        if let Some(kept) = self.claims.get_mut(claim).filter(|_| is_known)
            && !std::mem::replace(&mut kept.closed, true)
        {
            touched.extend(kept.names.as_ref().map(|naming| naming.source.clone()));
        }
        touched.retain(|source| self.may_be_due(source));
        touched
    }

    /// What was begun for the claim holds its source no longer: which one that was.
    pub(super) fn end(&mut self, claim: &str) -> Option<NamedSource> {
        let source = self.begun.remove(claim)?;
        if let Some(held) = self.held.get_mut(&source) {
            held.by.remove(claim);
            // The finalizer of a clone's source stays until that is deleted, as in the original.
            let stays = source.kind == SourceKind::Snapshot && held.worn.is_some();
            if held.by.is_empty() && !stays {
                self.held.remove(&source);
            }
        }
        Some(source)
    }

    /// Whether the object `uid` wears the finalizer for certain, for something that was begun here.
    pub(super) fn is_worn(&self, source: &NamedSource, uid: &str) -> bool {
        let held = self.held.get(source).filter(|held| held.certain);
        held.and_then(|held| held.worn.as_ref()).is_some_and(|worn| worn.uid == uid)
    }

    /// The source was seen to wear the finalizer.
    pub(super) fn worn(&mut self, source: &NamedSource, worn: Worn) {
        if let Some(held) = self.held.get_mut(source) {
            // Where it was found once, others may need it still.
            held.worn = held.worn.take().filter(|known| known.uid == worn.uid).or(Some(worn));
            held.certain = true;
        }
    }

    /// The finalizer is about to be taken off. It may be gone from now on, whether or not the write
    /// is answered; until that is known, it is due as before.
    pub(super) fn taking_off(&mut self, source: &NamedSource) {
        if let Some(held) = self.held.get_mut(source) {
            held.certain = false;
        }
    }

    /// The finalizer was taken off, or the source is gone.
    pub(super) fn taken_off(&mut self, source: &NamedSource) {
        self.overdue.remove(source);
        if let Some(held) = self.held.get_mut(source) {
            held.worn = None;
            if held.by.is_empty() {
                self.held.remove(source);
            }
        }
    }

    /// The Terminating sources of clones that have our finalizer.
    pub(super) fn terminating(&self) -> &BTreeMap<NamedSource, Terminating> {
        &self.leaving
    }

    /// The time-out of these sources, with their UIDs, is over, and of no other source of the kind.
    /// Names the sources to look at now.
    pub(super) fn set_overdue(
        &mut self,
        kind: SourceKind,
        overdue: BTreeMap<NamedSource, String>,
    ) -> BTreeSet<NamedSource> {
        let is_new =
            |(source, uid): &(&NamedSource, &String)| self.overdue.get(source) != Some(uid);
        let new: Vec<_> = overdue.iter().filter(is_new).map(|(source, _)| source.clone()).collect();
        self.overdue.retain(|source, _| source.kind != kind);
        self.overdue.extend(overdue);
        new.into_iter().filter(|source| self.may_be_due(source)).collect()
    }

    /// The source that the claim, read live, names and needs.
    pub(super) fn needed_by(&self, claim: &Claim) -> Option<NamedSource> {
        let closed = self.claims.get(claim.uid()).is_some_and(|kept| kept.closed);
        let names = named_by_pending(claim)?;
        (!closed || names.kind == SourceKind::Claim).then_some(names)
    }

    /// Every source whose finalizer is to be taken off.
    pub(super) fn all_due(&self) -> BTreeSet<NamedSource> {
        let known = self.leaving.keys().chain(self.held.keys());
        known.filter(|source| self.may_be_due(source)).cloned().collect()
    }
}

impl Kept {
    /// What is kept of a claim; nothing of most.
    fn of(claim: &Claim) -> Option<Self> {
        let from = || claim.namespace().to_owned();
        let names = named_by_pending(claim).map(|source| Naming { source, from: from() });
        let leaving = Terminating::of(claim, SourceKind::Claim)
            .map(|terminating| (NamedSource::itself(claim), terminating));
        let is_kept = names.is_some() || leaving.is_some();
        is_kept.then(|| Self { uid: claim.uid().to_owned(), names, closed: false, leaving })
    }
}

impl Terminating {
    /// The object as a source of this kind, where it is Terminating and has our finalizer.
    pub(super) fn of(object: &impl View, kind: SourceKind) -> Option<Self> {
        let deleted = object.meta().deletion_timestamp.as_ref()?;
        let has_ours = object.has_finalizer(kind.finalizer());
        has_ours.then(|| Self { uid: object.uid().to_owned(), since: deleted.0 })
    }
}

/// The source that a claim names which has no volume yet, whoever's the claim is.
fn named_by_pending(claim: &Claim) -> Option<NamedSource> {
    let pending = matches!(claim.status.phase.as_str(), "" | "Pending");
    let unseen = mutations::is_on(Mutation::OthersHoldNothing)
        && claim.annotation(STORAGE_PROVISIONER) != Some(mutations::SIMULATED_DRIVER);
    (pending && !unseen).then(|| NamedSource::of(claim)).flatten()
}

#[cfg(test)]
mod tests;
