use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::*;
use crate::nodes::testing::{TestNode, nodes};

const DRIVER: &str = "disk.example.com";

/// Nodes with two keys.
const RACKS: [TestNode<'static>; 2] = [
    ("n1", Some(&["zone", "rack"]), Some(&[("zone", "b"), ("rack", "r7")])),
    ("n2", Some(&["zone", "rack"]), Some(&[("zone", "a"), ("rack", "r1")])),
];

fn allowed(alternatives: &Value) -> Vec<TopologySelectorTerm> {
    let alternatives = alternatives.as_array().unwrap().iter().map(|values| {
        let values = values.as_object().unwrap().iter();
        let expressions: Vec<Value> =
            values.map(|(key, values)| json!({"key": key, "values": values})).collect();
        serde_json::from_value(json!({"matchLabelExpressions": expressions})).unwrap()
    });
    alternatives.collect()
}

/// A claim without special requirements, with the default flags.
fn constraints<'a>() -> Constraints<'a> {
    Constraints {
        claim: "data-web-1",
        allowed: &[],
        node: None,
        live: None,
        strict: false,
        immediate: true,
    }
}

/// The requisite and preferred topologies, or the error.
fn decided(constraints: &Constraints<'_>, known: &[TestNode<'_>]) -> String {
    match decide(constraints, &nodes(DRIVER, known)) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(requirement)) => {
            let show = |terms: Vec<Segments>| terms::show_all(&terms);
            let requisite = show(requirement.requisite().cloned().collect());
            format!("{requisite} best {}", terms::show(requirement.preferred().next().unwrap()))
        }
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn a_node_outside_the_allowed_topologies_is_refused() {
    let zones = allowed(&json!([{"zone": ["z1", "z2"]}]));
    let with = |strict| Constraints { allowed: &zones, node: Some("n1"), strict, ..constraints() };
    assert_eq!(
        decided(&with(false), &RACKS),
        r#"topology [{rack r7} {zone b}] from selected node "n1" is not in requisite: [[{zone z1}] [{zone z2}]]"#
    );
    assert_eq!(
        decided(&with(true), &RACKS),
        r#"selected node '"n1"' topology '[{rack r7} {zone b}]' is not in allowed topologies: [[{zone z1}] [{zone z2}]]"#
    );
}

#[test]
fn without_a_selected_node_the_most_common_keys_count() {
    let known: [TestNode<'_>; 3] = [
        ("n1", Some(&["rack"]), Some(&[("zone", "a"), ("rack", "r1")])),
        ("n2", Some(&["zone"]), Some(&[("zone", "b"), ("rack", "r2")])),
        ("n3", Some(&["zone"]), Some(&[("zone", "c")])),
    ];
    let expected = "[[{zone a}] [{zone b}] [{zone c}]] best [{zone b}]";
    assert_eq!(decided(&constraints(), &known), expected);
    let chosen = decided(&Constraints { node: Some("n1"), ..constraints() }, &known);
    assert_eq!(chosen, "[[{rack r1}] [{rack r2}]] best [{rack r1}]");
}

/// A cluster whose nodes may lack keys or labels, as (keys, zone, rack).
type Cluster = Vec<(u8, Option<u8>, Option<u8>)>;

fn cluster() -> impl Strategy<Value = Cluster> {
    let value = || proptest::option::weighted(0.8, 0..4_u8);
    vec((0..4_u8, value(), value()), 1..8)
}

const KEYS: [Option<&[&str]>; 4] =
    [None, Some(&["zone"]), Some(&["zone", "rack"]), Some(&["rack", "zone"])];

fn places(cluster: &Cluster) -> Vec<Segments> {
    let label = |key: &str, value: &Option<u8>| value.map(|v| (key.to_owned(), v.to_string()));
    let node = |(_, zone, rack): &(u8, Option<u8>, Option<u8>)| {
        [label("zone", zone), label("rack", rack)].into_iter().flatten().collect()
    };
    cluster.iter().map(node).collect()
}

