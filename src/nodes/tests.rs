use proptest::{collection::vec, prelude::*};
use serde_json::json;
use tokio::time::Duration;

use super::{testing::node, *};

const DRIVER: &str = "disk.example.com";

fn csi_node(name: &str, keys: Option<&[&str]>) -> CsiNode {
    let ours = keys.map(|keys| json!({"name": DRIVER, "topologyKeys": keys}));
    let drivers: Vec<_> =
        [json!({"name": "other", "topologyKeys": ["elsewhere"]})].into_iter().chain(ours).collect();
    serde_json::from_value(
        json!({"metadata": {"name": name, "uid": name}, "spec": {"drivers": drivers}}),
    )
    .unwrap()
}

fn keys(keys: &[&str]) -> Keys {
    keys.iter().copied().collect()
}

/// Nodes with manual events, and the recorded changes.
struct Fixture {
    nodes: Nodes,
    changes: Mutex<Vec<String>>,
}

impl Fixture {
    /// After a first list with these objects.
    fn with(csi_nodes: Vec<CsiNode>, nodes: Vec<Node>) -> Self {
        let fixture = Self { nodes: Nodes::for_driver(DRIVER), changes: Mutex::default() };
        InformerEvent::list(csi_nodes).for_each(|event| fixture.csi(event));
        fixture.relist(nodes);
        fixture.take_changes();
        fixture
    }

    fn record(&self, change: NodeChange<'_>) {
        self.changes.lock().push(match change {
            NodeChange::CsiNode(name) => format!("csi {name}"),
            NodeChange::Node(name) => format!("node {name}"),
        });
    }

    fn take_changes(&self) -> Vec<String> {
        std::mem::take(&mut *self.changes.lock())
    }

    fn csi(&self, event: InformerEvent<CsiNode>) {
        self.nodes.on_csi_node_event(event, &|change| self.record(change));
    }

    fn node(&self, event: InformerEvent<Node>) {
        self.nodes.on_node_event(event, &|change| self.record(change));
    }

    fn relist(&self, nodes: Vec<Node>) {
        self.nodes.begin_list();
        InformerEvent::list(nodes).for_each(|event| self.node(event));
    }

    /// The labels that are kept of a Node.
    fn kept(&self, node: &str) -> Option<String> {
        let labels = self.nodes.labels(node)?;
        let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
        Some(labels.collect::<Vec<_>>().join(","))
    }

    fn needs_relist(&self) -> bool {
        self.nodes.0.progress.borrow().needs_relist
    }
}

#[test]
fn only_labels_named_by_the_drivers_keys_are_kept() {
    let labels = [("zone", "a"), ("arch", "arm"), ("elsewhere", "x")];
    let fixture = Fixture::with(
        vec![csi_node("n1", Some(&["zone"])), csi_node("n2", None)],
        vec![node("n1", &labels), node("n3", &[("arch", "arm")])],
    );
    assert_eq!(fixture.kept("n1"), Some("zone=a".to_owned()));
    assert_eq!(fixture.kept("n3"), Some(String::new()));
    assert_eq!(fixture.nodes.registration("n1"), Registration::Driver(keys(&["zone"])));
    assert_eq!(fixture.nodes.registration("n2"), Registration::NoDriver);
    assert_eq!(fixture.nodes.registration("n3"), Registration::NoCsiNode);
    assert_eq!(fixture.kept("n2"), None);
}

#[test]
fn objects_deleted_between_two_lists_are_reported() {
    let fixture = Fixture::with(
        vec![csi_node("n1", Some(&["zone"])), csi_node("n2", Some(&["zone"]))],
        vec![node("n1", &[("zone", "a")]), node("n2", &[("zone", "b")])],
    );
    fixture.relist(vec![node("n1", &[("zone", "a")])]);
    let csi_nodes = vec![csi_node("n1", Some(&["zone"]))];
    InformerEvent::list(csi_nodes).for_each(|event| fixture.csi(event));
    assert_eq!(fixture.take_changes(), ["node n2", "csi n2"]);
    assert_eq!(fixture.kept("n2"), None);
    assert_eq!(fixture.nodes.registration("n2"), Registration::NoCsiNode);
}

