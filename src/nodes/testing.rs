//! Nodes for tests of other modules.

use serde_json::{Value, json};

use super::Nodes;
use crate::kube::{
    EventHandler as _, InformerEvent,
    objects::{CsiNode, Node},
};

/// A node: its name, the driver's keys there (`None`: not registered), and its labels (`None`:
/// there is a CSINode and no Node).
pub(crate) type TestNode<'a> = (&'a str, Option<&'a [&'a str]>, Option<&'a [(&'a str, &'a str)]>);

/// These nodes, with a CSINode each, for `driver`.
pub(crate) fn nodes(driver: &str, known: &[TestNode<'_>]) -> Nodes {
    let nodes = Nodes::for_driver(driver);
    let csi_nodes = known.iter().map(|(name, keys, _)| {
        let drivers: Vec<Value> =
            keys.iter().map(|keys| json!({"name": driver, "topologyKeys": keys})).collect();
        json!({"metadata": {"name": name}, "spec": {"drivers": drivers}})
    });
    let mut handler = nodes.csi_node_handler(|_| {});
    for csi_node in csi_nodes {
        let csi_node: CsiNode = serde_json::from_value(csi_node).unwrap();
        handler.on_event(InformerEvent::InitApply(csi_node));
    }
    handler.on_event(InformerEvent::InitDone);
    nodes.begin_list();
    for (name, _, labels) in known {
        if let Some(labels) = labels {
            nodes.on_node_event(InformerEvent::InitApply(node(name, labels)), &|_| {});
        }
    }
    nodes.on_node_event(InformerEvent::InitDone, &|_| {});
    nodes
}

/// A Node with these labels.
pub(crate) fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let labels: Value =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
}
