use proptest::{collection::vec, prelude::*};
use serde_json::json;
use tokio::time::{Duration, timeout};

use super::{testing::node, *};

const DRIVER: &str = "disk.example.com";

fn csi_node(name: &str, keys: Option<&[&str]>) -> CsiNode {
    let ours = keys.map(|keys| json!({"name": DRIVER, "topologyKeys": keys}));
    let drivers: Vec<_> =
        [json!({"name": "other", "topologyKeys": ["elsewhere"]})].into_iter().chain(ours).collect();
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"drivers": drivers}}))
        .unwrap()
}

fn keys(keys: &[&str]) -> Keys {
    keys.iter().copied().collect()
}

/// Nodes fed by hand, with what they told.
struct Fed {
    nodes: Nodes,
    told: Mutex<Vec<String>>,
}

impl Fed {
    /// After a first list of these.
    fn with(csi_nodes: Vec<CsiNode>, nodes: Vec<Node>) -> Self {
        let fed = Self { nodes: Nodes::of(DRIVER), told: Mutex::default() };
        for node in csi_nodes {
            fed.csi(InformerEvent::InitApply(node));
        }
        fed.csi(InformerEvent::InitDone);
        fed.relist(nodes);
        fed.told();
        fed
    }

    fn tell(&self, news: News<'_>) {
        self.told.lock().push(match news {
            News::CsiNode(name) => format!("csi {name}"),
            News::Node(name) => format!("node {name}"),
        });
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
    }

    fn csi(&self, event: InformerEvent<CsiNode>) {
        self.nodes.see_csi_node(event, &|news| self.tell(news));
    }

    fn node(&self, event: InformerEvent<Node>) {
        self.nodes.see_node(event, &|news| self.tell(news));
    }

    fn relist(&self, nodes: Vec<Node>) {
        self.nodes.begin();
        self.node(InformerEvent::Init);
        for node in nodes {
            self.node(InformerEvent::InitApply(node));
        }
        self.node(InformerEvent::InitDone);
    }

    fn is_outgrown(&self) -> bool {
        self.nodes.0.progress.borrow().outgrown
    }
}

