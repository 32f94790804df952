//! Giving the selected node back.
//!
//! Owns taking it off the claim, so that the scheduler chooses again. Promises that only the node that
//! was refused is taken off (safety rule 11).

use serde_json::Value;

use super::{
    super::{
        ownership::SELECTED_NODE,
        provisioner::{ProvisionRequest, Provisioner},
    },
    call_record::status,
    sync::ClaimWorker,
};
use crate::{
    kube::{
        Edit, Name,
        objects::{Claim, View as _},
    },
    workqueue::Action,
};

impl<P: Provisioner> ClaimWorker<P> {
    /// Takes the selected node off the claim, so that the scheduler chooses again.
    pub(crate) async fn give_node_back(&self, order: &ProvisionRequest) -> Action {
        let claim = &order.claim;
        let refused = order.selected_node.as_deref();
        if claim.annotation(SELECTED_NODE).is_none() {
            // It stands under its oldest name, which nobody takes off: a failure like any other.
            self.count_failure(claim);
            return Action::Retry;
        }
        let is_open = self.book.is_open(claim.uid());
        let standpoint = self.open_calls.standpoint(None);
        let remove = |object: &mut Value| {
            let edit = remove_node(object, refused);
            match edit {
                // The next request may be for another node. With node deployment it is to that node's
                // own driver, and nobody would follow what is recorded here.
                Edit::Write if is_open && standpoint.identity.node.is_none() => {
                    status::forget_place(object, standpoint);
                }
                Edit::Write => drop(status::take_off_own(object, standpoint)),
                Edit::Nothing => {}
            }
            edit
        };
        let edited = match Name::namespaced(claim.namespace(), claim.name()) {
            Ok(name) => self.client.edit::<Claim>(name, claim.uid(), remove).await,
            Err(error) => Err(error.into()),
        };
        match edited {
            Ok(_) => {
                // Until the watch shows it, what is known of the claim still names the node.
                self.book.node_given_back(claim.uid());
                // Another node's process serves the claim from now on, with a driver of its own.
                if is_open && self.identity.node.is_some() {
                    self.open_calls.suspect_node_given_back(claim.uid(), order);
                    self.book.given_up(claim.uid());
                }
                Action::Done
            }
            Err(error) => {
                let why = format!("cannot give the selected node back: {error}");
                tracing::warn!("{why}");
                self.events.failed(claim, &why);
                Action::Retry
            }
        }
    }
}

/// Takes the selected node off a claim if it still is the refused one (safety rule 11): a later
/// choice is the scheduler's own.
pub(crate) fn remove_node(claim: &mut Value, refused: Option<&str>) -> Edit {
    let annotations = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return Edit::Nothing };
    match annotations.get(SELECTED_NODE).and_then(Value::as_str) {
        Some(node) if Some(node) == refused => {
            annotations.remove(SELECTED_NODE);
            Edit::Write
        }
        _ => Edit::Nothing,
    }
}
