//! Which node a claim belongs to: decided by its selected node, its class and its resource version.
//!
//! Contains the decision before a try ([`ownership`]) and the edit that selects this node
//! ([`select_node`]), which is checked against the very object that is written (safety rule 11).
//! Pure.

use serde_json::Value;

use crate::{
    controller::ownership::SELECTED_NODE,
    kube::{
        Edit,
        client::annotations,
        objects::{Claim, StorageClass, View as _},
    },
};

/// Whether a claim belongs to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// It belongs to this node.
    Ours,
    /// It belongs to another node, waits for the scheduler, or is not provisioned by nodes.
    Others,
    /// Any node may take it.
    Free,
}

/// The result of a try to own a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// The claim belongs to this node; a later event will show it.
    Own,
    /// Another node was faster.
    Another(String),
    /// The claim has changed since it was judged.
    Changed,
    /// It is deleted, terminating, or bound.
    Gone,
}

/// Decides whether `claim` of `class` belongs to `node`. `immediate`: the node takes claims with
/// immediate binding. Only the current name of the annotation counts, and a class without a binding
/// mode is not one of immediate binding, as in external-provisioner.
pub(super) fn ownership(
    node: &str,
    immediate: bool,
    claim: &Claim,
    class: &StorageClass,
) -> Ownership {
    match claim.annotation(SELECTED_NODE).unwrap_or_default() {
        "" if immediate && class.volume_binding_mode.as_deref() == Some("Immediate") => {
            Ownership::Free
        }
        selected if selected == node => Ownership::Ours,
        _ => Ownership::Others,
    }
}

/// Selects `node` for a claim that was judged in the version `judged`, if it is unchanged.
pub(super) fn select_node(claim: &mut Value, node: &str, judged: &str) -> (Choice, Edit) {
    let choice = judge(claim, node, judged);
    let edit = match choice {
        Choice::Own => annotations::set(claim, SELECTED_NODE, node),
        _ => Edit::Nothing,
    };
    (choice, edit)
}

fn judge(claim: &Value, node: &str, judged: &str) -> Choice {
    let text = |pointer| claim.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match annotations::get(claim, SELECTED_NODE) {
        _ if !text("/metadata/deletionTimestamp").is_empty() => Choice::Gone,
        _ if !text("/spec/volumeName").is_empty() => Choice::Gone,
        "" if text("/metadata/resourceVersion") == judged => Choice::Own,
        "" => Choice::Changed,
        selected if selected == node => Choice::Own,
        selected => Choice::Another(selected.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(annotations: &Value) -> Value {
        json!({"metadata": {"resourceVersion": "7", "annotations": annotations}, "spec": {}})
    }

    #[test]
    fn a_claim_belongs_to_its_selected_node_and_immediate_ones_are_free() {
        let (ours, others, free) = (Ownership::Ours, Ownership::Others, Ownership::Free);
        let alpha = "volume.alpha.kubernetes.io/selected-node";
        for (annotations, mode, immediate, expected) in [
            (json!({SELECTED_NODE: "n1"}), Some("WaitForFirstConsumer"), true, ours),
            (json!({SELECTED_NODE: "n1"}), Some("Immediate"), false, ours),
            (json!({SELECTED_NODE: "n1"}), None, false, ours),
            (json!({SELECTED_NODE: "n2"}), Some("Immediate"), true, others),
            (json!({}), Some("WaitForFirstConsumer"), true, others),
            (json!({}), None, true, others),
            (json!({}), Some("Immediate"), false, others),
            (json!({}), Some("Immediate"), true, free),
            (json!({SELECTED_NODE: ""}), Some("Immediate"), true, free),
            (json!({alpha: "n1"}), Some("Immediate"), true, free),
        ] {
            let seen: Claim = serde_json::from_value(claim(&annotations)).unwrap();
            let class = StorageClass {
                volume_binding_mode: mode.map(str::to_owned),
                ..StorageClass::default()
            };
            let actual = ownership("n1", immediate, &seen, &class);
            assert_eq!(actual, expected, "{annotations} {mode:?} {immediate}");
        }
    }

    #[test]
    fn a_free_claim_is_chosen_in_the_version_that_was_judged() {
        for annotations in [json!({"a": "b"}), json!({}), Value::Null, json!({SELECTED_NODE: ""})] {
            let mut object = claim(&annotations);
            assert_eq!(select_node(&mut object, "n1", "7"), (Choice::Own, Edit::Write));
            assert_eq!(object["metadata"]["annotations"][SELECTED_NODE], "n1");
            assert_eq!(object["metadata"]["annotations"]["a"], annotations["a"], "others stay");
            assert_eq!(select_node(&mut object, "n1", "7"), (Choice::Own, Edit::Nothing), "once");
        }
        let mut bare = json!({"metadata": {"resourceVersion": "7"}});
        assert_eq!(select_node(&mut bare, "n1", "7"), (Choice::Own, Edit::Write));
    }

    #[test]
    fn a_changed_or_taken_claim_is_not_written() {
        let deleted = json!({"metadata": {"resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let bound = json!({"metadata": {"resourceVersion": "7"}, "spec": {"volumeName": "pv"}});
        for (mut object, judged, choice) in [
            (claim(&json!({SELECTED_NODE: "n2"})), "7", Choice::Another("n2".into())),
            (claim(&json!({SELECTED_NODE: "n2"})), "6", Choice::Another("n2".into())),
            (claim(&json!({SELECTED_NODE: "n1"})), "6", Choice::Own),
            (claim(&json!({})), "6", Choice::Changed),
            (deleted, "7", Choice::Gone),
            (bound, "7", Choice::Gone),
            (json!({}), "7", Choice::Changed),
        ] {
            let before = object.clone();
            assert_eq!(select_node(&mut object, "n1", judged), (choice, Edit::Nothing), "{before}");
            assert_eq!(object, before);
        }
    }
}
