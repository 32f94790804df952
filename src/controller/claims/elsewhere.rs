//! Claims for which the process of another node has a call open (node deployment).
//!
//! Owns when such a claim is let go, or followed here: its node's process may never come back. Promises
//! that a live claim is followed by one node's process at a time, and that what is let go is reported
//! by whoever did it.

use super::{
    super::provisioner::Provisioner, call_record::Record, index::ClaimSnapshot, sync::ClaimWorker,
};
use crate::{
    kube::{
        ApiError, Name,
        objects::{Node, View as _},
    },
    workqueue::Action,
};

/// What follows for a claim whose call is open on another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is looked at again later.
    Wait,
    /// The claim's user is told, and it is looked at again later.
    Block,
    /// Take the mark off.
    LetGo,
    /// Follow the call here.
    Adopt,
}

/// Decides it. `overdue`: the claim has been deleted for longer than it is kept.
fn step(is_terminating: bool, overdue: bool, node_is_gone: bool) -> Step {
    match (is_terminating, overdue || node_is_gone, node_is_gone) {
        (true, true, _) => Step::LetGo,
        (true, false, _) => Step::Wait,
        (false, _, true) => Step::Adopt,
        (false, _, false) => Step::Block,
    }
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Does what the call of another node's process, of which this is the record, leaves to this one.
    pub(crate) async fn elsewhere(
        self: &std::sync::Arc<Self>,
        uid: &str,
        snapshot: &ClaimSnapshot,
        record: &Record,
    ) -> Action {
        let Some(standing) = self.book.standing(uid) else { return Action::Done };
        let is_terminating = snapshot.claim.is_terminating();
        let wait = self.provisioner.wait_among_peers(uid);
        // Only the selected node's process may follow a live claim; a deleted one any may let go.
        if is_terminating && !wait.is_zero() {
            return Action::RequeueAfter(wait);
        }
        let node = record.node_shown();
        let overdue = self.open_calls.is_overdue(&standing);
        let node_is_gone = match self.is_gone(node).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::debug!(%error, node, "cannot tell whether the node is gone");
                false
            }
        };
        let volume = &standing.volume_name;
        match step(is_terminating, overdue, node_is_gone) {
            Step::Wait => Action::Retry,
            Step::Block => {
                let why = format!(
                    "a CreateVolume that was made for the claim on node {node:?} may still run: it is followed to its end there"
                );
                self.blocked(uid, &snapshot.claim, &why);
                Action::Retry
            }
            Step::LetGo => {
                let claim = &snapshot.claim;
                let let_go = self
                    .open_calls
                    .give_up_for_node(uid, claim, volume, record, node_is_gone)
                    .await;
                if let_go { Action::Done } else { Action::Retry }
            }
            Step::Adopt => {
                self.book.adopt(uid, node);
                self.open_calls.suspect_node(uid, &snapshot.claim, volume);
                Action::Retry
            }
        }
    }

    /// Whether there is no such node, by what the API server says now. Without a name that cannot be
    /// told.
    async fn is_gone(&self, node: &str) -> Result<bool, ApiError> {
        if node.is_empty() {
            return Ok(false);
        }
        match self.client.get::<Node>(Name::cluster(node)?).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_claim_is_let_go_and_a_live_one_followed_once_its_node_is_gone() {
        for (terminating, overdue, gone, expected) in [
            (true, false, false, Step::Wait),
            (true, true, false, Step::LetGo),
            (true, false, true, Step::LetGo),
            (true, true, true, Step::LetGo),
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
