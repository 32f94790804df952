//! Segments: the parts of a cluster for which a driver reports capacity separately.
//!
//! Two segments are equal if their labels are; the order of topology keys does not matter.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm};

use crate::nodes::Nodes;

/// The nodes that have these labels; without labels, all nodes. Clones share the labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(Arc<BTreeMap<String, String>>);

/// What one object is published for: a class in a segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pair {
    /// The StorageClass's name.
    pub(super) class: Arc<str>,
    /// The segment.
    pub(super) segment: Segment,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class, self.segment)
    }
}

impl Segment {
    /// The labels by key.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The segments of all nodes on which the driver is registered. A node that lacks a label
    /// counts once it has it.
    pub fn of_nodes(nodes: &Nodes) -> BTreeSet<Self> {
        nodes.driver_places().into_iter().map(|place| Self(Arc::new(place))).collect()
    }

    /// The segments that a volume's node affinity names. A term in another form than this program
    /// writes names none.
    pub fn of_affinity(affinity: &NodeSelector) -> impl Iterator<Item = Self> {
        affinity.node_selector_terms.iter().filter_map(Self::of_term)
    }

    /// The segment of a term that gives each key exactly one value.
    fn of_term(term: &NodeSelectorTerm) -> Option<Self> {
        if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
            return None;
        }
        let mut labels = BTreeMap::new();
        for wanted in term.match_expressions.iter().flatten() {
            let [value] = wanted.values.as_deref()? else { return None };
            let repeated = labels.insert(wanted.key.clone(), value.clone()).is_some();
            if wanted.operator != "In" || repeated {
                return None;
            }
        }
        Some(Self(Arc::new(labels)))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Segment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let labels = labels.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self(Arc::new(labels.collect()))
    }
}

/// `zone=a,rack=1`; `everywhere` for all nodes.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("everywhere");
        }
        for (number, (key, value)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::nodes::testing::nodes;

    fn segment(labels: &[(&str, &str)]) -> Segment {
        labels.iter().copied().collect()
    }

    #[test]
    fn a_node_with_all_labels_gives_a_segment_and_a_driver_without_keys_all_nodes() {
        let of = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
            Segment::of_nodes(&Nodes::fixed("d", "n", &labels.collect()))
        };
        let both = [("zone", "z"), ("rack", "r")];
        assert_eq!(of(&both), BTreeSet::from([segment(&both)]));
        assert_eq!(of(&[]), BTreeSet::from([Segment::default()]));
        assert_eq!(Segment::of_nodes(&Nodes::for_driver("d")), BTreeSet::new());
        let lacking = nodes("d", &[("n", Some(&["zone", "rack"]), Some(&[("zone", "z")]))]);
        assert_eq!(Segment::of_nodes(&lacking), BTreeSet::new());
    }

    #[test]
    fn an_affinity_names_the_segments_that_give_each_key_one_value() {
        let is = |key: &str, values: Value| json!({"key": key, "operator": "In", "values": values});
        let term = |expressions: Value| json!({"matchExpressions": expressions});
        let terms = json!({"nodeSelectorTerms": [
            term(json!([is("zone", json!(["z"])), is("rack", json!(["r"]))])),
            term(json!([is("zone", json!(["z", "y"]))])),
            term(json!([is("zone", json!([]))])),
            term(json!([{"key": "zone", "operator": "NotIn", "values": ["z"]}])),
            term(json!([{"key": "zone", "operator": "Exists"}])),
            term(json!([is("zone", json!(["z"])), is("zone", json!(["z"]))])),
            {"matchExpressions": [is("zone", json!(["z"]))], "matchFields": [is("metadata.name", json!(["n"]))]},
            {"matchExpressions": [is("zone", json!(["y"]))], "matchFields": []},
            {},
        ]});
        let affinity: NodeSelector = serde_json::from_value(terms).unwrap();
        let named: Vec<Segment> = Segment::of_affinity(&affinity).collect();
        let expected =
            [segment(&[("rack", "r"), ("zone", "z")]), segment(&[("zone", "y")]), segment(&[])];
        assert_eq!(named, expected);
    }
}
