//! Claims for which the process of another node has a call open (node deployment).
//!
//! That process may never come back. Then a deleted claim is released, by any process, and a live
//! claim is followed by the process of its selected node. The process that does so reports it.

use super::{
    super::{model::record::Record, provisioner::Provisioner},
    index::{ClaimGuard, KnownClaim},
    worker::ClaimWorker,
};
use crate::{
    kube::{
        ApiError, Name,
        objects::{Node, View as _},
    },
    workqueue::Action,
};

/// What to do with a claim whose call is open on another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Look again later.
    Wait,
    /// Tell the user and look again later.
    Block,
    /// Remove the record.
    Release,
    /// Follow the call in this process.
    Adopt,
}

/// Decides what to do. `overdue`: the claim has been deleted for longer than it is kept.
fn step(is_terminating: bool, overdue: bool, node_is_gone: bool) -> Step {
    match (is_terminating, overdue || node_is_gone, node_is_gone) {
        (true, true, _) => Step::Release,
        (true, false, _) => Step::Wait,
        (false, _, true) => Step::Adopt,
        (false, _, false) => Step::Block,
    }
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Does what this process must do for the call of another node that `record` is of.
    pub(crate) async fn follow_elsewhere(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
        record: &Record,
    ) -> Action {
        let is_terminating = known.claim.is_terminating();
        let wait = self.peers.wait(held.uid());
        // Only the selected node's process may follow a live claim, but any may release a deleted
        // one.
        if is_terminating && !wait.is_zero() {
            return Action::RequeueAfter(wait);
        }
        let node = record.printable_node();
        let overdue = self.is_overdue(known);
        let node_is_gone = self.is_node_gone(node).await;
        let volume = known.volume_name.as_deref().unwrap_or_default();
        match step(is_terminating, overdue, node_is_gone) {
            Step::Wait => Action::Retry,
            Step::Block => {
                let why = format!(
                    "a CreateVolume that was made for the claim on node {node:?} may still run: it is followed to its end there"
                );
                self.retry_blocked(&known.claim, &why, &why)
            }
            Step::Release => {
                let claim = &known.claim;
                let is_released =
                    self.release_for_node(held, claim, volume, record, node_is_gone).await;
                if is_released { Action::Done } else { Action::Retry }
            }
            Step::Adopt => {
                held.update(|it| it.adopt(node, &self.identity));
                self.suspect_node(&known.claim, volume);
                Action::Retry
            }
        }
    }

    /// Whether the API server says that the node does not exist. False if that cannot be found out,
    /// or if the record names no node.
    async fn is_node_gone(&self, node: &str) -> bool {
        if node.is_empty() {
            return false;
        }
        match self.read_node(node).await {
            Ok(found) => found.is_none(),
            Err(error) => {
                tracing::debug!(%error, node, "cannot tell whether the node is gone");
                false
            }
        }
    }

    async fn read_node(&self, node: &str) -> Result<Option<Node>, ApiError> {
        self.client.get_opt(Name::cluster(node)?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_claim_is_released_and_a_live_one_followed_once_its_node_is_gone() {
        for (terminating, overdue, gone, expected) in [
            (true, false, false, Step::Wait),
            (true, true, false, Step::Release),
            (true, false, true, Step::Release),
            (true, true, true, Step::Release),
            (false, false, false, Step::Block),
            (false, true, false, Step::Block),
            (false, false, true, Step::Adopt),
        ] {
            assert_eq!(
                step(terminating, overdue, gone),
                expected,
                "{terminating} {overdue} {gone}"
            );
        }
    }
}
