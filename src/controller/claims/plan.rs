//! What to do about a claim now.
//!
//! Owns that decision, by what is known of the claim and its class. Promises that a call which this
//! process has open is followed to its end, whatever has become of claim and class, and that a record
//! of an earlier process's call is followed only with a class that is ours and the one that it was
//! made with.

use std::sync::Arc;

use super::{
    super::{
        ownership::{ProvisionerIdentity, SELECTED_NODE},
        provisioner::{Failure, ProvisionRequest},
    },
    call_record::Record,
    index::{ClaimSnapshot, Verification},
    state::Demand,
    sync::seeded,
};
use crate::{
    controller::{
        model::{topology::Pinned, unusable_volume::UnusableVolume},
        ownership,
    },
    kube::objects::{Claim, StorageClass, View as _},
    mutations,
    mutations::Mutation,
};

/// What to do about a claim now.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    /// Nothing, until an event comes.
    Drop,
    /// Its class keeps it waiting, for this reason.
    Blocked {
        /// For what, in its user's words.
        why: String,
        /// Whether the original counts a failed attempt at each back-off (reference 3.12).
        is_failure: bool,
    },
    /// Ask the provisioner.
    Provision(Ask),
    /// Remove what the last call for this order left.
    Discard(Box<ProvisionRequest>, Box<UnusableVolume>),
    /// The volume with this handle may be left, and nobody wants it.
    Suspect(String),
    /// Its record is of a class that another provisioner serves: it does not count.
    Void,
    /// The process of another node has a call open for it.
    Elsewhere(Record),
}

/// For what the provisioner is asked.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    /// For the claim as it is, with this class.
    New(Arc<StorageClass>),
    /// For what this process has asked for before, and whose end is not known.
    Again(Box<ProvisionRequest>),
    /// For what an earlier process has recorded, with this class.
    Recorded(Arc<StorageClass>, Box<Record>),
}

impl Ask {
    /// The order to ask for. Of a record only the place counts, and with node deployment that the call
    /// was made on a node.
    pub(super) fn order(
        self,
        identity: &ProvisionerIdentity,
        claim: &Arc<Claim>,
        withdrawn: bool,
        volume_name: impl FnOnce() -> Result<String, Failure>,
    ) -> ProvisionRequest {
        let (class, record) = match self {
            Self::Again(order) => return ProvisionRequest { withdrawn, ..*order },
            Self::New(class) => (class, Record::default()),
            Self::Recorded(class, record) => (class, *record),
        };
        let mut order = ProvisionRequest {
            claim: Arc::clone(claim),
            class,
            volume_name: volume_name(),
            selected_node: ownership::selected_node(claim).map(str::to_owned),
            withdrawn,
            source: None,
            topology: record.topology.clone().map(|it| Arc::new(Pinned::Recorded(*it))),
        };
        // With node deployment the request is for the node of this process.
        if let (Some(_), Some(own)) = (&record.node, &identity.node) {
            order.selected_node = Some(own.clone());
        }
        seeded::believe(&mut order, &record);
        order
    }
}

/// Decides what to do about a claim, whose class is `class` where that exists. `fits`: whether that is
/// the class that the record was made with.
pub(crate) fn plan(
    identity: &ProvisionerIdentity,
    snapshot: &ClaimSnapshot,
    class: Option<Arc<StorageClass>>,
    fits: impl FnOnce(&Record, &Arc<StorageClass>) -> bool,
) -> Plan {
    if let (Some(order), Some(leftover)) = (&snapshot.order, &snapshot.leftover) {
        return Plan::Discard(Box::new(order.clone()), leftover.clone());
    }
    if let (Some(handle), Demand::Withdrawn) = (&snapshot.bared, snapshot.demand) {
        return Plan::Suspect(handle.clone());
    }
    // Whatever is known of its volume, what keeps a deleted claim is looked at.
    if let (true, Some(record)) = (snapshot.claim.is_terminating(), &snapshot.elsewhere) {
        return Plan::Elsewhere(record.clone());
    }
    // Once all PersistentVolumes are listed it comes back.
    if !snapshot.may_call || snapshot.verification == Verification::Unlisted {
        return Plan::Drop;
    }
    if let Some(order) = &snapshot.order {
        return again(identity, snapshot, order, class);
    }
    if let Some(record) = &snapshot.recorded {
        return recorded(identity, &snapshot.claim, record, class, fits);
    }
    if let Some(record) = followed_elsewhere(snapshot) {
        return Plan::Elsewhere(record.clone());
    }
    if snapshot.demand == Demand::Withdrawn || !identity.owns_claim(&snapshot.claim) {
        return Plan::Drop;
    }
    new(identity, &snapshot.claim, class)
}

