//! Decides what to do with a claim now.
//!
//! `plan` is a pure function of what is known of the claim and of `Facts`. A call that this process has
//! open is repeated until its outcome is known, whatever becomes of claim and class. A recorded
//! call of an earlier process is repeated only with a class of our driver that is the recorded one.

use std::sync::Arc;

use super::{
    super::{
        ownership::{ProvisionerIdentity, SELECTED_NODE},
        provisioner::ProvisionRequest,
    },
    index::KnownClaim,
    state::ClaimState,
};
use crate::{
    controller::{
        model::{record::Record, topology::Pinned, unusable_volume::UnusableVolume},
        ownership,
    },
    kube::objects::{Claim, StorageClass, View as _},
};

/// Why a claim gets no volume after a suspected leak (safety rule 14).
const SUSPECTED_LEAK: &str = "a volume that was made for the claim may be left at the driver, and no other is made \
    while this provisioner runs: see its log for the volume, then delete the claim and create it again";

/// Why a claim whose class does not exist gets no volume.
pub fn missing_class(claim: &Claim) -> String {
    match ownership::class_of_claim(claim) {
        "" => "the claim names no storage class".to_owned(),
        name => format!("storageclass.storage.k8s.io \"{name}\" not found"),
    }
}

/// What to do with a claim now.
#[derive(Debug, Clone)]
pub enum Plan {
    /// Nothing, until the next event.
    Drop,
    /// Something other than the driver keeps the claim waiting: its class, or a suspected leak.
    Blocked {
        /// The reason, for the user.
        why: String,
        /// Whether external-provisioner counts a failed attempt at each retry.
        is_failure: bool,
    },
    /// Ask the provisioner for this.
    Provision(Box<ProvisionRequest>),
    /// Remove the unusable volume that the last call with this request made.
    Discard(Arc<ProvisionRequest>, Box<UnusableVolume>),
    /// The volume with this handle may be left at the driver, and nobody wants it.
    SuspectedLeak(String),
    /// The process of another node has a call open for the claim.
    Elsewhere(Record),
}

/// What a plan is made of, beside the claim.
pub struct Facts<'a> {
    /// The driver and the node of this process.
    pub identity: &'a ProvisionerIdentity,
    /// The claim's class, if it exists.
    pub class: Option<Arc<StorageClass>>,
    /// Whether a record was made with the class of this request.
    pub fits: &'a dyn Fn(&Record, &ProvisionRequest) -> bool,
}

/// Whether the recorded call of an earlier process is void, as the claim's class is another provisioner's. Such a
/// claim is planned without its record.
pub fn is_record_void(known: &KnownClaim, facts: &Facts<'_>) -> bool {
    let is_foreign = |class: &StorageClass| !facts.identity.is_own_name(&class.provisioner);
    known.recorded().is_some() && facts.class.as_deref().is_some_and(is_foreign)
}

/// Decides what to do with a claim.
pub fn plan(known: &KnownClaim, facts: &Facts<'_>) -> Plan {
    if let (Some(request), Some(unusable)) = (&known.request, known.unusable()) {
        return Plan::Discard(Arc::clone(request), Box::new(unusable.clone()));
    }
    if let (Some(handle), false) = (known.pv_gone(), known.is_wanted()) {
        return Plan::SuspectedLeak(handle.to_owned());
    }
    // Another node's record keeps a deleted claim, whatever is known of its volume.
    if let (true, Some(record)) = (known.claim.is_terminating(), known.elsewhere()) {
        return Plan::Elsewhere(record.clone());
    }
    if known.state == ClaimState::SuspectedLeak && known.is_wanted() {
        return blocked(SUSPECTED_LEAK.to_owned());
    }
    // A claim that waits for the list of PersistentVolumes is queued once that is complete.
    if !known.state.may_call() {
        return Plan::Drop;
    }
    if let Some(request) = &known.request {
        return again(known, request, facts);
    }
    if let Some(record) = known.recorded() {
        return recorded(known, record, facts);
    }
    if let Some(record) = followed_elsewhere(known) {
        return Plan::Elsewhere(record.clone());
    }
    if !known.is_wanted() || !facts.identity.owns_claim(&known.claim) {
        return Plan::Drop;
    }
    new(known, facts)
}

