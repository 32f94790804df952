//! Where a volume may be: what the driver is told before it makes one, and what the cluster is
//! told of it afterwards.
//!
//! Only there for drivers that know of places (`VOLUME_ACCESSIBILITY_CONSTRAINTS`), with the feature
//! gate on. Owns the decision for an order ([`Topology`]), made of one file a concept: `requirement`
//! (the algorithm), `terms`, `spreading` (which place a StatefulSet's replica prefers), `affinity`
//! (of the PersistentVolume). Promises that it is decided anew for every attempt as long as no call
//! is open, that a call that this process has open is repeated as it was (safety rule 4), a
//! recorded one only with what would be asked for now, and that a claim that waits for a node is
//! tried again once the node changes. Leaves to `nodes` what is known of
//! them, and to the controller giving a node back.

mod affinity;
mod requirement;
mod spreading;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(super) use self::affinity::affinity;
use self::requirement::{Ask, Refusal, decide};
use crate::{
    controller::{
        dependencies::index::Dependency,
        model::topology::{Pinned, Recorded, Requirement, Segments},
        provisioner::{Failure, NotSent, ProvisionRequest},
    },
    csi::proto,
    kube::{
        ApiError, Client, Name,
        objects::{CsiNode, Node, View as _},
    },
    nodes::Nodes,
};

/// What flags say of topology.
#[derive(Debug, Clone, Copy, Default)]
pub struct TopologySettings {
    /// `--strict-topology`: with a selected node, its place only.
    pub strict: bool,
    /// `--immediate-topology`: without a selected node, the places of all nodes.
    pub immediate: bool,
}

/// Decides where volumes are asked to be.
#[derive(Clone)]
pub struct Topology {
    nodes: Nodes,
    client: Client,
    settings: TopologySettings,
}

/// Why it is not decided.
struct Undecided {
    refusal: Refusal,
    /// What a live read of the selected node said of it.
    node: NodeRead,
}

/// What a live read of the selected node said.
enum NodeRead {
    /// Nothing beyond what the watches show.
    Agrees,
    /// It has no Node object any more.
    Gone,
    /// It failed.
    Failed,
}

impl Topology {
    /// Decides by `nodes`; a node whose labels seem to be missing is read live by `client`.
    pub fn new(nodes: Nodes, client: Client, settings: TopologySettings) -> Self {
        Self { nodes, client, settings }
    }

    /// DependencyIndex until the nodes have been listed once.
    pub(super) async fn listed(&self) {
        self.nodes.listed().await;
    }

    /// Where the order's volume is asked to be, as the driver is told; that is pinned in the order.
    pub(super) async fn decide(
        &self,
        order: &mut ProvisionRequest,
    ) -> Result<Option<proto::TopologyRequirement>, NotSent> {
        let asked = match order.topology.as_deref() {
            Some(Pinned::Asked(asked)) => asked.clone(),
            Some(Pinned::Recorded(recorded)) => self.repeat(order, recorded).await?,
            None => self.ask(order).await.map_err(Undecided::not_asked)?,
        };
        let told = asked.as_ref().map(told);
        order.topology = Some(Arc::new(Pinned::Asked(asked)));
        Ok(told)
    }

    /// What a recorded call may be repeated with, by what would be asked for now.
    async fn repeat(
        &self,
        order: &ProvisionRequest,
        recorded: &Recorded,
    ) -> Result<Option<Requirement>, NotSent> {
        let now = self.ask(order).await.map_err(|undecided| {
            let why =
                format!("where it asked for its volume is not known now: {}", undecided.refusal);
            unrepeatable(&why, awaited(&undecided.refusal))
        })?;
        recorded.restrict(now.as_ref()).map_err(|gone| {
            let any_node = vec![Dependency::any::<CsiNode>(), Dependency::any::<Node>()];
            unrepeatable(&gone.to_string(), any_node)
        })
    }

