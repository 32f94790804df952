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
