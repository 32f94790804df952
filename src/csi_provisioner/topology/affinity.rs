//! Converts a volume's accessible topology to the PersistentVolume's node affinity. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity,
};

use crate::csi::proto::Volume;

/// The nodes from which `volume` is accessible; `None` if the driver does not restrict them.
///
/// Topologies without segments make a selector without terms, which the API server refuses with an
/// error that the user sees.
pub(in crate::csi_provisioner) fn affinity(volume: &Volume) -> Option<VolumeNodeAffinity> {
    let places = &volume.accessible_topology;
    if places.is_empty() {
        return None;
    }
    let somewhere = places.iter().filter(|place| !place.segments.is_empty());
    let node_selector_terms = somewhere.map(|place| term(&place.segments)).collect();
    Some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms }) })
}

fn term(segments: &BTreeMap<String, String>) -> NodeSelectorTerm {
    let requirement = |(key, value): (&String, &String)| NodeSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    };
    let match_expressions = Some(segments.iter().map(requirement).collect());
    NodeSelectorTerm { match_expressions, match_fields: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::csi::proto::Topology;

    fn of(places: &[&[(&str, &str)]]) -> Value {
        let place = |segments: &&[(&str, &str)]| Topology {
            segments: segments.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        let accessible_topology = places.iter().map(place).collect();
        json!(affinity(&Volume { accessible_topology, ..Volume::default() }))
    }

    #[test]
    fn each_topology_is_a_term_with_all_its_segments() {
        let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        assert_eq!(
            of(&[&[("zone", "a"), ("rack", "7")], &[], &[("zone", "b")]]),
            json!({"required": {"nodeSelectorTerms": [
                {"matchExpressions": [is("rack", "7"), is("zone", "a")]},
                {"matchExpressions": [is("zone", "b")]},
            ]}})
        );
    }

    #[test]
    fn no_topology_is_no_affinity_and_empty_topology_matches_nothing() {
        assert_eq!(of(&[]), Value::Null);
        assert_eq!(of(&[&[]]), json!({"required": {"nodeSelectorTerms": []}}));
    }
}
