//! What a process that begins to lead now would do with one claim, for `kubectl csi-provisioner explain`.
//!
//! Takes the claim and its class as they were read, and runs them through the index and the plan of the
//! controller. Pure: nothing is read or written.

use std::sync::Arc;

use super::{
    index::{ClaimIndex, ClaimSnapshot},
    plan::{Plan, plan},
};
use crate::{
    controller::{
        ownership::ProvisionerIdentity,
        provisioner::{Failure, ProvisionRequest},
    },
    kube::{
        InformerEvent,
        objects::{Claim, StorageClass, View as _},
    },
};

/// What a new leader would do with a claim.
#[derive(Debug, Clone)]
pub struct Preview {
    /// What the index would know of the claim.
    pub known: ClaimSnapshot,
    /// The plan.
    pub plan: Plan,
    /// The request, if the plan is to call the provisioner.
    pub request: Option<ProvisionRequest>,
}

/// Plans for the claim, whose PersistentVolume gets the name `volume_name`. `None`: the claim is bound, or
/// not this provisioner's, and nothing is open for it.
pub fn preview(
    identity: &ProvisionerIdentity,
    claim: &Arc<Claim>,
    class: Option<&Arc<StorageClass>>,
    volume_name: &Result<String, Failure>,
) -> Option<Preview> {
    let known = snapshot(identity, claim, volume_name.as_ref().ok().cloned())?;
    // Whether a class fits a record is shown by its digest, for which all flags must be known.
    let plan_for = |known: &ClaimSnapshot| plan(identity, known, class.cloned(), |_, _| true);
    let plan = match plan_for(&known) {
        Plan::Void => {
            let mut without_record = known.clone();
            without_record.void();
            plan_for(&without_record)
        }
        plan => plan,
    };
    let request = match &plan {
        Plan::Provision(ask) => {
            let withdrawn = known.is_gone_or_terminating();
            Some(ask.clone().request(identity, claim, withdrawn, || volume_name.clone()))
        }
        _ => None,
    };
    Some(Preview { known, plan, request })
}

/// What the index of a new leader knows of the claim once everything is listed.
fn snapshot(
    identity: &ProvisionerIdentity,
    claim: &Arc<Claim>,
    volume_name: Option<String>,
) -> Option<ClaimSnapshot> {
    let index = ClaimIndex::new(identity.clone(), move |_| volume_name.clone(), |_| {});
    index.on_event(InformerEvent::Init);
    index.on_event(InformerEvent::InitApply(Claim::clone(claim)));
    index.on_event(InformerEvent::InitDone);
    index.both_listed();
    index.snapshot(claim.uid())
}
