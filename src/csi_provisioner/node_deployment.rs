//! Provisioning on each node for that node (`--node-deployment`): one process a node, all sharing
//! the claims of one driver.
//!
//! Decides which claims belong to this node, becomes the owner of claims without a selected node (a
//! delay, a check for free space, then the annotation with the selected node), and decides which
//! volumes this node's driver can reach. A claim is written only in the version that was judged; an
//! owned claim is provisioned only once the watch delivers the annotation; nobody blocks a worker
//! while waiting.
//!
//! `ownership` decides about claims, `reach` about volumes, [`Peers`] about delays.

mod ownership;
mod reach;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::VolumeNodeAffinity;
use serde_json::Value;

use self::{
    ownership::{Choice, Ownership},
    reach::NodePlace,
};
use super::{CsiProvisioner, PreparedCreate};
use crate::{
    controller::{
        peers::Peers,
        provisioner::{Failure, ProvisionRequest, ShouldProvision},
    },
    csi::{
        CallError,
        proto::{GetCapacityRequest, Topology, controller_service_capability::rpc::Type as Rpc},
    },
    flags,
    kube::{
        ApiError, Edited, Name,
        objects::{Claim, View as _},
    },
    metrics::ControllerMetrics,
};

/// The minimum time to wait for the watch to deliver a changed claim.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// This node's part in node deployment.
pub struct NodeDeployment {
    flags: flags::NodeDeployment,
    /// The node's topology segment, from its driver; `None` if the driver returns none.
    topology: Option<BTreeMap<String, String>>,
    peers: Peers,
    metrics: ControllerMetrics,
}

impl NodeDeployment {
    /// Creates it.
    pub fn new(
        flags: flags::NodeDeployment,
        topology: Option<BTreeMap<String, String>>,
        peers: Peers,
        metrics: ControllerMetrics,
    ) -> Self {
        Self { flags, topology, peers, metrics }
    }

    /// The node's name.
    fn node(&self) -> &str {
        &self.flags.node_name
    }

    /// Whether this node must delete a volume of this affinity, in the driver's keys.
    ///
    /// # Errors
    /// The affinity can't be evaluated; in external-provisioner's words.
    pub(super) fn reaches(&self, affinity: Option<&VolumeNodeAffinity>) -> Result<bool, Failure> {
        let node_place = NodePlace { node: self.node(), topology: self.topology.as_ref() };
        node_place
            .meets(affinity)
            .map_err(|why| Failure::new(format!("checking volume affinity failed: {why}")))
    }

    /// Whether and when this node provisions for the request's claim. `provisioner` is used to ask
    /// the driver and to write.
    pub(super) async fn should_provision(
        &self,
        provisioner: &CsiProvisioner,
        request: &ProvisionRequest,
    ) -> ShouldProvision {
        let immediate = self.flags.immediate_binding;
        let uid = request.claim.uid();
        let decided =
            match ownership::ownership(self.node(), immediate, &request.claim, &request.class) {
                Ownership::Ours => ShouldProvision::Yes,
                Ownership::Others => ShouldProvision::No,
                Ownership::Free => self.bid(provisioner, request).await,
            };
        if matches!(decided, ShouldProvision::Yes | ShouldProvision::No) {
            self.peers.forget(uid);
        }
        decided
    }

    /// Waits for the claim's delay, and then tries to become its owner.
    async fn bid(
        &self,
        provisioner: &CsiProvisioner,
        request: &ProvisionRequest,
    ) -> ShouldProvision {
        let uid = request.claim.uid();
        if !self.is_allowed(provisioner, request).await {
            return ShouldProvision::No;
        }
        let wait = self.peers.wait(uid);
        if !wait.is_zero() {
            tracing::trace!(?wait, "will try to become the claim's owner");
            return ShouldProvision::Later(wait);
        }
        if !self.has_space(provisioner, request).await {
            self.metrics.ownership_tried("full");
            self.peers.tried(uid);
            return ShouldProvision::Unable;
        }
        match self.take_ownership(provisioner, request).await {
            Ok(choice) => self.after_bid(uid, &choice),
            Err(error) => {
                self.metrics.ownership_tried("failed");
                self.peers.tried(uid);
                ShouldProvision::Failed(self.selection_failed(&request.claim, &error))
            }
        }
    }

