use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    controller::{model::record::Record, ownership::ProvisionerIdentity},
    csi_provisioner::testing::{DRIVER, request},
    kube::testing::{Answer, Server, client},
    nodes::testing::{TestNode, nodes},
};

const ZONES: [TestNode<'static>; 3] = [
    ("n1", Some(&["zone"]), Some(&[("zone", "a")])),
    ("n2", Some(&["zone"]), Some(&[("zone", "b")])),
    ("n3", Some(&["zone"]), Some(&[])),
];

/// A server that answers every request for a Node with `answer`.
fn server(answer: Answer) -> Server {
    Server::new(move |_, _| answer.clone())
}

fn live(labels: &Value) -> Answer {
    Answer::json(200, &json!({"metadata": {"name": "n3", "labels": labels}}))
}

fn topology(server: &Server, known: &[TestNode<'_>]) -> Topology {
    Topology { nodes: nodes(DRIVER, known), client: client(server), strict: false, immediate: true }
}

fn on(node: &str) -> ProvisionRequest {
    ProvisionRequest { selected_node: Some(node.into()), ..request(&json!({}), &json!({})) }
}

fn zones(terms: &[proto::Topology]) -> Vec<&str> {
    terms.iter().map(|term| term.segments["zone"].as_str()).collect()
}

/// The error text, whether the node is given back, and the dependencies.
fn refused(refusal: NotPrepared) -> (String, bool, Vec<String>) {
    let (failure, given_back) = match refusal {
        NotPrepared::Failed(failure) | NotPrepared::Unrepeatable(failure) => (failure, false),
        NotPrepared::Reschedule(failure) => (failure, true),
        NotPrepared::Ignored { reason, .. } => panic!("{reason}"),
    };
    let dependencies = failure.dependencies.iter();
    let dependencies = dependencies
        .map(|object| format!("{} {}", object.kind.plural, object.name.as_deref().unwrap_or("*")))
        .collect();
    (failure.to_string(), given_back, dependencies)
}

#[tokio::test(start_paused = true)]
async fn an_open_call_is_repeated_as_it_was_and_a_closed_one_is_decided_again() {
    let server = server(Answer::status(500));
    let mut first = on("n2");
    let to_proto = topology(&server, &ZONES).decide(&mut first).await.unwrap().unwrap();
    assert_eq!(
        (zones(&to_proto.requisite), zones(&to_proto.preferred)),
        (vec!["a", "b"], vec!["b", "a"])
    );
    // The cluster has changed.
    let moved: [TestNode<'_>; 1] = [("n9", Some(&["zone"]), Some(&[("zone", "z")]))];
    let later = topology(&server, &moved);
    assert_eq!(later.decide(&mut first).await.unwrap().unwrap(), to_proto);
    assert!(later.decide(&mut on("n2")).await.is_err());
    let mut anew = on("n9");
    assert_eq!(zones(&later.decide(&mut anew).await.unwrap().unwrap().preferred), ["z"]);
    assert!(server.requests().is_empty(), "nothing was read live");
}

#[tokio::test(start_paused = true)]
async fn a_record_counts_as_far_as_it_matches_the_current_requirement() {
    let topology = topology(&server(Answer::status(500)), &ZONES);
    let pin = |zone: Option<&str>| {
        let terms = zone.map(|zone| [("zone".to_owned(), zone.to_owned())].into());
        let terms = terms.into_iter().collect();
        Some(Arc::new(Pinned::Recorded(Recorded::Terms { terms, first: 0 })))
    };
    let allowing = |zones: &Value, topology| {
        let allowed = json!([{"matchLabelExpressions": [{"key": "zone", "values": zones}]}]);
        ProvisionRequest { topology, ..request(&json!({}), &json!({"allowedTopologies": allowed})) }
    };
    let gone = "an earlier CreateVolume for this claim may still run, and the place that it preferred is not one where the volume could be asked for now";
    for (allowed, recorded, expected) in [
        (json!(["x", "y"]), pin(Some("y")), Ok(vec!["y".to_owned()])),
        (json!(["x"]), pin(Some("y")), Err(gone.to_owned())),
        (json!(["x"]), pin(None), Err(gone.to_owned())),
    ] {
        let to_proto = topology.decide(&mut allowing(&allowed, recorded.clone())).await;
        let to_proto = to_proto
            .map(|to_proto| {
                zones(&to_proto.unwrap().requisite).into_iter().map(str::to_owned).collect()
            })
            .map_err(|refusal| refused(refusal).0);
        assert_eq!(to_proto, expected, "{recorded:?}");
    }
    let here = Topology { immediate: false, ..topology };
    let mut anywhere = ProvisionRequest { topology: pin(None), ..request(&json!({}), &json!({})) };
    assert_eq!(here.decide(&mut anywhere).await.unwrap(), None);
}

/// This many nodes, each in its own topology, so that the list is too long for a record.
fn many() -> Vec<String> {
    (0..1000).map(|n| format!("node-{n:04}.example.com")).collect()
}

/// The request after a restart, restored from its record.
fn restarted(requirement: &ProvisionRequest) -> ProvisionRequest {
    let by = ProvisionerIdentity::of_driver(DRIVER);
    let record = Record::of(requirement, &by, String::new());
    let record = Record::decode(&record.encode().unwrap()).unwrap();
    let recorded = *record.topology.unwrap();
    assert!(matches!(recorded, Recorded::Preferred { .. }));
    ProvisionRequest { topology: Some(Arc::new(Pinned::Recorded(recorded))), ..requirement.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_truncated_requirement_is_restored_from_the_nodes() {
    let server = server(Answer::status(500));
    let names = many();
    let labels: Vec<[(&str, &str); 1]> =
        names.iter().map(|name| [("zone", name.as_str())]).collect();
    let all: Vec<TestNode<'_>> = names
        .iter()
        .zip(&labels)
        .map(|(name, labels)| (name.as_str(), Some(&["zone"][..]), Some(&labels[..])))
        .collect();
    let mut requirement = on("node-0007.example.com");
    let to_proto = topology(&server, &all).decide(&mut requirement).await.unwrap().unwrap();
    assert_eq!(to_proto.requisite.len(), 1000);
    let again =
        topology(&server, &all).decide(&mut restarted(&requirement)).await.unwrap().unwrap();
    assert_eq!(again, to_proto);
    let fewer =
        topology(&server, &all[5..]).decide(&mut restarted(&requirement)).await.unwrap().unwrap();
    assert_eq!((fewer.requisite.len(), zones(&fewer.preferred)[0]), (995, "node-0007.example.com"));
    let mut without = restarted(&requirement);
    without.selected_node = Some("node-0008.example.com".into());
    let gone = topology(&server, &all[8..]).decide(&mut without).await.unwrap_err();
    assert!(matches!(gone, NotPrepared::Unrepeatable(_)), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_csi_node_or_object_is_given_back_and_one_that_lacks_something_is_waited_for()
 {
    let prefix = "error generating accessibility requirements: ";
    let missing = |labels: &str| {
        format!(
            "{prefix}topology labels from selected node map[{labels}] does not match topology keys from CSINode [zone]"
        )
    };
    let not_found = Answer::refusal(404, "NotFound", "nodes \"n3\" not found");
    let both = ["csinodes n3", "nodes n3"];
    for (answer, known, node, why, given_back, dependencies) in [
        (
            Answer::status(500),
            &ZONES[..],
            "gone",
            r#"failed to get selected CSINode gone: csinode.storage.k8s.io "gone" not found"#
                .to_owned(),
            true,
            &["csinodes gone"][..],
        ),
        (not_found, &ZONES, "n3", missing(""), true, &both),
        (
            live(&json!({"arch": "arm", "a": ""})),
            &ZONES,
            "n3",
            missing("a: arch:arm"),
            false,
            &both,
        ),
        // If the live read fails, the watch's labels count.
        (Answer::refusal(403, "Forbidden", "no"), &ZONES, "n3", missing(""), false, &both),
    ] {
        let topology = topology(&server(answer), known);
        let refusal = topology.decide(&mut on(node)).await.unwrap_err();
        let dependencies: Vec<String> =
            dependencies.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(refused(refusal), (why, given_back, dependencies));
    }
    let nowhere = topology(&server(Answer::status(500)), &[]);
    let refusal = nowhere.decide(&mut request(&json!({}), &json!({}))).await.unwrap_err();
    let why = format!("{prefix}no available topology found");
    assert_eq!(refused(refusal), (why, false, vec!["csinodes *".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn labels_read_live_count() {
    let topology = topology(&server(live(&json!({"zone": "b"}))), &ZONES);
    let to_proto = topology.decide(&mut on("n3")).await.unwrap().unwrap();
    assert_eq!(zones(&to_proto.preferred), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_name_selects_no_node() {
    let topology = topology(&server(Answer::status(500)), &ZONES);
    let mut request = on("");
    Arc::make_mut(&mut request.claim).metadata.name = Some("data-web-1".into());
    let to_proto = topology.decide(&mut request).await.unwrap().unwrap();
    assert_eq!(zones(&to_proto.requisite), ["a", "b"]);
}