#[test]
fn the_most_common_keys_win_and_among_equals_the_first() {
    let usual = |all: &[&[&str]]| {
        let csi_nodes =
            all.iter().enumerate().map(|(n, keys)| csi_node(&n.to_string(), Some(keys)));
        Fixture::with(csi_nodes.collect(), vec![]).nodes.most_common_keys()
    };
    assert_eq!(usual(&[&["b"], &["a"], &["b"], &[], &[], &[]]), Some(keys(&["b"])));
    assert_eq!(usual(&[&["b"], &["a", "c"], &["a"]]), Some(keys(&["a"])));
    assert_eq!(usual(&[&[], &[]]), None);
}

/// An event in the cluster.
#[derive(Debug, Clone)]
enum Step {
    Label(u8, Option<u8>, Option<u8>),
    NoNode(u8),
    Register(u8, Option<Vec<u8>>),
    NoCsiNode(u8),
    /// Nodes are listed again if there are new keys.
    Relist,
}

const LABELS: [&str; 3] = ["k0", "k1", "k2"];

fn step() -> impl Strategy<Value = Step> {
    let key_list = proptest::option::of(proptest::sample::subsequence(vec![0_u8, 1, 2], 0..3));
    prop_oneof![
        (0..3_u8, proptest::option::of(0..2_u8), proptest::option::of(0..2_u8))
            .prop_map(|(node, k0, k1)| Step::Label(node, k0, k1)),
        (0..3_u8).prop_map(Step::NoNode),
        (0..3_u8, key_list).prop_map(|(node, keys)| Step::Register(node, keys)),
        (0..3_u8).prop_map(Step::NoCsiNode),
        Just(Step::Relist),
    ]
}

/// The value of a label of a node.
fn label(labels: [Option<u8>; 2], key: &str) -> Option<String> {
    let mut values = LABELS.iter().zip(labels);
    values
        .find(|(name, _)| **name == key)
        .and_then(|(_, value)| value.map(|value| value.to_string()))
}

fn registration(keys: Option<&Vec<u8>>) -> Registration {
    keys.map_or(Registration::NoDriver, |keys| {
        Registration::Driver(keys.iter().map(|key| LABELS[usize::from(*key)]).collect())
    })
}

