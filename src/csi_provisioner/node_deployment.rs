//! Provisioning on each node for that node (`--node-deployment`, reference 7): many processes, one
//! a node, share the claims of one driver.
//!
//! Owns which claims are this node's, becoming the owner of claims that nobody chose a node for
//! (a wait, a question for free space, and the annotation with the selected node), and which
//! volumes this node's driver can reach. Promises that a claim is written only as it was judged,
//! that a claim which became ours is provisioned for only once the watch shows it so, and that
//! nobody holds a worker while it waits for its turn. Leaves the request to `request`, and what
//! becomes of a claim to the controller.
//!
//! `ownership` decides about claims, `reach` about volumes, `bids` how long to wait.

mod bids;
mod ownership;
mod reach;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::VolumeNodeAffinity;
use serde_json::Value;

use self::{
    bids::{Bids, Delays},
    ownership::{Choice, Standing},
    reach::Place,
};
use super::{CsiProvisioner, Request};
use crate::{
    controller::provisioner::{Failure, ProvisionRequest, Turn},
    csi::{
        CallError,
        proto::{GetCapacityRequest, Topology, controller_service_capability::rpc::Type as Rpc},
    },
    kube::{
        ApiError, Edited, Name,
        objects::{Claim, View as _},
    },
    metrics::NodeMetrics,
    runtime::Random,
};

/// How long the watch has at least to show what a claim has changed into.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// How this node takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// The node's segment as its driver tells it; none where it tells nothing.
    pub topology: Option<BTreeMap<String, String>>,
    /// `--node-deployment-immediate-binding`.
    pub immediate_binding: bool,
    /// `--node-deployment-base-delay`.
    pub base_delay: Duration,
    /// `--node-deployment-max-delay`.
    pub max_delay: Duration,
}

/// This node among the others.
pub struct NodeDeployment {
    settings: Settings,
    bids: Bids,
    random: Arc<dyn Random>,
    metrics: NodeMetrics,
}

impl NodeDeployment {
    /// Takes part as `settings` say.
    pub fn new(settings: Settings, random: Arc<dyn Random>, metrics: NodeMetrics) -> Self {
        let delays = Delays { base: settings.base_delay, max: settings.max_delay };
        Self { settings, bids: Bids::new(delays), random, metrics }
    }

    /// The node's name.
    pub(super) fn node(&self) -> &str {
        &self.settings.node
    }

    /// How long to wait before this node does for a claim what any node may do.
    pub(super) fn wait_among_peers(&self, claim_uid: &str) -> Duration {
        self.bids.wait(claim_uid, self.random.unit())
    }

    /// The claim needs no owner any more.
    pub(super) fn forget(&self, claim_uid: &str) {
        self.bids.forget(claim_uid);
    }

    /// Whether a volume of this affinity, in the driver's keys, is for this node to delete.
    ///
    /// # Errors
    /// The volume's affinity can't be judged; in the original's words.
    pub(super) fn reaches(&self, affinity: Option<&VolumeNodeAffinity>) -> Result<bool, Failure> {
        let Settings { node, topology, .. } = &self.settings;
        let place = Place { node, topology: topology.as_ref() };
        place
            .meets(affinity)
            .map_err(|why| Failure::new(format!("checking volume affinity failed: {why}")))
    }

    /// Whether and when this node provisions for the order's claim. `provisioner` asks and writes.
    pub(super) async fn turn(
        &self,
        provisioner: &CsiProvisioner,
        order: &ProvisionRequest,
    ) -> Turn {
        let Settings { node, immediate_binding, .. } = &self.settings;
        let uid = order.claim.uid();
        let turn = match ownership::standing(node, *immediate_binding, &order.claim, &order.class) {
            Standing::Ours => Turn::Ours,
            Standing::Others => Turn::Others,
            Standing::Free => self.bid(provisioner, order).await,
        };
        if matches!(turn, Turn::Ours | Turn::Others) {
            self.bids.forget(uid);
        }
        turn
    }

    /// DependencyIndex for the claim's time, and then tries to become its owner.
    async fn bid(&self, provisioner: &CsiProvisioner, order: &ProvisionRequest) -> Turn {
        let uid = order.claim.uid();
        if !self.is_allowed(provisioner, order).await {
            return Turn::Others;
        }
        let wait = self.bids.wait(uid, self.random.unit());
        if !wait.is_zero() {
            tracing::trace!(?wait, "will try to become the claim's owner");
            return Turn::Later(wait);
        }
        if !self.fits(provisioner, order).await {
            self.metrics.tried("full");
            self.bids.tried(uid);
            return Turn::Unable;
        }
        match self.own(provisioner, order).await {
            Ok(choice) => self.chosen(uid, &choice),
            Err(error) => {
                self.metrics.tried("failed");
                self.bids.tried(uid);
                Turn::Failed(self.not_chosen(&order.claim, &error))
            }
        }
    }

