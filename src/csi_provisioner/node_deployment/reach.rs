//! Which volumes this node's driver can reach: those whose node affinity matches the node.
//!
//! Implements Kubernetes' node selectors (core/v1 `NodeSelector`) over the driver's own topology;
//! Node objects are not read. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity,
};

/// The only field of nodes that selectors support.
const NODE_NAME: &str = "metadata.name";

/// Why an operand cannot be compared, in Kubernetes' words.
const NO_INTEGER: &str = "for 'Gt', 'Lt' operators, the value must be an integer";

/// A node as its driver and its name describe it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodePlace<'a> {
    pub(super) node: &'a str,
    /// `None`: the driver returns no topology, so that all volumes are in reach.
    pub(super) topology: Option<&'a BTreeMap<String, String>>,
}

impl NodePlace<'_> {
    /// Whether a volume with this affinity is in reach; a volume without affinity always is.
    ///
    /// # Errors
    /// No term matches, and one can't be evaluated.
    pub(super) fn meets(self, affinity: Option<&VolumeNodeAffinity>) -> Result<bool, String> {
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        match (self.topology, required) {
            (Some(topology), Some(required)) => self.meets_any(topology, required),
            _ => Ok(true),
        }
    }

    /// Terms are alternatives; an empty one matches nothing.
    fn meets_any(
        self,
        topology: &BTreeMap<String, String>,
        selector: &NodeSelector,
    ) -> Result<bool, String> {
        let mut unclear = None;
        for (index, term) in selector.node_selector_terms.iter().enumerate() {
            match self.meets_all(topology, term, &format!("nodeSelectorTerms[{index}]")) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => unclear = unclear.or(Some(error)),
            }
        }
        unclear.map_or(Ok(false), Err)
    }

    /// All requirements of a term must match. external-provisioner ignores requirements on the
    /// node's name, and so deletes one node's volume on all of them.
    fn meets_all(
        self,
        topology: &BTreeMap<String, String>,
        term: &NodeSelectorTerm,
        path: &str,
    ) -> Result<bool, String> {
        let labels = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let mut all = !(labels.is_empty() && fields.is_empty());
        for (index, label) in labels.iter().enumerate() {
            let value = topology.get(&label.key).map(String::as_str);
            all &= meets(value, label, &format!("{path}.matchExpressions[{index}]"))?;
        }
        for (index, field) in fields.iter().enumerate() {
            let value = (field.key == NODE_NAME).then_some(self.node);
            all &= meets(value, field, &format!("{path}.matchFields[{index}]"))?;
        }
        Ok(all)
    }
}

/// Whether a node's value, if it has one, matches the requirement.
fn meets(
    value: Option<&str>,
    requirement: &NodeSelectorRequirement,
    path: &str,
) -> Result<bool, String> {
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let is_wanted = || value.is_some_and(|value| wanted.iter().any(|wanted| wanted == value));
    let number = || value.and_then(|value| value.parse::<i64>().ok());
    Ok(match requirement.operator.as_str() {
        "In" => is_wanted(),
        "NotIn" => !is_wanted(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator @ ("Gt" | "Lt") => {
            let bound = bound(wanted, path)?;
            number().is_some_and(|it| if operator == "Gt" { it > bound } else { it < bound })
        }
        // The API server accepts no others.
        _ => false,
    })
}

/// The operand of `Gt` and `Lt`, which the API server does not validate.
fn bound(wanted: &[String], path: &str) -> Result<i64, String> {
    let value = wanted.first().map(String::as_str).unwrap_or_default();
    value.parse().map_err(|_| {
        let path = format!("{path}.values[0]");
        format!("{path}: Invalid value: {value:?}: {NO_INTEGER}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn topology() -> BTreeMap<String, String> {
        [("zone", "z1"), ("rack", "7"), ("odd", "x")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    fn meets_terms(terms: &Value) -> Result<bool, String> {
        let affinity = json!({"required": {"nodeSelectorTerms": terms}});
        let affinity: VolumeNodeAffinity = serde_json::from_value(affinity).unwrap();
        let topology = topology();
        let node_place = NodePlace { node: "n1", topology: Some(&topology) };
        node_place.meets(Some(&affinity))
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn operators_are_those_of_node_selectors() {
        for (key, operator, values, expected) in [
            ("zone", "In", vec!["z1"], true),
            ("zone", "In", vec!["z0", "z1"], true),
            ("zone", "In", vec!["z2"], false),
            ("none", "In", vec![""], false),
            ("zone", "NotIn", vec!["z2"], true),
            ("zone", "NotIn", vec!["z1", "z2"], false),
            ("none", "NotIn", vec!["z1"], true),
            ("zone", "Exists", vec![], true),
            ("none", "Exists", vec![], false),
            ("zone", "DoesNotExist", vec![], false),
            ("none", "DoesNotExist", vec![], true),
            ("rack", "Gt", vec!["6"], true),
            ("rack", "Gt", vec!["7"], false),
            ("rack", "Lt", vec!["8"], true),
            ("rack", "Lt", vec!["7"], false),
            ("odd", "Gt", vec!["1"], false),
            ("none", "Lt", vec!["1"], false),
            ("zone", "Like", vec!["z1"], false),
        ] {
            let met = meets_terms(&json!([expression(key, operator, &values)]));
            assert_eq!(met, Ok(expected), "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_their_requirements_are_not() {
        let (ours, other) = (expression("zone", "In", &["z1"]), expression("zone", "In", &["z2"]));
        let both = json!({"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["z1"]},
            {"key": "rack", "operator": "In", "values": ["8"]},
        ]});
        let named = |operator: &str, node: &str| json!({"matchFields": [{"key": NODE_NAME, "operator": operator, "values": [node]}]});
        for (terms, expected) in [
            (json!([other, ours]), true),
            (json!([other]), false),
            (json!([both]), false),
            // An empty term matches nothing.
            (json!([{}]), false),
            (json!([]), false),
            (json!([named("In", "n1")]), true),
            (json!([named("In", "n2")]), false),
            (json!([named("NotIn", "n1")]), false),
        ] {
            assert_eq!(meets_terms(&terms), Ok(expected), "{terms}");
        }
    }

    #[test]
    fn an_unclear_requirement_is_an_error_unless_another_term_matches() {
        let odd = expression("rack", "Gt", &["seven"]);
        let ours = expression("zone", "In", &["z1"]);
        assert_eq!(meets_terms(&json!([odd, ours])), Ok(true));
        let text = meets_terms(&json!([expression("zone", "In", &["z2"]), odd])).unwrap_err();
        assert_eq!(
            text,
            "nodeSelectorTerms[1].matchExpressions[0].values[0]: Invalid value: \"seven\": for 'Gt', 'Lt' operators, the value must be an integer"
        );
    }

    #[test]
    fn without_affinity_or_topology_every_volume_is_in_reach() {
        let topology = topology();
        let here = NodePlace { node: "n1", topology: Some(&topology) };
        let nowhere = NodePlace { node: "n1", topology: None };
        let affinity =
            json!({"required": {"nodeSelectorTerms": [expression("zone", "In", &["z2"])]}});
        let affinity: VolumeNodeAffinity = serde_json::from_value(affinity).unwrap();
        assert_eq!(here.meets(None), Ok(true));
        assert_eq!(here.meets(Some(&VolumeNodeAffinity::default())), Ok(true));
        assert_eq!(nowhere.meets(Some(&affinity)), Ok(true));
        let keyless = BTreeMap::new();
        let empty = NodePlace { node: "n1", topology: Some(&keyless) };
        assert_eq!(empty.meets(Some(&affinity)), Ok(false));
    }
}