proptest! {
    /// Whatever happens, registrations are as in the cluster, and every label that is kept is current; once
    /// nodes were listed for all keys, those that registered keys name are kept.
    #[test]
    fn keys_and_labels_are_always_consistent(steps in vec(step(), 0..40)) {
        let fixture = Fixture::with(vec![], vec![]);
        let mut csi_nodes = BTreeMap::<u8, Option<Vec<u8>>>::new();
        let mut labelled = BTreeMap::<u8, [Option<u8>; 2]>::new();
        let object = |name: u8, labels: &[Option<u8>; 2]| {
            let values = labels.map(|value| value.map(|value| value.to_string()));
            let labels: Vec<_> = LABELS.iter().copied().zip(&values).filter_map(|(k, v)| Some((k, v.as_deref()?))).collect();
            node(&name.to_string(), &labels)
        };
        for step in steps.into_iter().chain([Step::Relist]) {
            match step {
                Step::Label(name, k0, k1) => {
                    labelled.insert(name, [k0, k1]);
                    fixture.node(InformerEvent::Apply(object(name, &[k0, k1])));
                }
                Step::NoNode(name) => {
                    labelled.remove(&name);
                    fixture.node(InformerEvent::Delete(node(&name.to_string(), &[])));
                }
                Step::Register(name, keys) => {
                    let names: Option<Vec<&str>> = keys.as_ref().map(|keys| keys.iter().map(|key| LABELS[usize::from(*key)]).collect());
                    fixture.csi(InformerEvent::Apply(csi_node(&name.to_string(), names.as_deref())));
                    csi_nodes.insert(name, keys);
                }
                Step::NoCsiNode(name) => {
                    csi_nodes.remove(&name);
                    fixture.csi(InformerEvent::Delete(csi_node(&name.to_string(), None)));
                }
                Step::Relist if fixture.needs_relist() => fixture.relist(labelled.iter().map(|(name, labels)| object(*name, labels)).collect()),
                Step::Relist => {}
            }
            for name in 0..3_u8 {
                let truth = csi_nodes.get(&name).map_or(Registration::NoCsiNode, |keys| registration(keys.as_ref()));
                prop_assert_eq!(fixture.nodes.registration(&name.to_string()), truth);
                let kept = fixture.nodes.labels(&name.to_string());
                prop_assert_eq!(kept.is_some(), labelled.contains_key(&name));
                for (key, value) in kept.iter().flat_map(Labels::iter) {
                    prop_assert_eq!(Some(value.to_owned()), label(labelled[&name], key));
                }
            }
        }
        prop_assert!(!fixture.needs_relist());
        let registered: Vec<&u8> = csi_nodes.values().flatten().flatten().collect();
        for (name, labels) in &labelled {
            let kept = fixture.nodes.labels(&name.to_string()).unwrap();
            for key in registered.iter().map(|key| LABELS[usize::from(**key)]) {
                prop_assert_eq!(kept.get(key).map(str::to_owned), label(*labels, key));
            }
        }
        // Nothing is kept of deleted objects.
        for name in 0..3_u8 {
            fixture.csi(InformerEvent::Delete(csi_node(&name.to_string(), None)));
            fixture.node(InformerEvent::Delete(node(&name.to_string(), &[])));
        }
        prop_assert!(fixture.nodes.places(&keys(&[])).is_empty() && fixture.nodes.most_common_keys().is_none());
    }
}

/// What comes of a list page by page is not taken for all of it.
#[test]
fn places_of_new_keys_wait_until_all_nodes_are_listed_for_them() {
    let labels = [("zone", "a"), ("rack", "r1")];
    let all: Vec<Node> = ["n1", "n2", "n3"].map(|name| node(name, &labels)).into();
    let fixture = Fixture::with(vec![csi_node("n1", Some(&["zone"]))], all.clone());
    let (zone, both) = (keys(&["zone"]), keys(&["zone", "rack"]));
    fixture.csi(InformerEvent::Apply(csi_node("n1", Some(&["zone", "rack"]))));
    fixture.nodes.begin_list();
    let mut pages = InformerEvent::list(all);
    fixture.node(pages.next().unwrap());
    assert!(fixture.nodes.places(&both).is_empty());
    assert!(!fixture.nodes.places(&zone).is_empty(), "those listed before count on");
    pages.for_each(|event| fixture.node(event));
    assert!(!fixture.nodes.places(&both).is_empty());
}

#[test]
fn a_node_keeps_its_place_until_its_new_key_is_listed() {
    let all = vec![node("n1", &[("zone", "a"), ("rack", "r1")])];
    let fixture = Fixture::with(vec![csi_node("n1", Some(&["zone"]))], all.clone());
    let place = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        BTreeSet::from([labels.collect::<BTreeMap<_, _>>()])
    };
    fixture.csi(InformerEvent::Apply(csi_node("n1", Some(&["zone", "rack"]))));
    assert_eq!(fixture.nodes.driver_places(), place(&[("zone", "a")]));
    fixture.csi(InformerEvent::Apply(csi_node("n1", Some(&["rack"]))));
    assert_eq!(fixture.nodes.driver_places(), BTreeSet::new(), "no key of it is listed");
    fixture.csi(InformerEvent::Apply(csi_node("n1", Some(&["zone", "rack"]))));
    fixture.relist(all);
    assert_eq!(fixture.nodes.driver_places(), place(&[("zone", "a"), ("rack", "r1")]));
    fixture.csi(InformerEvent::Apply(csi_node("n1", Some(&[]))));
    assert_eq!(fixture.nodes.driver_places(), place(&[]), "without topology");
}

