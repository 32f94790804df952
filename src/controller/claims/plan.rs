//! Decides what to do with a claim now.
//!
//! `plan` is a pure function of the claim's snapshot and its class. A call that this process has
//! open is repeated until its outcome is known, whatever becomes of claim and class. A recorded
//! call of an earlier process is repeated only with a class of our driver that is the recorded one.

#[cfg(feature = "mutations")]
mod seeded;

use std::sync::Arc;

use super::{
    super::{
        ownership::{ProvisionerIdentity, SELECTED_NODE},
        provisioner::{Failure, ProvisionRequest},
    },
    index::ClaimSnapshot,
    state::ClaimState,
};
use crate::{
    controller::{
        model::{record::Record, topology::Pinned, unusable_volume::UnusableVolume},
        ownership,
    },
    kube::objects::{Claim, StorageClass, View as _},
    mutations,
    mutations::Mutation,
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
    /// The claim's class keeps it waiting.
    Blocked {
        /// The reason, for the user.
        why: String,
        /// Whether external-provisioner counts a failed attempt at each retry.
        is_failure: bool,
    },
    /// Call the provisioner.
    Provision(Ask),
    /// Remove the unusable volume that the last call with this request made.
    Discard(Arc<ProvisionRequest>, Box<UnusableVolume>),
    /// The volume with this handle may be left at the driver, and nobody wants it.
    SuspectedLeak(String),
    /// The class of the recorded call is another provisioner's: the record is void.
    Void,
    /// The process of another node has a call open for the claim.
    Elsewhere(Record),
}

/// What to request from the provisioner.
#[derive(Debug, Clone)]
pub enum Ask {
    /// A volume for the claim as it is, of this class.
    New(Arc<StorageClass>),
    /// What this process has requested before, as the outcome is unknown.
    Again(Arc<ProvisionRequest>),
    /// What an earlier process has recorded, with this class.
    Recorded(Arc<StorageClass>, Box<Record>),
}

impl Ask {
    /// Makes the request. Of a record only the topology counts, and with node deployment that the
    /// call was made for a node.
    pub(super) fn request(
        self,
        identity: &ProvisionerIdentity,
        claim: &Arc<Claim>,
        withdrawn: bool,
        volume_name: impl FnOnce() -> Result<String, Failure>,
    ) -> ProvisionRequest {
        let (class, record) = match self {
            Self::Again(request) => return ProvisionRequest { withdrawn, ..(*request).clone() },
            Self::New(class) => (class, Record::default()),
            Self::Recorded(class, record) => (class, *record),
        };
        let mut request = ProvisionRequest {
            claim: Arc::clone(claim),
            class,
            volume_name: volume_name(),
            selected_node: ownership::selected_node(claim).map(str::to_owned),
            withdrawn,
            source: None,
            topology: record.topology.clone().map(|it| Arc::new(Pinned::Recorded(*it))),
        };
        // With node deployment the volume is for the node of this process.
        if let (Some(_), Some(own)) = (&record.node, &identity.node) {
            request.selected_node = Some(own.clone());
        }
        seeded::believe(&mut request, &record);
        request
    }
}

/// Decides what to do with a claim of this class, if the class exists. `fits` returns whether the
/// class is the one that the record was made with.
pub(crate) fn plan(
    identity: &ProvisionerIdentity,
    snapshot: &ClaimSnapshot,
    class: Option<Arc<StorageClass>>,
    fits: impl FnOnce(&Record, &Arc<StorageClass>) -> bool,
) -> Plan {
    if let (Some(request), Some(unusable)) = (&snapshot.request, snapshot.unusable()) {
        return Plan::Discard(Arc::clone(request), Box::new(unusable.clone()));
    }
    if let (Some(handle), false) = (snapshot.pv_gone(), snapshot.is_wanted()) {
        return Plan::SuspectedLeak(handle.to_owned());
    }
    // Another node's record keeps a deleted claim, whatever is known of its volume.
    if let (true, Some(record)) = (snapshot.claim.is_terminating(), snapshot.elsewhere()) {
        return Plan::Elsewhere(record.clone());
    }
    if snapshot.state == ClaimState::SuspectedLeak && snapshot.is_wanted() {
        return Plan::Blocked { why: SUSPECTED_LEAK.to_owned(), is_failure: false };
    }
    // A claim that waits for the list of PersistentVolumes is queued once that is complete.
    if !snapshot.state.may_call() {
        return Plan::Drop;
    }
    if let Some(request) = &snapshot.request {
        return again(identity, snapshot, request, class);
    }
    if let Some(record) = snapshot.recorded() {
        return recorded(identity, &snapshot.claim, record, class, fits);
    }
    if let Some(record) = followed_elsewhere(snapshot) {
        return Plan::Elsewhere(record.clone());
    }
    if !snapshot.is_wanted() || !identity.owns_claim(&snapshot.claim) {
        return Plan::Drop;
    }
    new(identity, &snapshot.claim, class)
}

