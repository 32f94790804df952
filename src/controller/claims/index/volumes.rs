//! What PersistentVolumes tell of their claims.
//!
//! Owns what the claim book learns from each PersistentVolume that goes past, whatever its name and
//! driver, from its end, and from the lack of it in a whole list (safety rule 6).

use super::{
    ClaimIndex, ClaimSnapshot, Verification,
    entry::{Entry, OnceGone},
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
    /// Takes in a PersistentVolume that goes past, of whatever driver, and names the claim to look
    /// at now: one whose open call it closes, whose mark can go or that is to be reported.
    pub fn volume_passes(&self, volume: &Volume) -> Option<String> {
        let mut inner = self.0.inner.lock();
        let named = inner.by_volume.get(volume.name()).cloned();
        let for_uid = match &named {
            _ if !mutations::is_on(Mutation::KnownByName) => claim_uid(volume),
            named => named.as_deref().unwrap_or_default(),
        };
        let take_in = |entry: &mut Entry| {
            let was_open = entry.state.is_open();
            entry.volume_seen(volume, self.is_local());
            let is_due = entry.mark.is_some() || entry.superseded.is_some();
            was_open && !entry.state.is_open() && is_due
        };
        let closed = inner.change(for_uid, take_in);
        if self.is_named_by_us(volume) {
            let usual = self.is_usual_name(volume);
            inner.names.usual |= usual;
            inner.names.others |= !usual;
        }
        // The name is taken by a stranger: found out live, with an event, before any call.
        let stranger = named.as_ref().filter(|uid| *uid != for_uid);
        if let Some(entry) = stranger.and_then(|uid| inner.entries.get_mut(uid)) {
            entry.requires(Verification::Volume);
        }
        closed.unwrap_or_default().then(|| for_uid.to_owned())
    }

    /// Whether a provisioner of our driver has named the PersistentVolume.
    fn is_named_by_us(&self, volume: &Volume) -> bool {
        let maker = volume.annotation(PROVISIONED_BY);
        !claim_uid(volume).is_empty()
            && maker.is_some_and(|maker| self.0.identity.is_own_name(maker))
    }

    /// Whether look-ups for its claim find the PersistentVolume.
    fn is_usual_name(&self, volume: &Volume) -> bool {
        let (uid, name) = (claim_uid(volume), volume.name());
        let is_default = name.strip_prefix("pvc-").is_some_and(|named| named == uid);
        is_default || (self.0.volume_name)(uid).is_some_and(|own| own == name)
    }

    /// A PersistentVolume goes past that cannot be read: the claim that waits for its name is in doubt.
    pub fn unreadable_volume_passes(&self, name: &str) {
        let mut inner = self.0.inner.lock();
        if let Some(uid) = inner.by_volume.get(name).cloned() {
            inner.change(&uid, |entry| entry.requires(Verification::Volume));
        }
    }

    /// Takes in that a PersistentVolume is gone, and names the claim to look at now: one that
    /// waits for the name. A claim that had this volume may get another, but nobody hurries: as
    /// in the original, its next event or the audit brings it back.
    pub fn volume_gone(&self, volume: &Volume) -> Option<String> {
        let mut inner = self.0.inner.lock();
        let own = claim_uid(volume);
        if let Some(returns) = inner.change(own, Entry::volume_gone) {
            return returns.then(|| own.to_owned());
        }
        let uid = inner.by_volume.get(volume.name())?.clone();
        inner.change(&uid, |entry| entry.requires(Verification::Volume)).map(|()| uid)
    }

    /// The PersistentVolume is let go of, and its claim is looked at once it is gone.
    pub fn returns(&self, volume: &Volume) {
        self.change(claim_uid(volume), |entry| entry.once_gone = OnceGone::Returns);
    }

    /// A live read has found the PersistentVolume that was to be saved, and that it is being deleted:
    /// its claim is looked at once it is gone. Where its end was seen meanwhile, that stands.
    pub fn volume_leaves(&self, uid: &str, volume: &Volume) {
        self.change(uid, |entry| {
            if matches!(entry.state, ClaimState::Saving(_)) {
                entry.volume_seen(volume, self.is_local());
                entry.once_gone = OnceGone::Returns;
            }
        });
    }

    /// A list of all PersistentVolumes begins.
    pub fn volumes_restarted(&self) {
        let mut inner = self.0.inner.lock();
        inner.entries.values_mut().for_each(|entry| entry.shown = false);
    }

    /// The list of all PersistentVolumes is whole: a claim is not done with a volume that it does
    /// not show, whose end was missed. Names the claims to look at for that.
    pub fn volumes_listed(&self) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        let looked_at = inner.entries.iter_mut().filter_map(|(uid, entry)| {
            let missing = !entry.shown && entry.state == ClaimState::Done;
            (missing && entry.volume_gone()).then(|| uid.clone())
        });
        looked_at.collect()
    }

    /// A live read has found the claim bound to the volume of its open call.
    pub fn was_saved(&self, uid: &str) {
        self.change(uid, Entry::had_volume);
    }

    /// A live read since this glance has found a PersistentVolume that serves the claim: false where
    /// that is in doubt again, as its end may have been seen meanwhile.
    pub fn volume_found(&self, snapshot: &ClaimSnapshot, volume: &Volume) -> bool {
        let found = |entry: &mut Entry| {
            let stands = entry.doubted == snapshot.doubted && entry.is_served_by(volume);
            if stands {
                entry.verification = Verification::None;
                entry.volume_seen(volume, self.is_local());
            }
            stands
        };
        self.change(snapshot.claim.uid(), found).unwrap_or(true)
    }

    /// Whether each node has a driver and a process of its own.
    pub(super) fn is_local(&self) -> bool {
        self.0.identity.node.is_some()
    }

    /// What was asked for in a call that a volume from elsewhere has closed, its end not known; once.
    pub fn take_superseded(&self, uid: &str) -> Option<ProvisionRequest> {
        self.change(uid, |entry| entry.superseded.take()).flatten().map(|order| *order)
    }

    /// Whether the claim `uid` needs no other PersistentVolume than this, which is for it.
    pub fn is_served_by(&self, uid: &str, volume: &Volume) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_none_or(|entry| entry.is_served_by(volume))
    }
}

/// The UID of the claim that the PersistentVolume is for; empty when it is for none.
fn claim_uid(volume: &Volume) -> &str {
    volume.spec.claim_ref.as_ref().map(|claim| claim.uid.as_str()).unwrap_or_default()
}
