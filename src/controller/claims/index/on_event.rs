//! Events of claims.
//!
//! Decides which claims the index keeps and which of them an event queues. A claim counts as new
//! only if this process has seen all its events since it was created (safety rule 6). Our own
//! writes to a claim queue nothing.

use std::{mem, sync::Arc};

use tokio::time::Instant;

use super::{
    ClaimIndex, Inner,
    entry::Entry,
    known::{Interest, KnownClaim},
};
use crate::{
    controller::{
        Key,
        claims::{record_status, record_status::RecordStatus},
        ownership::ProvisionerIdentity,
    },
    kube::{
        InformerEvent,
        informer::hash,
        objects::{Claim, View as _},
    },
};

impl ClaimIndex {
    /// Handles an event of the claim watch. Returns the claims to queue.
    pub fn on_event(&self, event: InformerEvent<Claim>) -> Vec<Key> {
        let mut inner = self.0.inner.lock();
        match event {
            InformerEvent::InitApply(claim) => self.apply(&mut inner, claim, true),
            InformerEvent::Apply(claim) => self.apply(&mut inner, claim, false),
            InformerEvent::Delete(claim) => {
                inner.others.remove(&hash(claim.uid()));
                inner.on_deleted(claim.uid()).into_iter().collect()
            }
            InformerEvent::Unreadable { uid, .. } => {
                inner.others.insert(hash(&uid));
                Vec::new()
            }
            InformerEvent::InitDone(listed) => {
                let others = mem::take(&mut inner.others).into_iter();
                // Collected in order, a set is packed more densely than as it has grown.
                inner.others = others.filter(|uid| listed.contains_hash(*uid)).collect();
                let is_gone =
                    |uid: &str, entry: &Entry| entry.may_vanish() && !listed.contains(uid);
                let gone = inner.entries.iter().filter(|(uid, entry)| is_gone(uid, entry));
                let gone: Vec<Key> = gone.map(|(uid, _)| uid.clone()).collect();
                gone.iter().filter_map(|uid| inner.on_deleted(uid)).collect()
            }
        }
    }

    /// Handles a claim that exists, from a list (`is_from_list`) or an event. Returns the claims to
    /// queue.
    pub(super) fn apply(&self, inner: &mut Inner, claim: Claim, is_from_list: bool) -> Vec<Key> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let record_status = self.0.record_status_of(&claim);
        let interest = interest(&self.0.identity, &claim, record_status.as_ref());
        let was_of_interest = inner.entries.get(&*uid).is_some_and(Entry::is_of_interest);
        if interest != Interest::None {
            let claim = Arc::new(claim);
            self.keep(inner, uid, Observed { claim, interest, record_status, is_from_list })
        } else if was_of_interest {
            inner.track_other(&claim, false);
            inner.on_lost_interest(&uid, Arc::new(claim)).into_iter().collect()
        } else {
            self.ignore(inner, &claim, is_from_list);
            Vec::new()
        }
    }

    /// Handles a claim that is not of interest and was not before.
    fn ignore(&self, inner: &mut Inner, claim: &Claim, is_from_list: bool) {
        // This process does not see all that another node or provisioner does with its claims.
        let identity = &self.0.identity;
        let is_elsewhere = identity.is_elsewhere(claim) || identity.is_for_another(claim);
        let is_new = !is_from_list && !is_elsewhere && inner.both_listed;
        inner.track_other(claim, is_new);
    }

    /// Adds or updates the entry of a claim that is of interest. Returns the claims to queue.
    fn keep(&self, inner: &mut Inner, uid: Key, observed: Observed) -> Vec<Key> {
        let was_other = inner.others.remove(&hash(&uid));
        let before = inner.entries.get(&*uid).filter(|entry| entry.is_of_interest());
        let is_changed = before.is_none_or(|entry| observed.is_change_of(entry));
        if !inner.entries.contains_key(&*uid) {
            let both_listed = inner.both_listed;
            let is_first_event =
                !observed.is_from_list && !was_other && observed.record_status.is_none();
            inner.insert(uid.clone(), self.0.volume_name(&uid), is_first_event && both_listed);
        }
        let update = |entry: &mut Entry| {
            let is_followed = entry.update(observed);
            is_changed || is_followed
        };
        // Our own writes must not shorten the back-off.
        let must_queue = inner.change(&uid, update).unwrap_or(false);
        if must_queue { vec![uid] } else { Vec::new() }
    }
}