/// Repeats the open call of this process. Only after enough terminal errors it accepts the claim's
/// new node and a changed class (safety rule 3).
fn again(
    identity: &ProvisionerIdentity,
    snapshot: &ClaimSnapshot,
    request: &Arc<ProvisionRequest>,
    class: Option<Arc<StorageClass>>,
) -> Plan {
    let again = || Plan::Provision(Ask::Again(Arc::clone(request)));
    if !snapshot.state.accepts_changes() || !snapshot.is_wanted() {
        return again();
    }
    match new(identity, &snapshot.claim, class) {
        Plan::Provision(Ask::New(class)) => {
            let same_node =
                ownership::selected_node(&snapshot.claim) == request.selected_node.as_deref();
            let same = same_node && class.uid() == request.class.uid();
            if same { again() } else { Plan::Provision(Ask::New(class)) }
        }
        Plan::Blocked { .. } => again(),
        other => other,
    }
}

/// The claim waits for this reason, and external-provisioner would not count a failed attempt.
fn blocked(why: String) -> Plan {
    Plan::Blocked { why, is_failure: false }
}

/// Repeats a recorded call with the claim and its class as they are now.
fn recorded(
    identity: &ProvisionerIdentity,
    claim: &Claim,
    record: &Record,
    class: Option<Arc<StorageClass>>,
    fits: impl FnOnce(&Record, &Arc<StorageClass>) -> bool,
) -> Plan {
    let restore_class = |what: &str| {
        let named = ownership::class_of_claim(claim);
        blocked(format!(
            "an earlier CreateVolume for this claim may still run, and its storage class {named:?} {what}: restore the class, and the call is followed to its end; or delete the claim, and look for its volume at the driver by hand"
        ))
    };
    let Some(class) = class else { return restore_class("is gone") };
    if !identity.is_own_name(&class.provisioner)
        && !mutations::is_on(Mutation::ForeignClassAccepted)
    {
        return Plan::Void;
    }
    if !fits(record, &class) {
        return restore_class("was replaced by another");
    }
    if record.node.is_none() && waits_for_a_node(claim, &class) {
        return Plan::Drop;
    }
    Plan::Provision(Ask::Recorded(class, Box::new(record.clone())))
}

/// The record of a call that the process of another node follows. A record without a node is
/// followed by the process of the selected node.
fn followed_elsewhere(snapshot: &ClaimSnapshot) -> Option<&Record> {
    snapshot.elsewhere().filter(|record| snapshot.is_wanted() && record.node.is_some())
}

/// Plans for a claim without an open call.
fn new(identity: &ProvisionerIdentity, claim: &Claim, class: Option<Arc<StorageClass>>) -> Plan {
    let Some(class) = class else {
        return Plan::Blocked { why: missing_class(claim), is_failure: true };
    };
    if waits_for_a_node(claim, &class) {
        return Plan::Drop;
    }
    if !identity.is_own_name(&class.provisioner) {
        return blocked(format!(
            "storage class {:?} is for the provisioner {:?}, but the claim is annotated for {:?}",
            class.name(),
            class.provisioner,
            identity.driver
        ));
    }
    Plan::Provision(Ask::New(class))
}

/// Whether the class has the binding mode `WaitForFirstConsumer` and the scheduler has not chosen a
/// node.
pub fn waits_for_a_node(claim: &Claim, class: &StorageClass) -> bool {
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    late && claim.annotation(SELECTED_NODE).unwrap_or_default().is_empty()
}

/// Without the feature `mutations`, which no shipped build has, there are no deliberate defects.
#[cfg(not(feature = "mutations"))]
mod seeded {
    use super::{ProvisionRequest, Record};

    pub(super) const fn believe(_: &mut ProvisionRequest, _: &Record) {}
}

#[cfg(test)]
mod tests;
