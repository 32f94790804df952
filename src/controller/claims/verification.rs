//! Reading live what is in doubt about a claim, before its first call (safety rule 6).
//!
//! Owns what is looked up, by which names, and what follows from what is found. Promises that a
//! claim which may have its PersistentVolume is not asked for before that is known, and that its
//! user hears what keeps it from being known. Leaves what is in doubt to `claim_book`.

use std::time::Duration;

use super::{
    index::{ClaimSnapshot, Verification},
    sync::{AT_REST, ClaimWorker, PATIENCE},
};
use crate::{
    controller::{
        ownership,
        provisioner::{ProvisionRequest, Provisioner},
    },
    kube::{
        ApiError, Name,
        objects::{Claim, View as _, Volume},
    },
    workqueue::Action,
};

impl<P: Provisioner> ClaimWorker<P> {
    /// Reads live what is in doubt (safety rule 6); an error says what becomes of the claim.
    pub(crate) async fn settle_doubt(
        &self,
        uid: &str,
        snapshot: &ClaimSnapshot,
        order: &ProvisionRequest,
    ) -> Result<(), Action> {
        if snapshot.verification == Verification::None {
            return Ok(());
        }
        match self.verify(uid, snapshot, order).await {
            Ok(Found::Clear) => {
                self.book.looked_up(snapshot);
                Ok(())
            }
            Ok(Found::HasVolume(volume)) => {
                let stands = self.book.volume_found(snapshot, &volume);
                Err(if stands { Action::Done } else { Action::Retry })
            }
            Ok(Found::WasSaved) => {
                self.book.was_saved(uid);
                Err(Action::Done)
            }
            // The event that says so comes.
            Ok(Found::Moot) => Err(Action::Done),
            Ok(Found::Recorded) => Err(Action::Retry),
            Ok(Found::NameTaken { name, owner }) => {
                let why = format!("PersistentVolume {name:?} exists already and is for {owner}");
                self.tell_blocked(&order.claim, &why, Duration::ZERO);
                // The end of that PersistentVolume wakes the claim.
                Err(Action::RequeueAfter(AT_REST))
            }
            Err(error) => {
                let why = format!("cannot tell whether the claim has a PersistentVolume: {error}");
                tracing::warn!("{why}");
                // What is forbidden stays so; other errors often pass by themselves.
                let patience = if error.is_forbidden() { Duration::ZERO } else { PATIENCE };
                self.tell_blocked(&order.claim, &why, patience);
                Err(Action::Retry)
            }
        }
    }

    async fn verify(
        &self,
        uid: &str,
        snapshot: &ClaimSnapshot,
        order: &ProvisionRequest,
    ) -> Result<Found, ApiError> {
        let named = self.look_up_by_names(uid, order).await?;
        if matches!(named, Found::HasVolume(_))
            || snapshot.verification < Verification::VolumeAndClaim
        {
            return Ok(named);
        }
        let live = self.live_claim(order).await?.filter(|live| live.uid() == uid);
        let is_open = snapshot.order.is_some() || snapshot.recorded.is_some();
        if is_open
            && snapshot.bared.is_none()
            && live.as_ref().is_some_and(|it| is_bound_as_asked(it, order))
        {
            return Ok(Found::WasSaved);
        }
        if snapshot.order.is_some() && snapshot.bared.is_none() {
            // An open call is followed to its end even when nobody wants its volume any more.
            return Ok(named);
        }
        let is_recorded = snapshot.recorded.is_some() && self.book.adopted(uid).is_none();
        let may_exist = is_recorded || snapshot.bared.is_some();
        let Some(live) = live.filter(|live| still_asks(live, order, may_exist)) else {
            return Ok(Found::Moot);
        };
        let is_new = snapshot.recorded.is_none() && self.book.record_found(&live);
        Ok(if is_new { Found::Recorded } else { named })
    }

    /// A PersistentVolume for the claim under its own name or the usual one.
    async fn look_up_by_names(
        &self,
        uid: &str,
        order: &ProvisionRequest,
    ) -> Result<Found, ApiError> {
        let named = match &order.volume_name {
            Ok(name) => judge(self.find(name).await?, uid),
            Err(_) => Found::Clear,
        };
        let usual = format!("pvc-{uid}");
        if matches!(named, Found::HasVolume(_)) || order.volume_name.as_ref() == Ok(&usual) {
            return Ok(named);
        }
        // Only the name that will be used can be in the way: a stranger's is no matter here.
        Ok(match judge(self.find(&usual).await?, uid) {
            Found::HasVolume(volume) if self.book.is_served_by(uid, &volume) => {
                Found::HasVolume(volume)
            }
            _ => named,
        })
    }

