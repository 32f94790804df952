use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    controller::{claims::call_record::Record, model::record::Recorder},
    csi_provisioner::testing::{DRIVER, order},
    kube::testing::{Answer, Server, client},
    nodes::testing::{Known, nodes},
};

const ZONES: [Known<'static>; 3] = [
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

fn topology(server: &Server, known: &[Known<'_>]) -> Topology {
    let settings = TopologySettings { strict: false, immediate: true };
    Topology::new(nodes(DRIVER, known), client(server), settings)
}

fn on(node: &str) -> ProvisionRequest {
    ProvisionRequest { selected_node: Some(node.into()), ..order(&json!({}), &json!({})) }
}

fn zones(terms: &[proto::Topology]) -> Vec<&str> {
    terms.iter().map(|term| term.segments["zone"].as_str()).collect()
}

/// How the failure reads, whether the node is given back, and what the claim waits for.
fn refused(refusal: NotSent) -> (String, bool, Vec<String>) {
    let (failure, given_back) = match refusal {
        NotSent::Failed(failure) | NotSent::Unrepeatable(failure) => (failure, false),
        NotSent::Reschedule(failure) => (failure, true),
        NotSent::Ignored { reason } => panic!("{reason}"),
    };
    let awaited = failure.dependencies().iter();
    let awaited = awaited
        .map(|object| format!("{} {}", object.kind.plural, object.name.as_deref().unwrap_or("*")))
        .collect();
    (failure.to_string(), given_back, awaited)
}

#[tokio::test(start_paused = true)]
async fn an_open_call_is_repeated_as_it_was_and_a_closed_one_is_asked_anew() {
    let server = server(Answer::status(500));
    let mut first = on("n2");
    let told = topology(&server, &ZONES).decide(&mut first).await.unwrap().unwrap();
    assert_eq!((zones(&told.requisite), zones(&told.preferred)), (vec!["a", "b"], vec!["b", "a"]));
    // The cluster is another one by now.
    let moved: [Known<'_>; 1] = [("n9", Some(&["zone"]), Some(&[("zone", "z")]))];
    let later = topology(&server, &moved);
    assert_eq!(later.decide(&mut first).await.unwrap().unwrap(), told);
    assert!(later.decide(&mut on("n2")).await.is_err());
    let mut anew = on("n9");
    assert_eq!(zones(&later.decide(&mut anew).await.unwrap().unwrap().preferred), ["z"]);
    assert!(server.seen().is_empty(), "nothing was read live");
}

#[tokio::test(start_paused = true)]
async fn a_record_counts_as_far_as_the_same_would_be_asked_for_now() {
    let topology = topology(&server(Answer::status(500)), &ZONES);
    let pin = |zone: Option<&str>| {
        let terms = zone.map(|zone| [("zone".to_owned(), zone.to_owned())].into());
        let terms = terms.into_iter().collect();
        Some(Arc::new(Pinned::Recorded(Recorded::Terms { terms, first: 0 })))
    };
    let allowing = |zones: &Value, topology| {
        let allowed = json!([{"matchLabelExpressions": [{"key": "zone", "values": zones}]}]);
        ProvisionRequest { topology, ..order(&json!({}), &json!({"allowedTopologies": allowed})) }
    };
    let gone = "an earlier CreateVolume for this claim may still run, and the place that it preferred is not one where the volume could be asked for now";
    for (allowed, recorded, expected) in [
        (json!(["x", "y"]), pin(Some("y")), Ok(vec!["y".to_owned()])),
        (json!(["x"]), pin(Some("y")), Err(gone.to_owned())),
        (json!(["x"]), pin(None), Err(gone.to_owned())),
    ] {
        let told = topology.decide(&mut allowing(&allowed, recorded.clone())).await;
        let told = told
            .map(|told| zones(&told.unwrap().requisite).into_iter().map(str::to_owned).collect())
            .map_err(|refusal| refused(refusal).0);
        assert_eq!(told, expected, "{recorded:?}");
    }
    let here = Topology { settings: TopologySettings::default(), ..topology };
    let mut anywhere = ProvisionRequest { topology: pin(None), ..order(&json!({}), &json!({})) };
    assert_eq!(here.decide(&mut anywhere).await.unwrap(), None);
}

/// So many nodes with a place of their own that their list is too long for a record.
fn many() -> Vec<String> {
    (0..1000).map(|n| format!("node-{n:04}.example.com")).collect()
}

/// The order after a restart: as its record says.
fn restarted(asked: &ProvisionRequest) -> ProvisionRequest {
    let record = Record::of(asked, Recorder { driver: DRIVER, node: None }, String::new());
    let record = Record::decode(&record.encode().unwrap()).unwrap();
    let recorded = *record.topology.unwrap();
    assert!(matches!(recorded, Recorded::Preferred { .. }));
    ProvisionRequest { topology: Some(Arc::new(Pinned::Recorded(recorded))), ..asked.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_long_requirement_is_made_again_from_the_nodes_while_its_best_place_is_one_of_theirs() {
    let server = server(Answer::status(500));
    let names = many();
    let labels: Vec<[(&str, &str); 1]> =
        names.iter().map(|name| [("zone", name.as_str())]).collect();
    let all: Vec<Known<'_>> = names
        .iter()
        .zip(&labels)
        .map(|(name, labels)| (name.as_str(), Some(&["zone"][..]), Some(&labels[..])))
        .collect();
    let mut asked = on("node-0007.example.com");
    let told = topology(&server, &all).decide(&mut asked).await.unwrap().unwrap();
    assert_eq!(told.requisite.len(), 1000);
    let again = topology(&server, &all).decide(&mut restarted(&asked)).await.unwrap().unwrap();
    assert_eq!(again, told);
    let fewer = topology(&server, &all[5..]).decide(&mut restarted(&asked)).await.unwrap().unwrap();
    assert_eq!((fewer.requisite.len(), zones(&fewer.preferred)[0]), (995, "node-0007.example.com"));
    let mut without = restarted(&asked);
    without.selected_node = Some("node-0008.example.com".into());
    let gone = topology(&server, &all[8..]).decide(&mut without).await.unwrap_err();
    assert!(matches!(gone, NotSent::Unrepeatable(_)), "{gone:?}");
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
    for (answer, known, node, why, given_back, awaited) in [
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
        // What can't be read live counts as it is known.
        (Answer::refusal(403, "Forbidden", "no"), &ZONES, "n3", missing(""), false, &both),
    ] {
        let topology = topology(&server(answer), known);
        let refusal = topology.decide(&mut on(node)).await.unwrap_err();
        let awaited: Vec<String> = awaited.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(refused(refusal), (why, given_back, awaited));
    }
    let nowhere = topology(&server(Answer::status(500)), &[]);
    let refusal = nowhere.decide(&mut order(&json!({}), &json!({}))).await.unwrap_err();
    let why = format!("{prefix}no available topology found");
    assert_eq!(refused(refusal), (why, false, vec!["csinodes *".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_label_that_is_newer_than_what_is_known_counts() {
    let topology = topology(&server(live(&json!({"zone": "b"}))), &ZONES);
    let told = topology.decide(&mut on("n3")).await.unwrap().unwrap();
    assert_eq!(zones(&told.preferred), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_name_selects_no_node() {
    let topology = topology(&server(Answer::status(500)), &ZONES);
    let mut order = on("");
    Arc::make_mut(&mut order.claim).metadata.name = Some("data-web-1".into());
    let told = topology.decide(&mut order).await.unwrap().unwrap();
    assert_eq!(zones(&told.requisite), ["a", "b"]);
}
