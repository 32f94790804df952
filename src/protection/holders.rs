//! Who needs which source, and what follows for its finalizer.
//!
//! Owns what is known of that: the pending claims that name a source, from the watch of claims,
//! whoever's they are; the restores and clones that were begun here and have not ended; the
//! sources that wear our finalizer on their behalf; and the sources of clones that are deleted and
//! wait for us. The decisions ([`Holders::due`], [`Holders::is_orphan`]) are pure functions of it.
//! Promises that nothing is freed while a call that was begun here needs it, whatever has become of
//! its claim, and that memory holds no more than names, of claims that are pending or under way.
//! Leaves reading and writing sources to the rooms beside it.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{NamedSource, SourceKind};
use crate::{
    kube_api::{
        Cache, Change, Sighting,
        views::{Claim, View as _},
    },
    mutations::{self, Mutation},
};

/// Names the driver that a claim is for.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// What is known of sources and of those that need them.
#[derive(Debug)]
pub(super) struct Holders {
    /// Whether others make volumes of the same sources beside this process.
    peers: bool,
    claims: Cache<Kept>,
    /// The pending claims, by UID, that name a source.
    naming: BTreeMap<NamedSource, BTreeSet<String>>,
    /// Sources of clones that are deleted and wear our finalizer, with their UIDs.
    leaving: BTreeMap<NamedSource, String>,
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
    names: Option<NamedSource>,
    /// Whether it needs that no longer, though it is pending still: it has its volume.
    closed: bool,
    /// Itself, where it is a source that is deleted and wears our finalizer.
    leaving: Option<NamedSource>,
}

/// A source that restores or clones begun here are made from.
#[derive(Debug, Default)]
struct Held {
    /// Their claims' UIDs.
    by: BTreeSet<String>,
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

/// What is due for a source's finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing: it wears none that is ours to take off.
    Nothing,
    /// It stays: somebody needs the source.
    Keep,
    /// It goes, off the object with this UID.
    TakeOff(String),
    /// The same, unless a claim that this process has not seen yet names the source.
    TakeOffUnlessNamed(String),
}

