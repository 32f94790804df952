//! Nodes as tests of other rooms need them.

use serde_json::{Value, json};

use super::Nodes;
use crate::kube::{
    EventHandler as _, InformerEvent,
    objects::{CsiNode, Node},
};

/// A node: its name, the driver's keys there (none: it is not registered), and its labels (none:
/// there is a CSINode and no Node).
pub(crate) type Known<'a> = (&'a str, Option<&'a [&'a str]>, Option<&'a [(&'a str, &'a str)]>);

/// These nodes, with a CSINode each, as `driver` sees them.
pub(crate) fn nodes(driver: &str, known: &[Known<'_>]) -> Nodes {
    let nodes = Nodes::of(driver);
    let csi_nodes = known.iter().map(|(name, keys, _)| {
        let drivers: Vec<Value> =
            keys.iter().map(|keys| json!({"name": driver, "topologyKeys": keys})).collect();
        json!({"metadata": {"name": name}, "spec": {"drivers": drivers}})
    });
    let mut observer = nodes.csi_node_observer(|_| {});
    for csi_node in csi_nodes {
        let csi_node: CsiNode = serde_json::from_value(csi_node).unwrap();
        observer.observe(InformerEvent::InitApply(csi_node));
    }
    observer.observe(InformerEvent::InitDone);
    nodes.begin();
    for (name, _, labels) in known {
        if let Some(labels) = labels {
            nodes.see_node(InformerEvent::InitApply(node(name, labels)), &|_| {});
        }
    }
    nodes.see_node(InformerEvent::InitDone, &|_| {});
    nodes
}

/// A Node with these labels.
pub(crate) fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let labels: Value =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
}