/// Repeats the open call of this process. Only after enough terminal errors it accepts the claim's
/// new node and a changed class (safety rule 3).
fn again(known: &KnownClaim, request: &Arc<ProvisionRequest>, facts: &Facts<'_>) -> Plan {
    let again = || {
        let withdrawn = known.is_gone_or_terminating();
        Plan::Provision(Box::new(ProvisionRequest { withdrawn, ..(**request).clone() }))
    };
    if !known.state.accepts_changes() || !known.is_wanted() {
        return again();
    }
    match new(known, facts) {
        Plan::Provision(new) => {
            let same_node =
                ownership::selected_node(&known.claim) == request.selected_node.as_deref();
            let is_same = same_node && new.class.uid() == request.class.uid();
            if is_same { again() } else { Plan::Provision(new) }
        }
        Plan::Blocked { .. } => again(),
        other => other,
    }
}

/// The claim waits for this reason, and external-provisioner would not count a failed attempt.
fn blocked(why: String) -> Plan {
    Plan::Blocked { why, is_failure: false }
}

/// Repeats a recorded call with the claim and its class as they are now. Of the record only the topology counts,
/// and with node deployment that the call was made for a node.
fn recorded(known: &KnownClaim, record: &Record, facts: &Facts<'_>) -> Plan {
    let restore_class = |what: &str| {
        let named = ownership::class_of_claim(&known.claim);
        blocked(format!(
            "an earlier CreateVolume for this claim may still run, and its storage class {named:?} {what}: restore the class, and the call is followed to its end; or delete the claim, and look for its volume at the driver by hand"
        ))
    };
    let Some(class) = &facts.class else { return restore_class("is gone") };
    let mut request = request(known, class, facts);
    if !(facts.fits)(record, &request) {
        return restore_class("was replaced by another");
    }
    if record.node.is_none() && waits_for_a_node(&known.claim, class) {
        return Plan::Drop;
    }
    request.topology = record.topology.clone().map(|it| Arc::new(Pinned::Recorded(*it)));
    // With node deployment the volume is for the node of this process.
    if let (Some(_), Some(own)) = (&record.node, &facts.identity.node) {
        request.selected_node = Some(own.clone());
    }
    Plan::Provision(Box::new(request))
}

/// The record of a call that the process of another node follows. A record without a node is
/// followed by the process of the selected node.
fn followed_elsewhere(known: &KnownClaim) -> Option<&Record> {
    known.elsewhere().filter(|record| known.is_wanted() && record.node.is_some())
}

/// Plans for a claim without an open call.
fn new(known: &KnownClaim, facts: &Facts<'_>) -> Plan {
    let claim = &known.claim;
    let Some(class) = &facts.class else {
        return Plan::Blocked { why: missing_class(claim), is_failure: true };
    };
    if waits_for_a_node(claim, class) {
        return Plan::Drop;
    }
    if !facts.identity.is_own_name(&class.provisioner) {
        return blocked(format!(
            "storage class {:?} is for the provisioner {:?}, but the claim is annotated for {:?}",
            class.name(),
            class.provisioner,
            facts.identity.driver
        ));
    }
    Plan::Provision(Box::new(request(known, class, facts)))
}

/// The request for the claim as it is, of this class.
fn request(known: &KnownClaim, class: &Arc<StorageClass>, facts: &Facts<'_>) -> ProvisionRequest {
    ProvisionRequest {
        claim: Arc::clone(&known.claim),
        class: Arc::clone(class),
        volume_name: facts.identity.naming.name(known.claim.uid()),
        selected_node: ownership::selected_node(&known.claim).map(str::to_owned),
        withdrawn: known.is_gone_or_terminating(),
        source: None,
        topology: None,
    }
}

/// Whether the class has the binding mode `WaitForFirstConsumer` and the scheduler has not chosen a
/// node.
pub fn waits_for_a_node(claim: &Claim, class: &StorageClass) -> bool {
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    late && claim.annotation(SELECTED_NODE).unwrap_or_default().is_empty()
}

#[cfg(test)]
mod tests;
