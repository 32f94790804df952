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

/// Each node has a driver of its own, so another's volume says nothing about what ours has made; nor does a
/// volume that an admin made. Whether it is seen before the answer comes or after it.
#[tokio::test]
async fn a_call_that_a_volume_of_another_node_or_an_admin_closes_is_reported_once() {
    let (made, by_hand) = (provisioned_pv("pvc-u", "u"), volume("pvc-u", "u"));
    for (node, volume, expected) in
        [(Some("n1"), &made, true), (None, &made, false), (None, &by_hand, true)]
    {
        for is_seen_first in [true, false] {
            let index = lead(index_of_node(node));
            index.on_event(InformerEvent::Apply(on_node("u", node, None)));
            set_verified(&index, "u");
            assert!(index.start_call("u", &request("u")));
            if is_seen_first {
                index.on_volume(volume);
                index.on_outcome("u", &background());
            } else {
                index.on_outcome("u", &background());
                let queued = expected.then_some("u");
                assert_eq!(index.on_volume(volume).as_deref(), queued, "to be reported");
            }
            index.on_event(InformerEvent::Delete(on_node("u", node, None)));
            assert_eq!(is_superseded(&index), expected, "{node:?} {is_seen_first}");
            assert!(!is_superseded(&index) && index.is_empty());
        }
    }
    let index = with_claim();
    index.start_call("u", &request("u"));
    index.on_outcome("u", &background());
    index.update("u", Entry::found_bound);
    assert!(is_superseded(&index), "to a volume that this process has not saved");
}
