//! Removes the selected node from a claim, so that the scheduler chooses again ("giving the node
//! back").
//!
//! Only the node that the driver refused is removed, not a later choice of the scheduler (safety
//! rule 11).

use serde_json::Value;

use super::{
    super::{
        ownership::SELECTED_NODE,
        provisioner::{ProvisionRequest, Provisioner},
    },
    index::{ClaimGuard, Entry},
    record_status,
    state::Transition,
    worker::ClaimWorker,
};
use crate::{
    kube::{
        ApiError, Edit, Edited, Name,
        client::annotations,
        objects::{Claim, View as _},
    },
    metrics::SuspectedLeak,
    workqueue::Action,
};

impl<P: Provisioner> ClaimWorker<P> {
    /// Removes the selected node of the request from its claim.
    pub(crate) async fn give_node_back(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
    ) -> Action {
        let claim = &request.claim;
        let refused = request.selected_node.as_deref();
        if claim.annotation(SELECTED_NODE).is_none() {
            // The node is under the annotation's oldest name, which external-provisioner keeps,
            // too.
            self.count_failure(claim);
            return Action::Retry;
        }
        let is_open = held.is(|known| known.state.is_open());
        match self.remove_node_from(claim, refused, is_open).await {
            // Its event is still to come: an open call is followed to its end.
            Ok(Edited::Gone) => Action::Done,
            Ok(Edited::Written(_) | Edited::Unchanged(_)) => {
                // The index still has the node until the event of this write arrives.
                held.update(Entry::require_reads);
                // The process of another node serves the claim from now on, with a driver of its
                // own.
                if is_open && self.deps.identity.node.is_some() {
                    let why = format!(
                        "the selected node is given back after a CreateVolume whose outcome is unknown: should that have made the volume {:?}, it is left at the driver of that node",
                        request.name()
                    );
                    self.suspect(claim, SuspectedLeak::NODE_GIVEN_BACK, &why);
                    held.update(|it| it.advance(Transition::NodeGivenBack));
                }
                Action::Done
            }
            Err(error) => {
                let why = format!("cannot give the selected node back: {error}");
                self.deps.events.failed(claim, &why);
                Action::Retry
            }
        }
    }

    /// Removes the node `refused` from the claim, and what depends on it from the claim's record.
    /// `is_open`: a call is open.
    async fn remove_node_from(
        &self,
        claim: &Claim,
        refused: Option<&str>,
        is_open: bool,
    ) -> Result<Edited<Claim>, ApiError> {
        let identity = &self.deps.identity;
        let remove = |object: &mut Value| {
            let edit = remove_node(object, refused);
            match edit {
                // The next request may be for another node. With node deployment that node has a
                // driver of its own, and no process there would follow this record.
                Edit::Write if is_open && identity.node.is_none() => {
                    record_status::forget_topology(object, identity);
                }
                Edit::Write => drop(record_status::remove_own(object, identity)),
                Edit::Nothing => {}
            }
            edit
        };
        let name = Name::namespaced(claim.namespace(), claim.name())?;
        self.deps.client.edit::<Claim>(name, claim.uid(), remove).await
    }
}

/// Removes the selected node if it is still the refused one (safety rule 11).
pub(crate) fn remove_node(claim: &mut Value, refused: Option<&str>) -> Edit {
    if refused == Some(annotations::get(claim, SELECTED_NODE)) {
        annotations::remove(claim, SELECTED_NODE)
    } else {
        Edit::Nothing
    }
}
