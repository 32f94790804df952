//! Live reads before the first call for a claim (safety rule 6).
//!
//! A claim that may have its PersistentVolume already is verified before its first call: its
//! PersistentVolume is looked up by name, and the claim is read again. An event says what
//! prevents it. The [index](super::index) decides what must be verified.

use std::{fmt, time::Duration};

use super::{
    index::{ClaimGuard, Entry, KnownClaim},
    reporting::await_change,
    worker::ClaimWorker,
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

/// What a claim waits for while live reads fail, each time perhaps with another error.
const WAITS_FOR_LIVE_READ: &str = "a live read of its PersistentVolume and the claim";

impl<P: Provisioner> ClaimWorker<P> {
    /// Reads live what is required of the claim. Returns `Ok` if the call may be made, else what to do instead.
    pub(crate) async fn verify_live(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
        request: &ProvisionRequest,
    ) -> Result<(), Action> {
        if !known.must_verify() {
            return Ok(());
        }
        match self.verify(held, known, request).await {
            Ok(None) => {
                held.update(|it| it.verified(known.required));
                Ok(())
            }
            Ok(Some(action)) => Err(action),
            Err(error) => Err(self.on_unverified(request, &error)),
        }
    }

    /// Reports to the user that a live read failed. Returns when to try again.
    fn on_unverified(&self, request: &ProvisionRequest, error: &ApiError) -> Action {
        let why = unverified(error);
        tracing::warn!("{why}");
        // Missing permissions do not come by themselves; other errors often pass.
        if error.is_forbidden() {
            self.blocked(&request.claim, &why, &why, Duration::ZERO);
            return Action::Retry;
        }
        self.retry_blocked(&request.claim, WAITS_FOR_LIVE_READ, &why)
    }

    /// Makes the live reads. `None`: nothing prevents the call.
    async fn verify(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
        request: &ProvisionRequest,
    ) -> Result<Option<Action>, ApiError> {
        let named = self.look_up_by_names(held, request).await?;
        if let Found::HasVolume(volume) = named {
            let read =
                |it: &mut Entry| it.volume_read(&volume, known.required, &self.deps.identity);
            let is_served = held.update(read) == Some(true);
            let is_over = is_served || held.known().is_none();
            return Ok(Some(if is_over { Action::Done } else { Action::Retry }));
        }
        let live = self.read_claim(request).await?.filter(|live| live.uid() == &**held.uid());
        let is_recorded = known.recorded().is_some();
        let is_pv_gone = known.pv_gone().is_some();
        if (known.request.is_some() || is_recorded)
            && !is_pv_gone
            && live.as_ref().is_some_and(|it| is_bound_as_requested(it, request))
        {
            // The volume of the open call was saved, though its PersistentVolume may be gone by now.
            held.update(Entry::found_bound);
            return Ok(Some(Action::Done));
        }
        // An open call is repeated even if nobody wants its volume any more.
        if known.request.is_none() || is_pv_gone {
            let may_exist = is_recorded || is_pv_gone;
            let Some(live) = live.filter(|live| still_wants(live, request, may_exist)) else {
                // The event of the change is still to come.
                return Ok(Some(Action::Done));
            };
            let read = |it: &mut Entry| it.claim_read(&live, &self.deps.identity);
            if !is_recorded && held.update(read) == Some(true) {
                return Ok(Some(Action::Retry));
            }
        }
        let Found::NameTaken { name, owner } = named else { return Ok(None) };
        let why = name_taken(&name, &owner);
        held.update(Entry::await_pv_gone);
        self.blocked(&request.claim, &why, &why, Duration::ZERO);
        // The deletion of that PersistentVolume queues the claim.
        Ok(Some(await_change(held)))
    }

    /// Looks for a PersistentVolume of the claim under the name that it would get and under the
    /// usual one.
    async fn look_up_by_names(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
    ) -> Result<Found, ApiError> {
        let uid = held.uid();
        let named = match &request.volume_name {
            Ok(name) => judge(self.read_volume(name).await?, uid),
            Err(_) => Found::Clear,
        };
        let usual = format!("pvc-{}", &**uid);
        if matches!(named, Found::HasVolume(_)) || request.volume_name.as_ref() == Ok(&usual) {
            return Ok(named);
        }
        // Another claim's PersistentVolume is an obstacle only under the name that will be used.
        Ok(match judge(self.read_volume(&usual).await?, uid) {
            // Whether the claim needs no PersistentVolume beside this one.
            Found::HasVolume(volume)
                if held.known().is_none_or(|known| known.is_served_by(&volume)) =>
            {
                Found::HasVolume(volume)
            }
            _ => named,
        })
    }

    pub(super) async fn read_volume(&self, volume: &str) -> Result<Option<Volume>, ApiError> {
        self.deps.client.get_opt(Name::cluster(volume)?).await
    }

    async fn read_claim(&self, request: &ProvisionRequest) -> Result<Option<Claim>, ApiError> {
        let claim = &request.claim;
        self.deps.client.get_opt(Name::namespaced(claim.namespace(), claim.name())?).await
    }
}

/// Whether the claim, read live, is unbound, not being deleted, and for the node of the request. If
/// the volume may exist already, it only has to be unbound, as that call is repeated in any case.
fn still_wants(live: &Claim, request: &ProvisionRequest, may_exist: bool) -> bool {
    let same_node = ownership::selected_node(live) == request.selected_node.as_deref();
    live.is_unbound() && (may_exist || same_node && !live.is_terminating())
}

/// Whether the claim, read live, is bound to the requested volume.
fn is_bound_as_requested(live: &Claim, request: &ProvisionRequest) -> bool {
    !live.is_unbound() && live.spec.volume_name.as_deref() == request.volume_name.as_deref().ok()
}

/// What live reads of PersistentVolumes showed.
#[derive(Debug)]
pub enum Found {
    /// Nothing prevents the call.
    Clear,
    /// The claim has this PersistentVolume.
    HasVolume(Box<Volume>),
    /// The PersistentVolume of that name is not the claim's.
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is, for the user.
        owner: String,
    },
}