/// What this process has open is asked for again, whatever has become of claim and class; only after
/// enough refusals the claim's new node and a changed class count (safety rule 3).
fn again(
    identity: &ProvisionerIdentity,
    snapshot: &ClaimSnapshot,
    order: &ProvisionRequest,
    class: Option<Arc<StorageClass>>,
) -> Plan {
    let again = || Plan::Provision(Ask::Again(Box::new(order.clone())));
    if !snapshot.loosened || snapshot.demand == Demand::Withdrawn {
        return again();
    }
    match new(identity, &snapshot.claim, class) {
        Plan::Provision(Ask::New(class)) => {
            let same_node =
                ownership::selected_node(&snapshot.claim) == order.selected_node.as_deref();
            let same = same_node && class.uid() == order.class.uid();
            if same { again() } else { Plan::Provision(Ask::New(class)) }
        }
        Plan::Blocked { .. } => again(),
        other => other,
    }
}

/// The claim waits, for these reasons, and the original would not count that.
fn blocked(why: String) -> Plan {
    Plan::Blocked { why, is_failure: false }
}

/// What an earlier process has recorded is asked for as the claim and its class are now.
fn recorded(
    identity: &ProvisionerIdentity,
    claim: &Claim,
    record: &Record,
    class: Option<Arc<StorageClass>>,
    fits: impl FnOnce(&Record, &Arc<StorageClass>) -> bool,
) -> Plan {
    let gone = |what: &str| {
        let named = ownership::class_of_claim(claim);
        blocked(format!(
            "an earlier CreateVolume for this claim may still run, and its storage class {named:?} {what}: restore the class, and the call is followed to its end; or delete the claim, and look for its volume at the driver by hand"
        ))
    };
    let Some(class) = class else { return gone("is gone") };
    if !identity.is_own_name(&class.provisioner)
        && !mutations::is_on(Mutation::ForeignClassAccepted)
    {
        return Plan::Void;
    }
    if !fits(record, &class) {
        return gone("was replaced by another");
    }
    if record.node.is_none() && waits_for_a_node(claim, &class) {
        return Plan::Drop;
    }
    Plan::Provision(Ask::Recorded(class, Box::new(record.clone())))
}

/// The record that the process of another node follows. One that names no node is followed by
/// whichever is selected.
fn followed_elsewhere(snapshot: &ClaimSnapshot) -> Option<&Record> {
    let record = snapshot.elsewhere.as_ref()?;
    (snapshot.demand == Demand::Wanted && record.node.is_some()).then_some(record)
}

/// A claim for which nothing is open.
fn new(identity: &ProvisionerIdentity, claim: &Claim, class: Option<Arc<StorageClass>>) -> Plan {
    let Some(class) = class else {
        let why = match ownership::class_of_claim(claim) {
            "" => "the claim names no storage class".to_owned(),
            name => format!("storageclass.storage.k8s.io \"{name}\" not found"),
        };
        return Plan::Blocked { why, is_failure: true };
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

/// Whether the class binds late and the scheduler has not chosen a node yet.
fn waits_for_a_node(claim: &Claim, class: &StorageClass) -> bool {
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    late && claim.annotation(SELECTED_NODE).unwrap_or_default().is_empty()
}
