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
//! Events come in through `on_event` and the methods of `volumes`, each of which returns the UIDs of
//! the claims to queue. A worker holds its claim by a [`ClaimGuard`], reads what is known of it, and says
//! what it has learned or done by the methods of [`Entry`]. The index does not act.
//!
//! | module | content |
//! |---|---|
//! | `on_event`, `volumes` | events of claims and of PersistentVolumes |
//! | `guard` | holds a claim for one turn of a worker |
//! | `known` | what is known of one claim, and what follows from it |
//! | `work` | what workers learn and do, and how it changes the entry of the claim |
//! | `reports` | what was reported to users |
//! | `overview` | the claims in work, for the status |
//! | `entry` | all that is kept of one claim |

mod entry;
mod guard;
mod known;
mod on_event;
mod overview;
mod reports;
mod volumes;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;

use self::entry::LatestTexts;
pub(in crate::controller) use self::volumes::claim_uid;
pub use self::{
    entry::Entry,
    guard::ClaimGuard,
    known::{Interest, KnownClaim, Required},
};
use super::{record_status, record_status::RecordStatus, reporting::labels, state::ClaimState};
use crate::{
    controller::{
        Key,
        model::unsaved_volume::UnsavedVolume,
        ownership::{ProvisionerIdentity, class_of_claim},
    },
    kube::objects::{Claim, View as _},
    metrics::Census,
    workqueue::{Flow, KeyedMutex},
};

/// The index of claims. Clones share its content.
#[derive(Clone)]
pub struct ClaimIndex(Arc<Shared>);

/// Called with the UID of a claim that no longer needs the source of its volume, and whether it has its volume.
type SourceReleased = Box<dyn Fn(&str, bool) + Send + Sync>;

struct Shared {
    identity: ProvisionerIdentity,
    volume_keys: KeyedMutex,
    /// All that is known of claims. Only the methods of [`ClaimIndex`] take this lock.
    inner: Mutex<Inner>,
}

struct Inner {
    source_released: SourceReleased,
    /// Whether claims, and after them PersistentVolumes, are listed. Before, a claim may have a
    /// PersistentVolume that this process does not know of (safety rule 6).
    both_listed: bool,
    entries: BTreeMap<Key, Entry>,
    /// The claims whose volume waits to be saved.
    unsaved: BTreeSet<Key>,
    /// UIDs by the name of the PersistentVolume that the claim gets.
    by_volume: BTreeMap<Arc<str>, Key>,
    /// Unbound claims of other provisioners, by the [`hash`](crate::kube::informer::hash) of their UIDs: unless
    /// this process has seen all their events, they may have a PersistentVolume if they become ours (safety
    /// rule 6).
    others: BTreeSet<u64>,
    latest_texts: LatestTexts,
}

impl ClaimIndex {
    /// Creates an empty index. `source_released` is called at least once for each claim that no longer needs the
    /// source of its volume; the index is locked meanwhile, so it must not call the index.
    pub fn new(
        identity: ProvisionerIdentity,
        source_released: impl Fn(&str, bool) + Send + Sync + 'static,
    ) -> Self {
        let inner = Inner {
            source_released: Box::new(source_released),
            both_listed: false,
            entries: BTreeMap::new(),
            unsaved: BTreeSet::new(),
            by_volume: BTreeMap::new(),
            others: BTreeSet::new(),
            latest_texts: LatestTexts::default(),
        };
        let (volume_keys, inner) = (KeyedMutex::default(), Mutex::new(inner));
        Self(Arc::new(Shared { identity, volume_keys, inner }))
    }

    /// PersistentVolumes have been listed after the claims. A claim that is first seen from now on is new.
    pub fn both_listed(&self) {
        self.0.inner.lock().both_listed = true;
    }

    /// Returns what is known of the claim. `None`: the claim is not in the index.
    pub fn known(&self, uid: &str) -> Option<KnownClaim> {
        self.0.inner.lock().entries.get(uid).map(|entry| entry.known.clone())
    }

    /// Whose claim it is, by class and namespace, and whether a call was made for it. The class is that which is
    /// asked with: beside the annotation that names it, the claim's field may hold any text, so that a
    /// user could give each claim a flow of its own.
    pub fn flow(&self, uid: &str, id: &dyn Fn((&str, &str)) -> u64) -> Flow {
        let inner = self.0.inner.lock();
        let Some(Entry { known, .. }) = inner.entries.get(uid) else { return Flow::default() };
        let is_repeat = known.request.is_some() || known.recorded().is_some();
        let class = match &known.request {
            Some(request) => request.class.name(),
            None => class_of_claim(&known.claim),
        };
        Flow { id: id((class, known.claim.namespace())), is_repeat }
    }

    /// Whether the claim is in the index and `predicate` holds for it. It must not call the index.
    pub fn is(&self, uid: &str, predicate: impl FnOnce(&KnownClaim) -> bool) -> bool {
        self.0.inner.lock().entries.get(uid).is_some_and(|entry| predicate(&entry.known))
    }

    /// Applies what a worker has learned about the claim or has done for it. `None`: the claim is not in the
    /// index. `change` must not call the index.
    pub fn update<T>(&self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.0.inner.lock().change(uid, change)
    }