/// Why nothing is asked for while a live read fails.
pub fn unverified(error: impl fmt::Display) -> String {
    format!("cannot tell whether the claim has a PersistentVolume: {error}")
}

/// Why nothing is asked for while the PersistentVolume of this name is for another owner.
pub fn name_taken(name: &str, owner: &str) -> String {
    format!("PersistentVolume {name:?} exists already and is for {owner}")
}

/// Decides what a PersistentVolume under the claim's name means for the claim.
pub fn judge(found: Option<Volume>, uid: &str) -> Found {
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

    /// A new volume is made only for a claim that still wants it; a call that may have made one is
    /// repeated.
    #[test]
    fn a_claim_that_is_deleted_moved_or_bound_wants_no_new_volume() {
        let live = |metadata: serde_json::Value, spec: serde_json::Value| -> Claim {
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let selected = |node| json!({"annotations": {ownership::SELECTED_NODE: node}});
        let mut going = selected("n");
        going["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let class = json!({"metadata": {}, "provisioner": "d"});
        let request = ProvisionRequest {
            claim: Arc::new(live(selected("n"), json!({}))),
            class: Arc::new(serde_json::from_value(class).unwrap()),
            volume_name: Ok("pvc-u".into()),
            selected_node: Some("n".into()),
            withdrawn: false,
            source: None,
            topology: None,
        };
        // The live claim, whether it wants a new volume, and whether it wants one that may exist.
        let table = [
            (live(selected("n"), json!({})), [true, true]),
            (live(going, json!({})), [false, true]),
            (live(selected("m"), json!({})), [false, true]),
            (live(json!({}), json!({})), [false, true]),
            (live(selected("n"), json!({"volumeName": "pv"})), [false, false]),
        ];
        for (live, expected) in table {
            assert_eq!(
                [false, true].map(|it| still_wants(&live, &request, it)),
                expected,
                "{live:?}"
            );
        }
    }
}
