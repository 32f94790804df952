//! Node deployment: which node's process keeps a claim, and which follows its open call.

use super::*;

/// The claim with this node selected, and with a record of a call on the node `called`, if any.
pub(super) fn on_node(uid: &str, selected: Option<&str>, called: Option<&str>) -> Claim {
    claim_with(uid, |claim| {
        let annotations = &mut claim["metadata"]["annotations"];
        if let Some(node) = selected {
            annotations["volume.kubernetes.io/selected-node"] = json!(node);
        }
        if let Some(node) = called {
            let record = json!({"driver": DRIVER, "volume": format!("pvc-{uid}"), "node": node});
            annotations[record_status::RECORD] = json!(record.to_string());
            claim["metadata"]["finalizers"] = json!([record_status::FINALIZER]);
        }
    })
}

#[tokio::test]
async fn a_node_keeps_no_claims_of_other_nodes() {
    let index = lead(index_of_node(Some("n1")));
    index.on_event(InformerEvent::Apply(on_node("others", Some("n2"), None)));
    assert!(index.is_empty());
    index.on_event(InformerEvent::Apply(on_node("free", None, None)));
    index.on_event(InformerEvent::Apply(on_node("ours", Some("n1"), None)));
    assert_eq!(index.uids(|_| true), ["free", "ours"].map(Key::from));
    index.on_event(InformerEvent::Apply(on_node("free", Some("n2"), None)));
    assert_eq!(index.uids(|_| true), ["ours"].map(Key::from), "the scheduler chose another node");
}

#[tokio::test]
async fn a_claim_that_returns_from_another_node_is_verified() {
    let index = lead(index_of_node(Some("n1")));
    for uid in ["first-here", "first-there"] {
        if uid == "first-here" {
            index.on_event(InformerEvent::Apply(on_node(uid, None, None)));
        }
        index.on_event(InformerEvent::Apply(on_node(uid, Some("n2"), None)));
        index.on_event(InformerEvent::Apply(on_node(uid, Some("n1"), None)));
        assert!(must_verify(&index, uid), "{uid}");
    }
}

#[tokio::test]
async fn a_node_follows_its_own_open_calls_and_no_others() {
    let index = lead(index_of_node(Some("n1")));
    // Whichever node is selected since: the call belongs to the node that made it.
    index.on_event(InformerEvent::Apply(on_node("made-here", Some("n2"), Some("n1"))));
    index.on_event(InformerEvent::Apply(on_node("made-there", Some("n1"), Some("n2"))));
    let open = |uid| index.known(uid).unwrap().state.is_open();
    assert!(open("made-here") && !open("made-there"));
    assert_eq!(index.known("made-here").unwrap().demand(), Demand::Withdrawn);
    let woken = index.on_event(InformerEvent::Apply(on_node("made-there", Some("n1"), None)));
    assert_eq!(woken, ["made-there"].map(Key::from), "the other node's call is over");
}

/// The process of a node that is gone does not release its claims.
#[tokio::test]
async fn any_node_keeps_a_deleted_claim_with_the_record_of_another_node() {
    let index = lead(index_of_node(Some("n1")));
    let mut claim = on_node("u", Some("n2"), Some("n2"));
    assert!(index.on_event(InformerEvent::Apply(claim.clone())).is_empty() && index.is_empty());
    claim.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(index.on_event(InformerEvent::Apply(claim)), ["u"].map(Key::from));
    let snapshot = index.known("u").unwrap();
    assert_eq!(snapshot.elsewhere().unwrap().node.as_deref(), Some("n2"));
    assert!(!index.known("u").unwrap().state.is_open());
}

/// Each node has a driver of its own, so another's volume says nothing about what ours has made.
#[tokio::test]
async fn a_call_that_a_volume_of_another_node_closes_is_reported_once() {
    let observed_during_call = |node, answer: &dyn Fn(&ClaimIndex)| {
        let index = lead(index_of_node(node));
        index.on_event(InformerEvent::Apply(on_node("u", node, None)));
        set_verified(&index, "u");
        assert!(index.start_call("u", &request("u")));
        answer(&index);
        index
    };
    let observe = |index: &ClaimIndex| index.on_volume(&provisioned_pv("pvc-u", "u"));
    let observe_by_hand = |index: &ClaimIndex| index.on_volume(&volume("pvc-u", "u"));
    let answered = |index: &ClaimIndex| {
        index.on_outcome("u", &background());
    };
    let index = observed_during_call(Some("n1"), &answered);
    index.on_event(InformerEvent::Delete(on_node("u", Some("n1"), None)));
    assert_eq!(observe(&index).as_deref(), Some("u"), "queued to be reported");
    assert!(index.report("u", Topic::Superseded) && !index.report("u", Topic::Superseded));
    assert!(index.is_empty());

    let index = observed_during_call(Some("n1"), &|index| drop(observe(index)));
    answered(&index);
    assert!(index.report("u", Topic::Superseded), "seen before the answer came");

    let index = observed_during_call(None, &answered);
    observe(&index);
    assert!(!index.report("u", Topic::Superseded), "one driver: it is the same volume");

    let index = observed_during_call(None, &answered);
    assert_eq!(observe_by_hand(&index).as_deref(), Some("u"));
    assert!(index.report("u", Topic::Superseded), "an admin made it under the same name");

    let index = observed_during_call(None, &|index| drop(observe_by_hand(index)));
    answered(&index);
    assert!(index.report("u", Topic::Superseded), "seen before the answer came");
}

/// The claim is bound to a volume that this process has not saved.
#[tokio::test]
async fn a_call_of_this_process_is_reported_if_its_claim_is_found_bound() {
    let index = with_claim();
    index.start_call("u", &request("u"));
    index.on_outcome("u", &background());
    index.update("u", Entry::found_bound);
    assert!(index.report("u", Topic::Superseded));
}

#[tokio::test]
async fn a_finalizer_without_a_record_says_that_nothing_is_open() {
    let index = lead(index_of_node(Some("n1")));
    for (uid, selected) in [("ours", Some("n1")), ("free", None)] {
        let mut claim = on_node(uid, selected, None);
        claim.metadata.finalizers = vec![record_status::FINALIZER.into()];
        index.on_event(InformerEvent::Apply(claim));
        assert!(!index.known(uid).unwrap().state.is_open(), "{uid}");
    }
}