    #[cfg(test)]
    fn identity(&self) -> &ProvisionerIdentity {
        &self.0.identity
    }

    /// Holds volumes by the name of their PersistentVolume: one worker at a time (safety rule 5).
    pub(in crate::controller) fn volume_keys(&self) -> &KeyedMutex {
        &self.0.volume_keys
    }

    /// Returns the UIDs of the claims that satisfy `predicate`, which must not call the index.
    pub fn uids(&self, predicate: impl Fn(&KnownClaim) -> bool) -> Vec<Key> {
        let inner = self.0.inner.lock();
        let claims = inner.entries.iter().filter(|(_, entry)| predicate(&entry.known));
        claims.map(|(uid, _)| uid.clone()).collect()
    }

    /// Whether `predicate`, which must not call the index, holds for a volume that waits to be saved.
    pub fn any_unsaved(&self, predicate: impl Fn(&UnsavedVolume) -> bool) -> bool {
        let Inner { entries, unsaved, .. } = &*self.0.inner.lock();
        unsaved.iter().filter_map(|uid| entries.get(uid)?.known.unsaved()).any(predicate)
    }

    /// The claims whose volume waits to be saved, and for which `predicate`, which must not call the index, holds.
    pub fn unsaved(&self, predicate: impl Fn(&KnownClaim) -> bool) -> Vec<Key> {
        let Inner { entries, unsaved, .. } = &*self.0.inner.lock();
        let is_asked_for = |uid: &&Key| entries.get(*uid).is_some_and(|it| predicate(&it.known));
        unsaved.iter().filter(is_asked_for).cloned().collect()
    }

    /// Changes each volume that waits to be saved.
    pub fn update_unsaved(&self, change: impl Fn(&mut UnsavedVolume)) {
        let Inner { entries, unsaved, .. } = &mut *self.0.inner.lock();
        for uid in unsaved.iter() {
            if let Some(entry) = entries.get_mut(uid) {
                entry.update_unsaved(&change);
            }
        }
    }

    /// Counts the claims by their states, for the metrics.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for Entry { known, .. } in self.0.inner.lock().entries.values() {
            let state = match known.state {
                ClaimState::Waiting => "waiting",
                ClaimState::InFlight { .. } => "in_flight",
                ClaimState::Recorded | ClaimState::Background(_) | ClaimState::PvGone(_) => {
                    "background"
                }
                ClaimState::Saving(_) => "saving",
                ClaimState::Unusable(_) => "unusable",
                ClaimState::SuspectedLeak => "suspect",
                ClaimState::Done => continue,
            };
            *census.by_state.entry(state).or_default() += 1;
            census.oldest = census.oldest.max(known.age());
            if known.is_overdue() {
                *census.overdue.entry(labels(&known.claim).0.to_owned()).or_default() += 1;
            }
        }
        census
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.inner.lock().entries.is_empty()
    }
}

impl Shared {
    /// The name of the PersistentVolume of the claim with this UID.
    fn volume_name(&self, uid: &str) -> Option<String> {
        self.identity.naming.name(uid).ok()
    }

    /// What the record on the claim means.
    fn record_status_of(&self, claim: &Claim) -> Option<RecordStatus> {
        record_status::judge(claim, &self.identity, self.volume_name(claim.uid()).as_deref())
    }
}

impl Inner {
    /// Changes the entry of the claim, if there is one, and removes the entry if nothing needs it
    /// any more.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.entries.get_mut(uid)?;
        let result = change(entry);
        entry.share_texts(&mut self.latest_texts);
        self.tidy(uid);
        Some(result)
    }

    fn insert(&mut self, uid: Key, volume_name: Option<String>, is_new: bool) {
        let volume_name = volume_name.map(Arc::<str>::from);
        if let Some(name) = &volume_name {
            self.by_volume.insert(Arc::clone(name), uid.clone());
        }
        self.entries.insert(uid, Entry::new(volume_name, is_new));
    }

    /// Notes whether the claim's volume waits to be saved, drops what is left of a closed call, calls
    /// `source_released` for a claim that no longer needs its source, and removes the entry of a claim that is
    /// not ours and has nothing open. One whose PersistentVolume is let go has that to be seen.
    fn tidy(&mut self, uid: &str) {
        let Some(Entry { known, pv, .. }) = self.entries.get_mut(uid) else { return };
        // A recorded call is repeated with the claim as it is now, not with an old request.
        if !known.state.is_open() || known.state == ClaimState::Recorded {
            known.request = None;
        }
        if known.unsaved().is_none() {
            self.unsaved.remove(uid);
        } else if !self.unsaved.contains(uid) {
            self.unsaved.insert(uid.into());
        }
        if !known.needs_source() {
            (self.source_released)(uid, known.is_served());
        }
        if !known.is_kept() && pv.let_go.is_none() {
            self.remove(uid);
        }
    }

    fn remove(&mut self, uid: &str) {
        self.unsaved.remove(uid);
        let name = self.entries.remove(uid).and_then(|entry| entry.known.volume_name);
        // Two claims may share a name if it holds only a part of the UID: the other one keeps it.
        if let Some(name) = name
            && self.by_volume.get(&*name).is_some_and(|owner| **owner == *uid)
        {
            self.by_volume.remove(&*name);
        }
    }
}

#[cfg(test)]
mod tests;
