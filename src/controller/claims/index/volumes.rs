//! Events of PersistentVolumes, as far as they concern claims.
//!
//! Each PersistentVolume that exists is compared with the claims, whatever its name and driver, as
//! is its deletion and its absence from a complete list (safety rule 6).

use super::{
    ClaimIndex, ClaimSnapshot, Verification,
    entry::{Entry, OnPvGone},
};
use crate::{
    controller::{
        claims::state::ClaimState, ownership::PROVISIONED_BY, provisioner::ProvisionRequest,
    },
    kube::objects::{View as _, Volume},
    mutations,
    mutations::Mutation,
};

impl ClaimIndex {
    /// Handles a PersistentVolume of any driver that exists. Returns the claim to queue: one whose
    /// open call it closes, and whose record can go or whose call must be reported.
    pub fn on_volume(&self, volume: &Volume) -> Option<String> {
        let mut inner = self.0.inner.lock();
        let named = inner.by_volume.get(volume.name()).cloned();
        let for_uid = match &named {
            _ if !mutations::is_on(Mutation::KnownByName) => claim_uid(volume),
            named => named.as_deref().unwrap_or_default(),
        };
        let take_in = |entry: &mut Entry| {
            let was_open = entry.state.is_open();
            entry.volume_found(volume, self.is_local());
            let is_due = entry.record_status.is_some() || entry.superseded.is_some();
            was_open && !entry.state.is_open() && is_due
        };
        let closed = inner.change(for_uid, take_in);
        if self.is_named_by_us(volume) {
            let usual = self.is_usual_name(volume);
            inner.names.usual |= usual;
            inner.names.others |= !usual;
        }
        // Another claim's PersistentVolume has the name: the live look-up reports that to the user.
        let owner_of_name = named.as_ref().filter(|uid| *uid != for_uid);
        if let Some(entry) = owner_of_name.and_then(|uid| inner.entries.get_mut(uid)) {
            entry.requires(Verification::Volume);
        }
        closed.unwrap_or_default().then(|| for_uid.to_owned())
    }

    /// Whether a provisioner of our driver has made the PersistentVolume, and so named it.
    fn is_named_by_us(&self, volume: &Volume) -> bool {
        let maker = volume.annotation(PROVISIONED_BY);
        !claim_uid(volume).is_empty()
            && maker.is_some_and(|maker| self.0.identity.is_own_name(maker))
    }

    /// Whether a live look-up for the claim finds the PersistentVolume by its name.
    fn is_usual_name(&self, volume: &Volume) -> bool {
        let uid = claim_uid(volume);
        let name = volume.name();
        let is_default = name.strip_prefix("pvc-").is_some_and(|named| named == uid);
        is_default || (self.0.volume_name)(uid).is_some_and(|own| own == name)
    }

    /// Handles a PersistentVolume that cannot be decoded: the claim that would get its name is
    /// verified.
    pub fn on_unreadable_volume(&self, name: &str) {
        let mut inner = self.0.inner.lock();
        if let Some(uid) = inner.by_volume.get(name).cloned() {
            inner.change(&uid, |entry| entry.requires(Verification::Volume));
        }
    }

    /// Handles the deletion of a PersistentVolume. Returns the claim to queue: one that waits for
    /// the name. A claim that had this volume may get another one, but only at its next event or
    /// resync, as with external-provisioner.
    pub fn on_volume_deleted(&self, volume: &Volume) -> Option<String> {
        let mut inner = self.0.inner.lock();
        let own = claim_uid(volume);
        if let Some(returns) = inner.change(own, Entry::pv_deleted) {
            return returns.then(|| own.to_owned());
        }
        let uid = inner.by_volume.get(volume.name())?.clone();
        inner.change(&uid, |entry| entry.requires(Verification::Volume)).map(|()| uid)
    }

    /// This process removes its finalizer from the PersistentVolume: its claim is queued once it is
    /// gone.
    pub fn requeue_when_pv_gone(&self, volume: &Volume) {
        self.change(claim_uid(volume), |entry| entry.on_pv_gone = OnPvGone::Requeue);
    }

    /// A live read found the PersistentVolume that was to be saved, and that it is being deleted:
    /// its claim is queued once it is gone. If its deletion was seen meanwhile, nothing changes.
    pub fn on_pv_terminating(&self, uid: &str, volume: &Volume) {
        self.change(uid, |entry| {
            if matches!(entry.state, ClaimState::Saving(_)) {
                entry.volume_found(volume, self.is_local());
                entry.on_pv_gone = OnPvGone::Requeue;
            }
        });
    }

    /// A list of all PersistentVolumes begins.
    pub fn on_volume_list_start(&self) {
        let mut inner = self.0.inner.lock();
        inner.entries.values_mut().for_each(|entry| entry.is_pv_listed = false);
    }

    /// The list of all PersistentVolumes is complete: a claim whose PersistentVolume is not in it
    /// has lost it, and the deletion event was missed. Returns the claims to queue.
    pub fn on_volume_list_done(&self) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        let looked_at = inner.entries.iter_mut().filter_map(|(uid, entry)| {
            let missing = !entry.is_pv_listed && entry.state == ClaimState::Done;
            (missing && entry.pv_deleted()).then(|| uid.clone())
        });
        looked_at.collect()
    }

    /// A live read found the claim bound to the volume of its open call.
    pub fn on_found_bound(&self, uid: &str) {
        self.change(uid, Entry::found_bound);
    }

    /// A live read after `snapshot` found a PersistentVolume of the claim. Returns false if the
    /// claim must be verified again, because the PersistentVolume may have been deleted meanwhile.
    pub fn on_volume_found(&self, snapshot: &ClaimSnapshot, volume: &Volume) -> bool {
        let found = |entry: &mut Entry| {
            let is_current = entry.verification_epoch == snapshot.verification_epoch
                && entry.is_served_by(volume);
            if is_current {
                entry.verification = Verification::None;
                entry.volume_found(volume, self.is_local());
            }
            is_current
        };
        self.change(snapshot.claim.uid(), found).unwrap_or(true)
    }

    /// Whether each node has a driver and a provisioner of its own.
    pub(super) fn is_local(&self) -> bool {
        self.0.identity.node.is_some()
    }

    /// Returns the request of a call of unknown outcome that another volume has closed; once.
    pub fn take_superseded(&self, uid: &str) -> Option<ProvisionRequest> {
        self.change(uid, |entry| entry.superseded.take()).flatten().map(|request| *request)
    }

    /// Whether the claim with this UID needs no PersistentVolume beside `volume`, which is for it.
    pub fn is_served_by(&self, uid: &str, volume: &Volume) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_none_or(|entry| entry.is_served_by(volume))
    }
}

/// The UID of the claim that the PersistentVolume is for; empty if it is for none.
fn claim_uid(volume: &Volume) -> &str {
    volume.spec.claim_ref.as_ref().map(|claim| claim.uid.as_str()).unwrap_or_default()
}