    async fn find(&self, volume: &str) -> Result<Option<Volume>, ApiError> {
        match self.client.get::<Volume>(Name::cluster(volume)?).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    async fn live_claim(&self, order: &ProvisionRequest) -> Result<Option<Claim>, ApiError> {
        let name = Name::namespaced(order.claim.namespace(), order.claim.name())?;
        match self.client.get::<Claim>(name).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }
}

/// Whether the claim, read live, is unbound, not deleted and for this node. Where the volume may exist
/// already, it only has to be unbound: that volume is followed to its end where it was asked for.
fn still_asks(live: &Claim, order: &ProvisionRequest, may_exist: bool) -> bool {
    let same_node = ownership::selected_node(live) == order.selected_node.as_deref();
    live.is_unbound() && (may_exist || same_node && !live.is_terminating())
}

/// Whether the claim, read live, is bound to the very volume that was asked for.
fn is_bound_as_asked(live: &Claim, order: &ProvisionRequest) -> bool {
    !live.is_unbound() && live.spec.volume_name.as_ref() == order.volume_name.as_ref().ok()
}

/// What a live look-up showed.
#[derive(Debug)]
enum Found {
    /// Nothing is in the way.
    Clear,
    /// The claim has its PersistentVolume: this one.
    HasVolume(Box<Volume>),
    /// The claim is gone, bound, or for another node now.
    Moot,
    /// Another process has left a call for the claim open.
    Recorded,
    /// The volume of the open call was saved, even if it is gone by now.
    WasSaved,
    /// The PersistentVolume of that name is somebody else's.
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is, in words.
        owner: String,
    },
}

/// What a PersistentVolume under the claim's name means for the claim.
fn judge(found: Option<Volume>, uid: &str) -> Found {
    let Some(volume) = found else { return Found::Clear };
    let owner = match &volume.spec.claim_ref {
        Some(claim) if claim.uid == uid => return Found::HasVolume(Box::new(volume)),
        Some(claim) => format!("the claim {}/{}", claim.namespace, claim.name),
        None => "no claim".to_owned(),
    };
    Found::NameTaken { name: volume.name().to_owned(), owner }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_under_the_claims_name_is_judged_by_whose_it_is() {
        let volume = |claim: serde_json::Value| -> Volume {
            serde_json::from_value(json!({"spec": {"claimRef": claim}})).unwrap()
        };
        let judged = |found| match judge(found, "u") {
            Found::NameTaken { owner, .. } => owner,
            other => format!("{other:?}").chars().take_while(|c| c.is_alphabetic()).collect(),
        };
        assert_eq!(judged(None), "Clear");
        assert_eq!(judged(Some(volume(json!({"uid": "u"})))), "HasVolume");
        let taken = judged(Some(volume(json!({"uid": "x", "namespace": "ns", "name": "c"}))));
        assert_eq!(taken, "the claim ns/c");
        assert_eq!(judged(Some(volume(json!(null)))), "no claim");
    }

    /// A volume is made for a claim that still asks for it; one that may exist is followed.
    #[test]
    fn a_claim_that_is_deleted_moved_or_bound_by_now_asks_no_more() {
        let live = |metadata: serde_json::Value, spec: serde_json::Value| -> Claim {
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let selected = |node| json!({"annotations": {ownership::SELECTED_NODE: node}});
        let mut going = selected("n");
        going["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let class = json!({"metadata": {}, "provisioner": "d"});
        let order = ProvisionRequest {
            claim: Arc::new(live(selected("n"), json!({}))),
            class: Arc::new(serde_json::from_value(class).unwrap()),
            volume_name: Ok("pvc-u".into()),
            selected_node: Some("n".into()),
            withdrawn: false,
            source: None,
            topology: None,
        };
        // The claim as it is, whether it asks for a new volume, and for one that may exist.
        let table = [
            (live(selected("n"), json!({})), [true, true]),
            (live(going, json!({})), [false, true]),
            (live(selected("m"), json!({})), [false, true]),
            (live(json!({}), json!({})), [false, true]),
            (live(selected("n"), json!({"volumeName": "pv"})), [false, false]),
        ];
        for (live, expected) in table {
            assert_eq!([false, true].map(|it| still_asks(&live, &order, it)), expected, "{live:?}");
        }
    }
}