fn with_nodes<T>(cluster: &Cluster, reversed: bool, then: impl FnOnce(&Nodes) -> T) -> T {
    let labels = places(cluster);
    let labels: Vec<Vec<(&str, &str)>> =
        labels.iter().map(|node| node.iter().map(|(k, v)| (&**k, &**v)).collect()).collect();
    let names: Vec<String> = (0..cluster.len()).map(|n| format!("n{n}")).collect();
    let nodes_of = cluster.iter().zip(&labels).zip(&names);
    let mut known: Vec<TestNode<'_>> = nodes_of
        .map(|((node, labels), name)| {
            (name.as_str(), KEYS[usize::from(node.0)], Some(labels.as_slice()))
        })
        .collect();
    if reversed {
        known.reverse();
    }
    then(&nodes(DRIVER, &known))
}

fn allows() -> impl Strategy<Value = Value> {
    let values = || {
        vec(0..4_u8, 1..3).prop_map(|values| values.iter().map(u8::to_string).collect::<Vec<_>>())
    };
    let one = (values(), proptest::option::of(values())).prop_map(|(zones, racks)| match racks {
        Some(racks) => json!({"zone": zones, "rack": racks}),
        None => json!({"zone": zones}),
    });
    vec(one, 0..3).prop_map(Value::Array)
}

proptest! {
    /// For any cluster, class and flags: the result does not depend on the order in which nodes
    /// were learned; the requisite topologies are sorted and unique; the preferred ones are the
    /// same, rotated; and the first one contains the selected node.
    #[test]
    fn requirements_are_sorted_and_stable(
        cluster in cluster(), allows in allows(), claim in "[a-z]{1,4}(-[a-z]{1,3})?-[0-9]{1,3}",
        chosen in proptest::option::of(0..8_usize), strict: bool, immediate: bool,
    ) {
        let allowed = allowed(&allows);
        let chosen = chosen.map(|node| node % cluster.len());
        let name = chosen.map(|node| format!("n{node}"));
        let constraints = Constraints { claim: &claim, allowed: &allowed, node: name.as_deref(), live: None, strict, immediate };
        let decision = with_nodes(&cluster, false, |nodes| decide(&constraints, nodes));
        prop_assert_eq!(&with_nodes(&cluster, true, |nodes| decide(&constraints, nodes)), &decision);
        let Ok(Some(requirement)) = decision else { return Ok(()) };
        let requisite: Vec<Segments> = requirement.requisite().cloned().collect();
        let preferred: Vec<Segments> = requirement.preferred().cloned().collect();
        prop_assert!(requisite.is_sorted_by(|a, b| terms::order(a, b).is_lt()));
        let turn = requisite.iter().position(|term| *term == preferred[0]).unwrap();
        let mut turned = requisite.clone();
        turned.rotate_left(turn);
        prop_assert_eq!(&preferred, &turned);
        if let Some(node) = chosen {
            let place = &places(&cluster)[node];
            prop_assert!(terms::is_subset(&preferred[0], place));
            prop_assert!(!strict || requisite.len() == 1);
            prop_assert!(!strict || is_allowed(&allowed, &preferred[0]));
        }
        prop_assert!(chosen.is_some() && strict || requisite.iter().all(|place| is_allowed(&allowed, place)));
    }

    /// The replicas of a StatefulSet use all topologies in turn.
    #[test]
    fn the_replicas_of_a_set_use_each_topology_in_turn(cluster in cluster(), set in "[a-z]{1,8}", from in 0..1000_usize) {
        let best = |replica: usize| {
            let claim = format!("data-{set}-{replica}");
            with_nodes(&cluster, false, |nodes| decide(&Constraints { claim: &claim, ..constraints() }, nodes))
        };
        let Ok(Some(first)) = best(from) else { return Ok(()) };
        let in_turn: Vec<Segments> = (from..from + first.requisite().count())
            .map(|replica| best(replica).unwrap().unwrap().preferred().next().unwrap().clone())
            .collect();
        // The sum of hash and ordinal may wrap, once.
        let expected: Vec<Segments> = first.preferred().cloned().collect();
        prop_assert!(in_turn == expected || in_turn.len() > 1 && spreading_wraps(&set, from, in_turn.len()));
    }
}

fn spreading_wraps(set: &str, from: usize, places: usize) -> bool {
    let all = usize::try_from(u32::MAX).unwrap();
    let hash = spreading::preferred(set, all);
    hash + from + places > all
}
