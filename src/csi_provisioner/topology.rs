//! Topology: the requirement in a CreateVolume request, and the node affinity of the
//! PersistentVolume.
//!
//! Exists only for drivers with topology (`VOLUME_ACCESSIBILITY_CONSTRAINTS`), with the feature
//! gate on. [`Topology`] decides for a request; its files are `requirement` (the algorithm),
//! `terms`, `spreading` (which topology a StatefulSet's replica prefers), `affinity` (of the
//! PersistentVolume). The requirement is computed for every attempt as long as no call is open. A
//! call that this process has open is repeated unchanged (safety rule 4), a recorded one only with
//! what would be requested now. A claim that waits for a node is retried once the node changes. The
//! state of nodes belongs to `nodes`, giving a node back to the controller.

mod affinity;
mod requirement;
mod spreading;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(super) use self::affinity::affinity;
use self::requirement::{Constraints, Refusal, decide};
use crate::{
    controller::{
        dependencies::Dependency,
        model::topology::{Pinned, Recorded, Requirement, Segments},
        provisioner::{Failure, NotPrepared, ProvisionRequest},
    },
    csi::proto,
    flags,
    kube::{
        ApiError, Client, Name,
        objects::{CsiNode, Node, View as _},
    },
    nodes::Nodes,
};

/// Computes the topology requirement.
#[derive(Clone)]
pub struct Topology {
    nodes: Nodes,
    client: Client,
    /// `--strict-topology`: with a selected node, its topology only.
    strict: bool,
    /// `--immediate-topology`: without a selected node, the topologies of all nodes.
    immediate: bool,
}

/// Why there is no requirement.
struct Undecided {
    refusal: Refusal,
    /// The result of a live read of the selected node.
    node: NodeRead,
}

/// The result of a live read of the selected node.
enum NodeRead {
    /// It agrees with the watches.
    Agrees,
    /// The Node does not exist.
    Gone,
    /// It failed.
    Failed,
}

impl Topology {
    /// Reads `nodes`; a node whose labels seem to be missing is read live through `client`.
    pub fn new(nodes: Nodes, client: Client, flags: &flags::Provisioning) -> Self {
        let (strict, immediate) = (flags.strict_topology, flags.immediate_topology);
        Self { nodes, client, strict, immediate }
    }

    /// Waits until the nodes have been listed once.
    pub async fn listed(&self) {
        self.nodes.listed().await;
    }

    /// The requirement for the request's volume; it is also pinned in the request.
    pub(super) async fn decide(
        &self,
        request: &mut ProvisionRequest,
    ) -> Result<Option<proto::TopologyRequirement>, NotPrepared> {
        let requirement = match request.topology.as_deref() {
            Some(Pinned::Requested(requirement)) => requirement.clone(),
            Some(Pinned::Recorded(recorded)) => self.repeat(request, recorded).await?,
            None => self.decide_now(request).await.map_err(Undecided::into_not_prepared)?,
        };
        let to_proto = requirement.as_ref().map(to_proto);
        request.topology = Some(Arc::new(Pinned::Requested(requirement)));
        Ok(to_proto)
    }

    /// What a recorded call is repeated with, given what would be requested now.
    async fn repeat(
        &self,
        request: &ProvisionRequest,
        recorded: &Recorded,
    ) -> Result<Option<Requirement>, NotPrepared> {
        let now = self.decide_now(request).await.map_err(|undecided| {
            let why =
                format!("where it asked for its volume is not known now: {}", undecided.refusal);
            unrepeatable(&why, dependencies(&undecided.refusal))
        })?;
        recorded.restrict(now.as_ref()).map_err(|gone| {
            let any_node = vec![Dependency::any::<CsiNode>(), Dependency::any::<Node>()];
            unrepeatable(&gone.to_string(), any_node)
        })
    }

    async fn decide_now(
        &self,
        request: &ProvisionRequest,
    ) -> Result<Option<Requirement>, Undecided> {
        let constraints = Constraints {
            claim: request.claim.name(),
            allowed: &request.class.allowed_topologies,
            node: request.selected_node.as_deref().filter(|node| !node.is_empty()),
            live: None,
            strict: self.strict,
            immediate: self.immediate,
        };
        match decide(&constraints, &self.nodes) {
            Err(Refusal::LabelsMissing { node, .. }) => self.decide_live(&constraints, &node).await,
            Ok(requirement) => Ok(requirement),
            Err(refusal) => Err(Undecided { refusal, node: NodeRead::Agrees }),
        }
    }

    /// Decides by all labels that the node has now: the node may be new to the watch, and the error
    /// lists its labels.
    async fn decide_live(
        &self,
        constraints: &Constraints<'_>,
        node: &str,
    ) -> Result<Option<Requirement>, Undecided> {
        let (live, node) = match self.read_labels(node).await {
            Ok(labels) => (Some(labels), NodeRead::Agrees),
            Err(error) if error.is_not_found() => (Some(Segments::new()), NodeRead::Gone),
            Err(error) => {
                tracing::warn!(%error, node, "cannot read the labels of the selected node");
                (None, NodeRead::Failed)
            }
        };
        let constraints = Constraints { live: live.as_ref(), ..*constraints };
        decide(&constraints, &self.nodes).map_err(|refusal| Undecided { refusal, node })
    }

    async fn read_labels(&self, node: &str) -> Result<Segments, ApiError> {
        let node: Node = self.client.get(Name::cluster(node)?).await?;
        let labels = node.metadata.labels.iter();
        Ok(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

/// The recorded call can't be repeated until one of the dependencies changes.
fn unrepeatable(why: &str, dependencies: Vec<Dependency>) -> NotPrepared {
    let why = format!("an earlier CreateVolume for this claim may still run, and {why}");
    NotPrepared::Unrepeatable(Failure::new(why).awaiting(dependencies))
}

fn to_proto(requirement: &Requirement) -> proto::TopologyRequirement {
    let place = |segments: &Segments| proto::Topology { segments: segments.clone() };
    proto::TopologyRequirement {
        requisite: requirement.requisite().map(place).collect(),
        preferred: requirement.preferred().map(place).collect(),
    }
}

impl Undecided {
    /// What follows for the claim: a node without CSINode or Node is gone, so another is needed;
    /// any other failure is retried once nodes change.
    fn into_not_prepared(self) -> NotPrepared {
        let Self { refusal, node } = self;
        let dependencies = dependencies(&refusal);
        if let Refusal::NoCsiNode { .. } = refusal {
            return NotPrepared::Reschedule(Failure::new(refusal).awaiting(dependencies));
        }
        let why = format!("error generating accessibility requirements: {refusal}");
        let failure = Failure::new(why).awaiting(dependencies);
        match node {
            NodeRead::Gone => NotPrepared::Reschedule(failure),
            NodeRead::Failed => NotPrepared::Failed(failure),
            NodeRead::Agrees => NotPrepared::Failed(failure.lasting()),
        }
    }
}

/// What must change for the refusal to be resolved.
fn dependencies(refusal: &Refusal) -> Vec<Dependency> {
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
