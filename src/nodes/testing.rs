//! Nodes for tests of other modules.

use serde_json::{Value, json};

use super::Nodes;
use crate::kube::objects::Node;

/// A node: its name, the driver's keys there (`None`: not registered), and its labels (`None`:
/// there is a CSINode and no Node).
pub(crate) type TestNode<'a> = (&'a str, Option<&'a [&'a str]>, Option<&'a [(&'a str, &'a str)]>);

/// These nodes, with a CSINode each, for `driver`.
pub(crate) fn nodes(driver: &str, known: &[TestNode<'_>]) -> Nodes {
    let csi_nodes = known.iter().map(|(name, keys, _)| {
        let drivers: Vec<Value> =
            keys.iter().map(|keys| json!({"name": driver, "topologyKeys": keys})).collect();
        json!({"metadata": {"name": name, "uid": name}, "spec": {"drivers": drivers}})
    });
    let csi_nodes = csi_nodes.map(|csi_node| serde_json::from_value(csi_node).unwrap()).collect();
    let labelled = known.iter().filter_map(|(name, _, labels)| Some(node(name, (*labels)?)));
    Nodes::listed_once(driver, csi_nodes, labelled.collect())
}

/// A Node with these labels.
pub(crate) fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let labels: Value =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "uid": name, "labels": labels}}))
        .unwrap()
}