    async fn ask(&self, order: &ProvisionRequest) -> Result<Option<Requirement>, Undecided> {
        let TopologySettings { strict, immediate } = self.settings;
        let ask = Ask {
            claim: order.claim.name(),
            allowed: &order.class.allowed_topologies,
            node: order.selected_node.as_deref().filter(|node| !node.is_empty()),
            live: None,
            strict,
            immediate,
        };
        match decide(&ask, &self.nodes) {
            Err(Refusal::LabelsMissing { node, .. }) => self.ask_live(&ask, &node).await,
            Ok(requirement) => Ok(requirement),
            Err(refusal) => Err(Undecided { refusal, node: NodeRead::Agrees }),
        }
    }

    /// Decides by all labels that the node has now: it may be new to us, and its user is told them.
    async fn ask_live(&self, ask: &Ask<'_>, node: &str) -> Result<Option<Requirement>, Undecided> {
        let (live, node) = match self.read_labels(node).await {
            Ok(labels) => (Some(labels), NodeRead::Agrees),
            Err(error) if error.is_not_found() => (Some(Segments::new()), NodeRead::Gone),
            Err(error) => {
                tracing::warn!(%error, node, "cannot read the labels of the selected node");
                (None, NodeRead::Failed)
            }
        };
        let ask = Ask { live: live.as_ref(), ..*ask };
        decide(&ask, &self.nodes).map_err(|refusal| Undecided { refusal, node })
    }

    async fn read_labels(&self, node: &str) -> Result<Segments, ApiError> {
        let node: Node = self.client.get(Name::cluster(node)?).await?;
        Ok(node.metadata.labels.unwrap_or_default())
    }
}

/// The recorded call can't be repeated until one of `awaited` changes.
fn unrepeatable(why: &str, awaited: Vec<Dependency>) -> NotSent {
    let why = format!("an earlier CreateVolume for this claim may still run, and {why}");
    NotSent::Unrepeatable(Failure::new(why).awaiting(awaited))
}

fn told(requirement: &Requirement) -> proto::TopologyRequirement {
    let place = |segments: &Segments| proto::Topology { segments: segments.clone() };
    proto::TopologyRequirement {
        requisite: requirement.requisite().map(place).collect(),
        preferred: requirement.preferred().map(place).collect(),
    }
}

impl Undecided {
    /// What follows for the claim: a node without CSINode or Node is gone for good, so another is
    /// needed; everything else passes once nodes change.
    fn not_asked(self) -> NotSent {
        let Self { refusal, node } = self;
        let awaited = awaited(&refusal);
        if let Refusal::NoCsiNode { .. } = refusal {
            return NotSent::Reschedule(Failure::new(refusal).awaiting(awaited));
        }
        let why = format!("error generating accessibility requirements: {refusal}");
        let failure = Failure::new(why).awaiting(awaited);
        match node {
            NodeRead::Gone => NotSent::Reschedule(failure),
            NodeRead::Failed => NotSent::Failed(failure),
            NodeRead::Agrees => NotSent::Failed(failure.lasting()),
        }
    }
}

/// What must change for the refusal to pass.
fn awaited(refusal: &Refusal) -> Vec<Dependency> {
    match refusal {
        Refusal::NoCsiNode { node } | Refusal::NoKeys { node } => {
            vec![Dependency::object::<CsiNode>(None, node)]
        }
        Refusal::LabelsMissing { node, .. }
        | Refusal::NotAllowed { node, .. }
        | Refusal::NotRequisite { node, .. } => {
            vec![Dependency::object::<CsiNode>(None, node), Dependency::object::<Node>(None, node)]
        }
        Refusal::NoKeysAnywhere => vec![Dependency::any::<CsiNode>()],
        Refusal::NoLabelsAnywhere { .. } => {
            vec![Dependency::any::<CsiNode>(), Dependency::any::<Node>()]
        }
    }
}