    /// What follows from the result of a try.
    fn after_bid(&self, uid: &str, choice: &Choice) -> ShouldProvision {
        tracing::debug!(?choice, "tried to become the claim's owner");
        self.metrics.ownership_tried(match choice {
            Choice::Own => "own",
            Choice::Another(_) => "another",
            Choice::Gone => "gone",
            Choice::Changed => "changed",
        });
        if *choice != Choice::Changed {
            return ShouldProvision::No;
        }
        self.peers.tried(uid);
        ShouldProvision::Later(self.peers.wait(uid).max(MIN_WAIT))
    }

    /// The error for the event, in external-provisioner's words.
    fn selection_failed(&self, claim: &Claim, error: &ApiError) -> Failure {
        Failure::new(format!(
            "node check failed: PVC {}/{}: selecting node {:?} for PVC failed: {error}",
            claim.namespace(),
            claim.name(),
            self.node()
        ))
    }

    /// Selects this node for the claim, if the claim is unchanged since it was judged (safety rule
    /// 11).
    async fn take_ownership(
        &self,
        provisioner: &CsiProvisioner,
        request: &ProvisionRequest,
    ) -> Result<Choice, ApiError> {
        let claim = &request.claim;
        let judged = claim.metadata.resource_version.as_deref().unwrap_or_default();
        let mut choice = Choice::Gone;
        let edit = |object: &mut Value| {
            let (chosen, edit) = ownership::select_node(object, self.node(), judged);
            choice = chosen;
            edit
        };
        let name = Name::namespaced(claim.namespace(), claim.name())?;
        let edited = provisioner.0.client.edit::<Claim>(name, claim.uid(), edit).await?;
        Ok(if matches!(edited, Edited::Gone) { Choice::Gone } else { choice })
    }

    /// Whether the class allows volumes on this node.
    async fn is_allowed(&self, provisioner: &CsiProvisioner, request: &ProvisionRequest) -> bool {
        match &provisioner.0.topology {
            Some(topology) if !request.class.allowed_topologies.is_empty() => {
                match provisioner.0.settings.request_for_driver(&self.with_this_node(request)) {
                    Ok((mut request, _)) => topology.decide(&mut request).await.is_ok(),
                    // The owner reports the error.
                    Err(_) => true,
                }
            }
            _ => true,
        }
    }

    /// The request as it will be once this node is selected.
    fn with_this_node(&self, request: &ProvisionRequest) -> ProvisionRequest {
        ProvisionRequest { selected_node: Some(self.flags.node_name.clone()), ..request.clone() }
    }

    /// Whether this node has space for the claim's volume. If that can't be determined, returns
    /// true: this node then becomes the owner, so that one process reports the error.
    async fn has_space(&self, provisioner: &CsiProvisioner, request: &ProvisionRequest) -> bool {
        if !provisioner.0.settings.driver.capabilities.has(Rpc::GetCapacity) {
            return true;
        }
        let create = match provisioner.check(&mut self.with_this_node(request)).await {
            Ok(create) => create,
            Err(why) => {
                tracing::debug!(?why, "becoming owner without a check of capacity");
                return true;
            }
        };
        has_capacity(provisioner, &create).await.unwrap_or_else(|error| {
            tracing::info!(%error, "becoming owner although the capacity check failed");
            true
        })
    }
}

/// Whether the driver has capacity for the request in one of its topologies. The parameters are
/// CreateVolume's, without its secrets.
async fn has_capacity(
    provisioner: &CsiProvisioner,
    create: &PreparedCreate,
) -> Result<bool, CallError> {
    let request = &create.prepared.request;
    let size = request.capacity_range.unwrap_or_default().required_bytes;
    if size == 0 {
        return Ok(true);
    }
    for topology in topologies(create) {
        let answer = provisioner.0.driver.get_capacity(GetCapacityRequest {
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters.clone(),
            accessible_topology: topology,
        });
        if size <= answer.await?.available_capacity {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The topologies to ask for; one `None` for a driver without topology.
fn topologies(create: &PreparedCreate) -> Vec<Option<Topology>> {
    let requirements = create.prepared.request.accessibility_requirements.as_ref();
    let requisite = requirements.map(|it| it.requisite.as_slice()).unwrap_or_default();
    if requisite.is_empty() { vec![None] } else { requisite.iter().cloned().map(Some).collect() }
}
