//! What to do about a claim now.
//!
//! Owns that decision, by what is known of the claim and its class. Promises that an open call is
//! followed to its end, whatever has become of either.

use std::sync::Arc;

use super::super::{
    claim_book::{Doubt, Glance},
    claim_state::Demand,
    leftover::Leftover,
    open_calls::mark,
    ownership::{self, Identity, SELECTED_NODE},
    provisioner::Order,
};
use crate::kube_api::views::{Claim, StorageClass, View as _};

/// What to do about a claim now.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    /// Nothing, until an event comes.
    Drop,
    /// Its class keeps it waiting, for this reason.
    Blocked(String),
    /// Ask the provisioner.
    Provision(Arc<StorageClass>),
    /// Remove what the last call for this order left.
    Discard(Box<Order>, Box<Leftover>),
    /// The volume with this handle may be left, and nobody wants it.
    Suspect(String),
}

/// Decides what to do about a claim, whose class is `class` where that exists.
pub(super) fn plan(identity: &Identity, glance: &Glance, class: Option<Arc<StorageClass>>) -> Plan {
    if let (Some(order), Some(leftover)) = (&glance.order, &glance.leftover) {
        return Plan::Discard(Box::new(order.clone()), leftover.clone());
    }
    if let (Some(handle), Demand::Withdrawn) = (&glance.bared, glance.demand) {
        return Plan::Suspect(handle.clone());
    }
    // Once all PersistentVolumes are listed it comes back.
    if !glance.may_call || glance.doubt == Doubt::Unlisted {
        return Plan::Drop;
    }
    // An open call is followed to its end, whatever has become of claim and class.
    if let Some(order) = &glance.order {
        return Plan::Provision(Arc::clone(&order.class));
    }
    if glance.demand == Demand::Withdrawn || !identity.owns_claim(&glance.claim) {
        return Plan::Drop;
    }
    if let Some(node) = followed_on(identity, &glance.claim) {
        return Plan::Blocked(format!(
            "a CreateVolume that was made for the claim on node {node:?} may still run: it is followed to its end there"
        ));
    }
    let Some(class) = class else {
        return Plan::Blocked(match ownership::class_of_claim(&glance.claim) {
            "" => "the claim names no storage class".to_owned(),
            name => format!("storageclass.storage.k8s.io \"{name}\" not found"),
        });
    };
    if waits_for_a_node(&glance.claim, &class) {
        return Plan::Drop;
    }
    if !identity.knows(&class.provisioner) {
        return Plan::Blocked(format!(
            "storage class {:?} is for the provisioner {:?}, but the claim is annotated for {:?}",
            class.name(),
            class.provisioner,
            identity.driver
        ));
    }
    Plan::Provision(class)
}

/// The node on which another process follows an open call for the claim, which is ours by now.
fn followed_on(identity: &Identity, claim: &Claim) -> Option<String> {
    let own = identity.node.as_ref()?;
    let record = mark::read(claim).filter(|record| record.driver == identity.driver)?;
    record.node.filter(|node| node != own)
}

/// Whether the class binds late and the scheduler has not chosen a node yet.
fn waits_for_a_node(claim: &Claim, class: &StorageClass) -> bool {
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    late && claim.annotation(SELECTED_NODE).unwrap_or_default().is_empty()
}
