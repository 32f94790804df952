use serde_json::json;

use super::*;
use crate::{
    csi_provisioner::testing::{DRIVER, request},
    kube::testing::{Answer, Server, client},
    nodes::testing::{TestNode, nodes},
};

const ZONES: [TestNode<'static>; 3] = [
    ("n1", Some(&["zone"]), Some(&[("zone", "a")])),
    ("n2", Some(&["zone"]), Some(&[("zone", "b")])),
    ("n3", Some(&["zone"]), Some(&[])),
];

/// The zone that is preferred for the node without a label, if this is the answer to a live read of it.
async fn preferred(answer: Answer) -> Result<String, NotPrepared> {
    let server = Server::new(move |_, _| answer.clone());
    let (nodes, client) = (nodes(DRIVER, &ZONES), client(&server));
    let topology = Topology { nodes, client, strict: false, immediate: true };
    let request = request(&json!({}), &json!({}));
    let mut request = ProvisionRequest { selected_node: Some("n3".into()), ..request };
    let decided = topology.decide(&mut request).await?.unwrap();
    Ok(decided.preferred[0].segments["zone"].clone())
}

#[tokio::test(start_paused = true)]
async fn labels_read_live_count_and_after_a_failed_read_those_of_the_watch() {
    let live = json!({"metadata": {"name": "n3", "labels": {"zone": "b"}}});
    assert_eq!(preferred(Answer::json(200, &live)).await.unwrap(), "b");
    let unread = preferred(Answer::refusal(403, "Forbidden", "no")).await.unwrap_err();
    let why = "error generating accessibility requirements: topology labels from selected node map[] does not match topology keys from CSINode [zone]";
    assert!(matches!(&unread, NotPrepared::Failed(it) if it.to_string() == why), "{unread:?}");
    let gone = preferred(Answer::refusal(404, "NotFound", "gone")).await.unwrap_err();
    assert!(matches!(gone, NotPrepared::Reschedule(_)), "{gone:?}");
}
