//! What a process that begins to lead now would do with one claim.
//!
//! Takes the claim and its class as they were read, and runs them through the index and the plan of the
//! controller. Pure: nothing is read or written.

use std::sync::Arc;

use csi_provisioner::{
    controller::{
        claims::{
            index::{ClaimIndex, KnownClaim},
            plan::{Facts, Plan, is_record_void, plan},
        },
        ownership::ProvisionerIdentity,
        provisioner::ProvisionRequest,
    },
    kube::{
        InformerEvent,
        objects::{Claim, StorageClass, View as _},
    },
};

/// What a new leader would do with a claim.
#[derive(Debug, Clone)]
pub(crate) struct Preview {
    /// What the index would know of the claim.
    pub(crate) known: KnownClaim,
    /// The plan.
    pub(crate) plan: Plan,
}

impl Preview {
    /// The request, if the plan is to ask the provisioner.
    pub(crate) fn request(&self) -> Option<&ProvisionRequest> {
        match &self.plan {
            Plan::Provision(request) => Some(request),
            _ => None,
        }
    }
}

/// Plans for the claim. `None`: the claim is bound, or not this provisioner's, and nothing is open for it.
pub(crate) fn preview(
    identity: &ProvisionerIdentity,
    claim: &Arc<Claim>,
    class: Option<&Arc<StorageClass>>,
) -> Option<Preview> {
    let known = known(identity, claim)?;
    let facts = Facts {
        identity,
        class: class.cloned(),
        // Whether a class fits a record is shown by its digest, for which all flags must be known.
        fits: &|_, _| true,
    };
    let mut planned = known.clone();
    if is_record_void(&known, &facts) {
        planned.void();
    }
    Some(Preview { plan: plan(&planned, &facts), known })
}

/// What the index of a new leader knows of the claim once everything is listed.
fn known(identity: &ProvisionerIdentity, claim: &Claim) -> Option<KnownClaim> {
    let index = ClaimIndex::new(identity.clone(), |_, _| {});
    for event in InformerEvent::list(vec![claim.clone()]) {
        index.on_event(event);
    }
    index.both_listed();
    index.known(claim.uid())
}
