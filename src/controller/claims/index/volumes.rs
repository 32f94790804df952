//! Events of PersistentVolumes, as far as they concern claims.
//!
//! Each PersistentVolume that exists is compared with the claims, whatever its name and driver, as
//! is its deletion and its absence from a complete list (safety rule 6).

use std::mem;

use super::{ClaimIndex, entry::Entry};
use crate::{
    controller::Key,
    kube::{
        InformerEvent, Listed,
        objects::{View as _, Volume},
    },
};

impl ClaimIndex {
    /// Handles an event of the watch of PersistentVolumes. Returns the claims to queue.
    pub fn on_volume_event(&self, event: &InformerEvent<Volume>) -> Vec<Key> {
        match event {
            InformerEvent::InitApply(volume) | InformerEvent::Apply(volume) => {
                self.on_volume(volume).into_iter().collect()
            }
            InformerEvent::Delete(volume) => self.on_volume_deleted(volume).into_iter().collect(),
            InformerEvent::Unreadable { name, .. } => {
                self.on_unreadable_volume(name);
                Vec::new()
            }
            InformerEvent::InitDone(listed) => self.on_volumes_listed(listed),
        }
    }

    /// Handles a PersistentVolume of any driver that exists. Returns the claim to queue: one whose
    /// open call it closes, and whose record can go or whose call must be reported.
    pub(super) fn on_volume(&self, volume: &Volume) -> Option<Key> {
        let mut inner = self.0.inner.lock();
        let named = inner.by_volume.get(volume.name()).cloned();
        let for_uid = claim_uid(volume);
        let take_in = |entry: &mut Entry| {
            let was_open = entry.known.state.is_open();
            entry.volume_found(volume, &self.0.identity);
            let is_due = entry.known.is_protected() || entry.known.superseded.is_some();
            was_open && (entry.has_pv() || !entry.known.state.is_open()) && is_due
        };
        let closed = inner.change(for_uid, take_in);
        // Another claim's PersistentVolume has the name: the live look-up reports that to the user.
        let owner_of_name = named.as_deref().filter(|uid| *uid != for_uid);
        if let Some(entry) = owner_of_name.and_then(|uid| inner.entries.get_mut(uid)) {
            entry.name_taken(volume);
        }
        closed.unwrap_or_default().then(|| for_uid.into())
    }

    /// Handles a PersistentVolume that cannot be decoded: the claim that would get its name is
    /// verified.
    pub(super) fn on_unreadable_volume(&self, name: &str) {
        let mut inner = self.0.inner.lock();
        if let Some(uid) = inner.by_volume.get(name).cloned() {
            inner.change(&uid, |entry| entry.known.required.require());
        }
    }

    /// Handles the deletion of a PersistentVolume. Returns the claim to queue: one that waits for
    /// the name. A claim that had this volume may get another one, but only at its next event or
    /// resync, as with external-provisioner.
    pub(super) fn on_volume_deleted(&self, volume: &Volume) -> Option<Key> {
        let mut inner = self.0.inner.lock();
        let own = claim_uid(volume);
        if let Some(returns) = inner.change(own, Entry::pv_deleted) {
            return returns.then(|| own.into());
        }
        let uid = inner.by_volume.get(volume.name())?.clone();
        let name_freed = |entry: &mut Entry| {
            entry.name_taken(volume);
            entry.pv.is_awaited_gone = false;
        };
        inner.change(&uid, name_freed).map(|()| uid)
    }

    /// All PersistentVolumes are listed: a claim whose PersistentVolume is not among them has lost it, and the
    /// deletion event was missed. Or that was saved while the list ran: then the claim's verification or the
    /// next event finds it. Returns the claims to queue.
    pub(super) fn on_volumes_listed(&self, listed: &Listed) -> Vec<Key> {
        let mut inner = self.0.inner.lock();
        let looked_at = inner.entries.iter_mut().filter_map(|(uid, entry)| {
            let is_listed = entry.pv.uid.is_some_and(|pv| listed.contains_hash(pv));
            let is_due = match (entry.has_pv(), is_listed) {
                (true, true) => false,
                (true, false) => entry.pv_deleted(),
                // It may be another's under its name that is gone: that is looked up again.
                (false, _) => mem::take(&mut entry.pv.is_awaited_gone),
            };
            is_due.then(|| uid.clone())
        });
        looked_at.collect()
    }
}

/// The UID of the claim that the PersistentVolume is for; empty if it is for none.
pub(in crate::controller) fn claim_uid(volume: &Volume) -> &str {
    volume.spec.claim_ref.as_ref().map(|claim| claim.uid.as_str()).unwrap_or_default()
}