/// A claim of interest, as a list or an event brings it.
struct Observed {
    claim: Arc<Claim>,
    interest: Interest,
    record_status: Option<RecordStatus>,
    is_from_list: bool,
}

impl Observed {
    /// Whether the claim differs from its entry. A relist repeats unchanged claims, which must not
    /// shorten their back-off.
    fn is_change_of(&self, entry: &Entry) -> bool {
        let is_repeated = self.is_from_list && self.claim.is_same_version_as(&entry.known.claim);
        !is_repeated && entry.is_changed(&self.claim)
    }
}

impl Entry {
    /// Whether the claim exists and is of interest. If not, a call keeps the entry.
    fn is_of_interest(&self) -> bool {
        self.known.interest != Interest::None
    }

    /// Whether the claim is not known to be gone, or was kept by our finalizer alone.
    fn may_vanish(&self) -> bool {
        self.is_of_interest() || !self.known.is_gone
    }

    /// Whether the claim has changed in more than our own record. A change of the record of another
    /// node or of a void record counts as well.
    fn is_changed(&self, new: &Claim) -> bool {
        let KnownClaim { claim, record_status, .. } = &self.known;
        let is_foreign = matches!(
            record_status.as_deref(),
            Some(RecordStatus::Elsewhere(_) | RecordStatus::Void(_))
        );
        is_foreign && record_status::is_changed(claim, new)
            || !record_status::differs_only_in_record(claim, new)
    }

    /// Stores the new version of the claim. Returns whether a recorded call is followed from now
    /// on, or is not any longer.
    fn update(&mut self, new: Observed) -> bool {
        let Observed { claim, interest, record_status, .. } = new;
        let becomes_void = self.has_unexpected_record(record_status.as_ref());
        let known = &mut self.known;
        if claim.is_terminating() {
            known.terminating_since.get_or_insert_with(Instant::now);
        }
        if record_status::is_held_only_by_record(&claim) {
            known.is_gone = true;
        }
        let is_elsewhere =
            |status: Option<&RecordStatus>| matches!(status, Some(RecordStatus::Elsewhere(_)));
        if is_elsewhere(known.record_status.as_deref()) && !is_elsewhere(record_status.as_ref()) {
            // That node's call has ended, perhaps with a PersistentVolume whose event is still to
            // come.
            known.required.require();
        }
        known.claim = claim;
        known.interest = interest;
        known.record_status = record_status.map(Arc::new);
        self.follow_record() || becomes_void
    }
}

impl Inner {
    /// Remembers a claim of another provisioner, unless it is bound or `is_new`.
    fn track_other(&mut self, claim: &Claim, is_new: bool) {
        if !claim.is_unbound() {
            self.others.remove(&hash(claim.uid()));
        } else if !is_new {
            self.others.insert(hash(claim.uid()));
        }
    }

    /// The claim exists but is no longer of interest: it is bound, or another driver's. Returns its
    /// UID if it must be followed all the same.
    fn on_lost_interest(&mut self, uid: &str, claim: Arc<Claim>) -> Option<Key> {
        self.drop_interest(uid, |entry| entry.known.claim = claim)
    }

    /// The claim does not exist any more. Returns its UID if it must be followed all the same.
    fn on_deleted(&mut self, uid: &str) -> Option<Key> {
        self.drop_interest(uid, |entry| {
            entry.known.is_gone = true;
            entry.known.terminating_since.get_or_insert_with(Instant::now);
        })
    }

    /// The claim is no longer of interest, for the reason that `note` stores. Returns its UID if it
    /// must be followed all the same.
    fn drop_interest(&mut self, uid: &str, note: impl FnOnce(&mut Entry)) -> Option<Key> {
        self.change(uid, |entry| {
            note(entry);
            entry.known.interest = Interest::None;
            entry.known.record_status = None;
            entry.follow_record();
        })?;
        self.entries.get_key_value(uid).map(|(key, _)| key.clone())
    }
}

/// Decides why a claim is kept, if it is. Evaluated anew at every event (safety rule 12).
fn interest(
    identity: &ProvisionerIdentity,
    claim: &Claim,
    record_status: Option<&RecordStatus>,
) -> Interest {
    match record_status {
        _ if claim.is_unbound() && identity.owns_claim(claim) => Interest::Unbound,
        // The process of that node follows the call while the claim is not being deleted.
        Some(RecordStatus::Elsewhere(_)) if !claim.is_terminating() => Interest::None,
        Some(_) => Interest::Protected,
        None if record_status::of_other_driver(identity, claim).is_some() => Interest::Protected,
        None => Interest::None,
    }
}