#[test]
fn of_a_node_only_what_the_drivers_keys_name_is_kept() {
    let labels = [("zone", "a"), ("arch", "arm"), ("elsewhere", "x")];
    let fed = Fed::with(
        vec![csi_node("n1", Some(&["zone"])), csi_node("n2", None)],
        vec![node("n1", &labels), node("n3", &[("arch", "arm")])],
    );
    let kept: Vec<Vec<(String, String)>> = fed
        .nodes
        .distinct_labels()
        .iter()
        .map(|labels| labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
        .collect();
    assert_eq!(kept, [vec![], vec![("zone".to_owned(), "a".to_owned())]]);
    assert_eq!(fed.nodes.registration("n1"), Registration::Driver(keys(&["zone"])));
    assert_eq!(fed.nodes.registration("n2"), Registration::NoDriver);
    assert_eq!(fed.nodes.registration("n3"), Registration::NoCsiNode);
    assert!(fed.nodes.labels("n2").is_none() && fed.nodes.labels("n3").is_some());
}

#[test]
fn heartbeats_and_strange_labels_change_nothing_and_wake_nobody() {
    let fed = Fed::with(vec![csi_node("n1", Some(&["zone"]))], vec![node("n1", &[("zone", "a")])]);
    let changes = *fed.nodes.changes().borrow();
    fed.node(InformerEvent::Apply(node("n1", &[("zone", "a"), ("beat", "7")])));
    fed.csi(InformerEvent::Apply(csi_node("n1", Some(&["zone"]))));
    fed.relist(vec![node("n1", &[("zone", "a")])]);
    assert!(fed.told().is_empty());
    assert_eq!(*fed.nodes.changes().borrow(), changes);
    fed.node(InformerEvent::Apply(node("n1", &[("zone", "b")])));
    fed.node(InformerEvent::Delete(node("n1", &[])));
    fed.csi(InformerEvent::Delete(csi_node("n1", None)));
    assert_eq!(fed.told(), ["node n1", "node n1", "csi n1"]);
    assert_eq!(*fed.nodes.changes().borrow(), changes + 3);
}

#[test]
fn what_vanished_between_two_lists_is_told() {
    let fed = Fed::with(
        vec![csi_node("n1", Some(&["zone"])), csi_node("n2", Some(&["zone"]))],
        vec![node("n1", &[("zone", "a")]), node("n2", &[("zone", "b")])],
    );
    fed.relist(vec![node("n1", &[("zone", "a")])]);
    fed.csi(InformerEvent::Init);
    fed.csi(InformerEvent::InitApply(csi_node("n1", Some(&["zone"]))));
    fed.csi(InformerEvent::InitDone);
    assert_eq!(fed.told(), ["node n2", "csi n2"]);
    assert_eq!(fed.nodes.distinct_labels().len(), 1);
    assert_eq!(fed.nodes.registration("n2"), Registration::NoCsiNode);
}

#[test]
fn a_new_key_takes_effect_once_all_nodes_are_listed_for_it() {
    let all = || vec![node("n1", &[("zone", "a"), ("rack", "7")])];
    let fed = Fed::with(vec![csi_node("n1", Some(&["zone"]))], all());
    fed.csi(InformerEvent::Apply(csi_node("n1", Some(&["zone", "rack"]))));
    assert_eq!(fed.nodes.registration("n1"), Registration::Driver(keys(&["zone"])));
    assert!(fed.is_outgrown() && fed.told().is_empty());
    fed.relist(all());
    assert_eq!(fed.nodes.registration("n1"), Registration::Driver(keys(&["zone", "rack"])));
    assert_eq!(fed.nodes.labels("n1").unwrap().get("rack"), Some("7"));
    assert!(!fed.is_outgrown());
    assert_eq!(fed.told(), ["node n1", "csi n1"]);
    // Unregistering needs no labels.
    fed.csi(InformerEvent::Apply(csi_node("n1", None)));
    assert_eq!(fed.nodes.registration("n1"), Registration::NoDriver);
}

#[test]
fn the_usual_keys_are_those_of_most_nodes_and_among_equals_the_first() {
    let usual = |all: &[&[&str]]| {
        let csi_nodes =
            all.iter().enumerate().map(|(n, keys)| csi_node(&n.to_string(), Some(keys)));
        Fed::with(csi_nodes.collect(), vec![]).nodes.usual_keys()
    };
    assert_eq!(usual(&[&["b"], &["a"], &["b"], &[], &[], &[]]), Some(keys(&["b"])));
    assert_eq!(usual(&[&["b"], &["a", "c"], &["a"]]), Some(keys(&["a"])));
    assert_eq!(usual(&[&[], &[]]), None);
}

#[test]
fn nodes_in_one_place_share_what_is_kept() {
    let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    let fed = Fed::with(
        names.iter().map(|name| csi_node(name, Some(&["zone"]))).collect(),
        names.iter().map(|name| node(name, &[("zone", "a")])).collect(),
    );
    let mut seen = 0;
    fed.nodes.registered(|_, keys, labels| {
        seen += 1;
        assert_eq!((keys.to_string(), labels.unwrap().get("zone")), ("[zone]".into(), Some("a")));
    });
    assert_eq!((seen, fed.nodes.distinct_labels().len()), (100, 1));
}

#[test]
fn a_fixed_node_is_listed_and_where_it_is_said_to_be() {
    let segments = [("zone".to_owned(), "a".to_owned()), ("rack".to_owned(), "7".to_owned())];
    let nodes = Nodes::fixed(DRIVER, "n1", &segments.into());
    assert_eq!(nodes.registration("n1"), Registration::Driver(keys(&["rack", "zone"])));
    assert_eq!(nodes.labels("n1").unwrap().get("zone"), Some("a"));
    assert_eq!(nodes.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_before_csi_nodes_and_nodes_are_listed() {
    let nodes = Nodes::of(DRIVER);
    let quiet = |_: News<'_>| {};
    nodes.see_csi_node(InformerEvent::InitDone, &quiet);
    assert!(timeout(Duration::from_secs(1), nodes.listed()).await.is_err());
    nodes.begin();
    nodes.see_node(InformerEvent::InitDone, &quiet);
    nodes.listed().await;
}

/// What happens in the cluster.
#[derive(Debug, Clone)]
enum Deed {
    Label(u8, Option<u8>, Option<u8>),
    NoNode(u8),
    Register(u8, Option<Vec<u8>>),
    NoCsiNode(u8),
    /// Nodes are listed anew if there are new keys.
    Relist,
}

const LABELS: [&str; 3] = ["k0", "k1", "k2"];

fn deed() -> impl Strategy<Value = Deed> {
    let key_list = proptest::option::of(proptest::sample::subsequence(vec![0_u8, 1, 2], 0..3));
    prop_oneof![
        (0..3_u8, proptest::option::of(0..2_u8), proptest::option::of(0..2_u8))
            .prop_map(|(node, k0, k1)| Deed::Label(node, k0, k1)),
        (0..3_u8).prop_map(Deed::NoNode),
        (0..3_u8, key_list).prop_map(|(node, keys)| Deed::Register(node, keys)),
        (0..3_u8).prop_map(Deed::NoCsiNode),
        Just(Deed::Relist),
    ]
}

fn registration(keys: Option<&Vec<u8>>) -> Registration {
    keys.map_or(Registration::NoDriver, |keys| {
        Registration::Driver(keys.iter().map(|key| LABELS[usize::from(*key)]).collect())
    })
}

proptest! {
    /// Whatever happens, what is answered fits together: every label that a registered key names is
    /// known as it is; and once nodes were listed for all keys, everything is as in the cluster.
    #[test]
    fn keys_and_labels_fit_together_at_any_time(deeds in vec(deed(), 0..40)) {
        let fed = Fed::with(vec![], vec![]);
        let mut csi_nodes = BTreeMap::<u8, Option<Vec<u8>>>::new();
        let mut labelled = BTreeMap::<u8, [Option<u8>; 2]>::new();
        let object = |name: u8, labels: &[Option<u8>; 2]| {
            let values = labels.map(|value| value.map(|value| value.to_string()));
            let labels: Vec<_> = LABELS.iter().copied().zip(&values).filter_map(|(k, v)| Some((k, v.as_deref()?))).collect();
            node(&name.to_string(), &labels)
        };
        for deed in deeds.into_iter().chain([Deed::Relist]) {
            match deed {
                Deed::Label(name, k0, k1) => {
                    labelled.insert(name, [k0, k1]);
                    fed.node(InformerEvent::Apply(object(name, &[k0, k1])));
                }
                Deed::NoNode(name) => {
                    labelled.remove(&name);
                    fed.node(InformerEvent::Delete(node(&name.to_string(), &[])));
                }
                Deed::Register(name, keys) => {
                    let names: Option<Vec<&str>> = keys.as_ref().map(|keys| keys.iter().map(|key| LABELS[usize::from(*key)]).collect());
                    fed.csi(InformerEvent::Apply(csi_node(&name.to_string(), names.as_deref())));
                    csi_nodes.insert(name, keys);
                }
                Deed::NoCsiNode(name) => {
                    csi_nodes.remove(&name);
                    fed.csi(InformerEvent::Delete(csi_node(&name.to_string(), None)));
                }
                Deed::Relist if fed.is_outgrown() => fed.relist(labelled.iter().map(|(name, labels)| object(*name, labels)).collect()),
                Deed::Relist => {}
            }
            let mut registered = Vec::new();
            fed.nodes.registered(|_, keys, _| registered.extend(keys.iter().map(str::to_owned)));
            for (name, labels) in &labelled {
                let known = fed.nodes.labels(&name.to_string()).unwrap();
                for (key, value) in LABELS.iter().zip(labels).filter(|(key, _)| registered.iter().any(|known| known == *key)) {
                    prop_assert_eq!(known.get(key).map(str::to_owned), value.map(|value| value.to_string()));
                }
            }
        }
        prop_assert!(!fed.is_outgrown());
        for name in 0..3_u8 {
            let truth = csi_nodes.get(&name).map_or(Registration::NoCsiNode, |keys| registration(keys.as_ref()));
            prop_assert_eq!(fed.nodes.registration(&name.to_string()), truth);
            prop_assert_eq!(fed.nodes.labels(&name.to_string()).is_some(), labelled.contains_key(&name));
        }
        // Nothing is held for what is gone.
        for name in 0..3_u8 {
            fed.csi(InformerEvent::Delete(csi_node(&name.to_string(), None)));
            fed.node(InformerEvent::Delete(node(&name.to_string(), &[])));
        }
        prop_assert!(fed.nodes.distinct_labels().is_empty() && fed.nodes.usual_keys().is_none());
        prop_assert!(!fed.is_outgrown());
    }
}