/// A kubelet may write as much into its CSINode and its Node as the API server takes.
#[test]
fn keys_and_labels_of_a_node_are_bounded_and_cost_no_time() {
    let names: Vec<String> =
        (0..100_000).map(|number| format!("example.com/key-{number:06}")).collect();
    let many: Vec<&str> = names.iter().map(String::as_str).collect();
    let labels: Vec<(&str, &str)> = many[..60_000].iter().map(|key| (*key, "x")).collect();
    let others: Vec<CsiNode> =
        (0..20).map(|n| csi_node(&format!("n{n}"), Some(&many[n * 64..(n + 1) * 64]))).collect();
    let fixture = Fixture::with(others, vec![]);
    let (large_csi_node, large_node) = (csi_node("large", Some(&many)), node("large", &labels));
    let start = tokio::time::Instant::now();
    fixture.csi(InformerEvent::Apply(large_csi_node));
    fixture.relist(vec![large_node.clone()]);
    fixture.node(InformerEvent::Apply(large_node));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let Registration::Driver(kept) = fixture.nodes.registration("large") else { panic!() };
    assert_eq!(kept, keys(&many[..256]));
    assert_eq!(fixture.nodes.labels("large").unwrap().iter().count(), 1024);
}

/// Some drivers register all labels of a node as its keys.
#[test]
fn all_keys_of_nodes_that_have_many_different_ones_count() {
    let names: Vec<String> = (0..300).map(|number| format!("key-{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let of = |number: usize| if number < 3 { &names[..200] } else { &names[100..] };
    let csi_nodes = (0..4).map(|number| csi_node(&format!("n{number}"), Some(of(number))));
    let labels = |number| of(number).iter().map(|key| (*key, "x")).collect::<Vec<_>>();
    let nodes = (0..4).map(|number| node(&format!("n{number}"), &labels(number)));
    let fixture = Fixture::with(csi_nodes.collect(), nodes.collect());
    assert_eq!(fixture.nodes.places(&keys(of(3)))[0].len(), 200);
}

#[test]
fn the_keys_of_a_few_nodes_hide_no_labels_of_others() {
    let odd: Vec<String> = (0..1100).map(|number| format!("a{number:04}")).collect();
    let odd: Vec<&str> = odd.iter().map(String::as_str).collect();
    let labels = || odd.iter().map(|key| (*key, "x")).chain([("zone", "z")]);
    let csi_nodes = ["n1", "n2"].map(|name| csi_node(name, Some(&["zone"])));
    let odd_nodes = odd.chunks(220).enumerate();
    let odd_nodes = odd_nodes.map(|(number, keys)| csi_node(&format!("odd-{number}"), Some(keys)));
    let csi_nodes = csi_nodes.into_iter().chain(odd_nodes).collect();
    let nodes = ["n1", "n2"].map(|name| node(name, &labels().collect::<Vec<_>>()));
    let fixture = Fixture::with(csi_nodes, nodes.into());
    let zone = BTreeMap::from([("zone".to_owned(), "z".to_owned())]);
    assert_eq!(fixture.nodes.places(&keys(&["zone"])), [zone]);
    assert_eq!(fixture.nodes.labels("n1").unwrap().iter().count(), 1024);
    assert!(!fixture.needs_relist());
    for number in 0..5 {
        fixture.csi(InformerEvent::Delete(csi_node(&format!("odd-{number}"), None)));
    }
    assert!(fixture.needs_relist(), "there is room for what was left out");
}