    /// What follows from a try.
    fn chosen(&self, uid: &str, choice: &Choice) -> Turn {
        tracing::debug!(?choice, "tried to become the claim's owner");
        self.metrics.tried(match choice {
            Choice::Own => "own",
            Choice::Another(_) => "another",
            Choice::Gone => "gone",
            Choice::Changed => "changed",
        });
        if *choice != Choice::Changed {
            return Turn::Others;
        }
        self.bids.tried(uid);
        Turn::Later(self.bids.wait(uid, self.random.unit()).max(LEAST_WAIT))
    }

    /// In the words of the original, which an event tells.
    fn not_chosen(&self, claim: &Claim, error: &ApiError) -> Failure {
        Failure::new(format!(
            "node check failed: PVC {}/{}: selecting node {:?} for PVC failed: {error}",
            claim.namespace(),
            claim.name(),
            self.settings.node
        ))
    }

    /// Chooses this node for the claim, if it still is as it was judged (safety rule 11).
    async fn own(
        &self,
        provisioner: &CsiProvisioner,
        order: &ProvisionRequest,
    ) -> Result<Choice, ApiError> {
        let claim = &order.claim;
        let judged = claim.metadata.resource_version.as_deref().unwrap_or_default();
        let mut choice = Choice::Gone;
        let choose = |object: &mut Value| {
            let (chosen, edit) = ownership::choose(object, &self.settings.node, judged);
            choice = chosen;
            edit
        };
        let name = Name::namespaced(claim.namespace(), claim.name())?;
        let edited = provisioner.0.client.edit::<Claim>(name, claim.uid(), choose).await?;
        Ok(if matches!(edited, Edited::Gone) { Choice::Gone } else { choice })
    }

    /// Whether the class lets this node's driver make its volumes.
    async fn is_allowed(&self, provisioner: &CsiProvisioner, order: &ProvisionRequest) -> bool {
        match &provisioner.0.topology {
            Some(topology) if !order.class.allowed_topologies.is_empty() => {
                match provisioner.0.settings.order_for_driver(&self.here(order)) {
                    Ok((mut order, _)) => topology.decide(&mut order).await.is_ok(),
                    // Its owner tells.
                    Err(_) => true,
                }
            }
            _ => true,
        }
    }

    /// The order as it is once this node was chosen.
    fn here(&self, order: &ProvisionRequest) -> ProvisionRequest {
        ProvisionRequest { selected_node: Some(self.settings.node.clone()), ..order.clone() }
    }

    /// Whether there is room for the claim's volume on this node. Where that can't be found out
    /// there may be: this node then becomes the owner, so that one process tells the claim's user
    /// what is wrong.
    async fn fits(&self, provisioner: &CsiProvisioner, order: &ProvisionRequest) -> bool {
        if !provisioner.0.settings.capabilities.controller.contains(&Rpc::GetCapacity) {
            return true;
        }
        let request = match provisioner.check(&mut self.here(order)).await {
            Ok(request) => request,
            Err(why) => {
                tracing::debug!(?why, "becoming owner without a check of capacity");
                return true;
            }
        };
        has_room(provisioner, &request).await.unwrap_or_else(|error| {
            tracing::info!(%error, "becoming owner although the capacity check failed");
            true
        })
    }
}

/// Whether the driver has room for the request in one of the places where it may be: the request
/// is CreateVolume's to the letter, but for its secrets.
async fn has_room(provisioner: &CsiProvisioner, request: &Request) -> Result<bool, CallError> {
    let create = &request.prepared.request;
    let size = create.capacity_range.unwrap_or_default().required_bytes;
    if size == 0 {
        return Ok(true);
    }
    for place in places(request) {
        let answer = provisioner.0.driver.get_capacity(GetCapacityRequest {
            volume_capabilities: create.volume_capabilities.clone(),
            parameters: create.parameters.clone(),
            accessible_topology: place,
        });
        if size <= answer.await?.available_capacity {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the volume may be; nowhere in particular for a driver without topology.
fn places(request: &Request) -> Vec<Option<Topology>> {
    let requirements = request.prepared.request.accessibility_requirements.as_ref();
    let requisite = requirements.map(|it| it.requisite.as_slice()).unwrap_or_default();
    if requisite.is_empty() { vec![None] } else { requisite.iter().cloned().map(Some).collect() }
}