impl Holders {
    /// Nothing is known yet. `peers`: others make volumes of the same sources at the same time.
    pub(super) fn new(peers: bool) -> Self {
        Self {
            peers,
            claims: Cache::default(),
            naming: BTreeMap::new(),
            leaving: BTreeMap::new(),
            begun: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Takes in what the watch of claims shows, and names the sources to look at now.
    pub(super) fn observe(&mut self, sighting: &Sighting<Claim>) -> BTreeSet<NamedSource> {
        match sighting {
            Sighting::Restarted => {
                self.claims.restarted();
                BTreeSet::new()
            }
            Sighting::Listed(claim) | Sighting::Applied(claim) => self.seen(claim),
            Sighting::Deleted(claim) => match self.claims.deleted(claim.uid()) {
                Change::Gone(old) => self.replaced(Some(old), None),
                _ => BTreeSet::new(),
            },
            Sighting::Unreadable { uid, .. } => {
                self.claims.unreadable(uid);
                BTreeSet::new()
            }
            Sighting::Complete => {
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
            if let Some(source) = old.names {
                remove(&mut self.naming, &source, &old.uid);
                touched.insert(source);
            }
            // A namesake may have come meanwhile.
            if let Some(source) = old.leaving
                && self.leaving.get(&source) == Some(&old.uid)
            {
                self.leaving.remove(&source);
            }
        }
        if let Some(new) = new {
            if let Some(source) = new.names {
                self.naming.entry(source).or_default().insert(new.uid.clone());
            }
            if let Some(source) = new.leaving {
                self.leaving.insert(source.clone(), new.uid);
                touched.insert(source);
            }
        }
        touched.retain(|source| self.may_be_due(source));
        touched
    }

    /// A restore or clone for the claim begins: from now on it holds its source. Whether it did
    /// not before.
    pub(super) fn begin(&mut self, claim: &str, source: &NamedSource) -> bool {
        if let Some(kept) = self.claims.get_mut(claim) {
            kept.closed = false;
        }
        if self.begun.get(claim) == Some(source) {
            return false;
        }
        self.end(claim);
        self.begun.insert(claim.to_owned(), source.clone());
        self.held.entry(source.clone()).or_default().by.insert(claim.to_owned())
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
            touched.extend(kept.names.clone());
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

    /// The finalizer of a snapshot was taken off, or the snapshot is gone.
    pub(super) fn taken_off(&mut self, source: &NamedSource) {
        if let Some(held) = self.held.get_mut(source) {
            held.worn = None;
            if held.by.is_empty() {
                self.held.remove(source);
            }
        }
    }

    /// Decides what is due for the source's finalizer.
    pub(super) fn due(&self, source: &NamedSource) -> Due {
        let held = self.held.get(source);
        if held.is_some_and(|held| !held.by.is_empty()) {
            return Due::Keep;
        }
        match source.kind {
            SourceKind::Claim => match self.leaving.get(source) {
                None => Due::Nothing,
                Some(_) if self.is_named(source) => Due::Keep,
                // The watch of claims shows those that name a source before the source's end.
                Some(uid) => Due::TakeOff(uid.clone()),
            },
            SourceKind::Snapshot => match held.and_then(|held| held.worn.as_ref()) {
                None => Due::Nothing,
                Some(worn) if worn.origin == Origin::Ours && !self.peers => {
                    Due::TakeOff(worn.uid.clone())
                }
                Some(_) if self.is_named(source) => Due::Keep,
                Some(worn) => Due::TakeOffUnlessNamed(worn.uid.clone()),
            },
        }
    }

    /// Whether nobody known needs the source, which wears our finalizer: a crash may have left it.
    pub(super) fn is_orphan(&self, source: &NamedSource) -> bool {
        let held = self.held.get(source).is_some_and(|held| !held.by.is_empty());
        !held && !self.is_named(source)
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

    /// Whether a pending claim names the source. One that has its volume needs no snapshot any
    /// more; it holds what it was cloned from until it is bound, as in the original.
    fn is_named(&self, source: &NamedSource) -> bool {
        let needs = |uid: &String| {
            let closed = self.claims.get(uid).is_some_and(|kept| kept.closed);
            !closed || source.kind == SourceKind::Claim
        };
        self.naming.get(source).is_some_and(|claims| claims.iter().any(needs))
    }

    fn may_be_due(&self, source: &NamedSource) -> bool {
        !matches!(self.due(source), Due::Nothing | Due::Keep)
    }
}

impl Kept {
    /// What is kept of a claim; nothing of most.
    fn of(claim: &Claim) -> Option<Self> {
        let names = named_by_pending(claim);
        let leaves = claim.is_terminating() && claim.has_finalizer(SourceKind::Claim.finalizer());
        let leaving = leaves.then(|| NamedSource::itself(claim));
        let is_kept = names.is_some() || leaving.is_some();
        is_kept.then(|| Self { uid: claim.uid().to_owned(), names, closed: false, leaving })
    }
}

/// The source that a claim names which has no volume yet, whoever's the claim is.
fn named_by_pending(claim: &Claim) -> Option<NamedSource> {
    let pending = matches!(claim.status.phase.as_str(), "" | "Pending");
    let unseen = mutations::is_on(Mutation::OthersHoldNothing)
        && claim.annotation(STORAGE_PROVISIONER) != Some(mutations::SIMULATED_DRIVER);
    (pending && !unseen).then(|| NamedSource::of(claim)).flatten()
}

fn remove(index: &mut BTreeMap<NamedSource, BTreeSet<String>>, source: &NamedSource, uid: &str) {
    if let Some(claims) = index.get_mut(source) {
        claims.remove(uid);
        if claims.is_empty() {
            index.remove(source);
        }
    }
}

#[cfg(test)]
mod tests;
