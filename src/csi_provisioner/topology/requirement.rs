//! Computes the topology requirement from a claim, its class and the nodes.
//!
//! external-provisioner's algorithm and its texts, as a pure function.

use go_fmt::quote;
use k8s_openapi::api::core::v1::TopologySelectorTerm;

use crate::{
    controller::model::topology::{Requirement, Segments},
    nodes::{Keys, Labels, Nodes, Registration},
};

use super::{spreading, terms};

/// The input of the algorithm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constraints<'a> {
    /// The claim's name.
    pub(super) claim: &'a str,
    /// The class's allowed topologies.
    pub(super) allowed: &'a [TopologySelectorTerm],
    /// The node that the scheduler selected.
    pub(super) node: Option<&'a str>,
    /// All labels of that node, if they were read live; otherwise those of the watch count.
    pub(super) live: Option<&'a Segments>,
    /// `--strict-topology`.
    pub(super) strict: bool,
    /// `--immediate-topology`.
    pub(super) immediate: bool,
}

/// Why there is no requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The selected node has no CSINode.
    #[error("failed to get selected CSINode {node}: csinode.storage.k8s.io {} not found", quote(.node))]
    NoCsiNode { node: String },
    /// The driver is not on the selected node, or has no keys there.
    #[error("no topology key found for node {node}")]
    NoKeys { node: String },
    /// The selected node lacks labels.
    #[error(
        "topology labels from selected node {} does not match topology keys from CSINode {keys}",
        terms::show_labels(.labels)
    )]
    LabelsMissing { node: String, labels: Segments, keys: Keys },
    /// The class does not allow the selected node's topology.
    #[error(
        "selected node '{}' topology '{}' is not in allowed topologies: {}",
        quote(.node), terms::show(.place), terms::show_all(.allowed)
    )]
    NotAllowed { node: String, place: Segments, allowed: Vec<Segments> },
    /// The selected node is in none of the requisite topologies.
    #[error(
        "topology {} from selected node {} is not in requisite: {}",
        terms::show(.place), quote(.node), terms::show_all(.requisite)
    )]
    NotRequisite { node: String, place: Segments, requisite: Vec<Segments> },
    /// The driver has no keys on any node.
    #[error("no available topology found")]
    NoKeysAnywhere,
    /// No node has all the labels.
    #[error("topologyKeys {keys} were not found on any nodes")]
    NoLabelsAnywhere { keys: Keys },
}

/// The selected node.
struct Selected<'a> {
    name: &'a str,
    keys: Keys,
    place: Segments,
}

/// Computes the requirement; `None` if the driver gets none.
pub(super) fn decide(
    constraints: &Constraints<'_>,
    nodes: &Nodes,
) -> Result<Option<Requirement>, Refusal> {
    let selected =
        constraints.node.map(|node| select(node, constraints.live, nodes)).transpose()?;
    let mut requisite = requisite(constraints, selected.as_ref(), nodes)?;
    if requisite.is_empty() {
        return Ok(None);
    }
    requisite.sort_by(terms::order);
    requisite.dedup();
    let first = match &selected {
        None => spreading::preferred(constraints.claim, requisite.len()),
        Some(_) if constraints.strict => 0,
        Some(selected) => selected.first_of(&requisite)?,
    };
    Ok(Requirement::new(requisite, first))
}

/// Whether the class allows volumes in `place`.
fn is_allowed(allowed: &[TopologySelectorTerm], place: &Segments) -> bool {
    allowed.is_empty() || terms::allowed(allowed).iter().any(|term| terms::is_subset(term, place))
}

fn select<'a>(
    name: &'a str,
    live: Option<&Segments>,
    nodes: &Nodes,
) -> Result<Selected<'a>, Refusal> {
    let node = || name.to_owned();
    let keys = match nodes.registration(name) {
        Registration::NoCsiNode => return Err(Refusal::NoCsiNode { node: node() }),
        Registration::Driver(keys) if !keys.is_empty() => keys,
        Registration::NoDriver | Registration::Driver(_) => {
            return Err(Refusal::NoKeys { node: node() });
        }
    };
    let labels = live.cloned().unwrap_or_else(|| known_labels(name, nodes));
    let place = keys.segments(|key| labels.get(key).map(String::as_str));
    match place {
        Some(place) => Ok(Selected { name, keys, place }),
        None => Err(Refusal::LabelsMissing { node: node(), labels, keys }),
    }
}

fn known_labels(node: &str, nodes: &Nodes) -> Segments {
    let labels = nodes.labels(node);
    let pairs = labels.iter().flat_map(Labels::iter);
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The requisite topologies, in no particular order; empty if the driver gets no requirement.
fn requisite(
    constraints: &Constraints<'_>,
    selected: Option<&Selected<'_>>,
    nodes: &Nodes,
) -> Result<Vec<Segments>, Refusal> {
    if let Some(selected) = selected.filter(|_| constraints.strict) {
        selected.check_allowed(constraints.allowed)?;
        return Ok(vec![selected.place.clone()]);
    }
    if !constraints.allowed.is_empty() {
        return Ok(terms::allowed(constraints.allowed));
    }
    let keys = match selected {
        Some(selected) => selected.keys.clone(),
        None if !constraints.immediate => return Ok(Vec::new()),
        None => nodes.most_common_keys().ok_or(Refusal::NoKeysAnywhere)?,
    };
    let places = nodes.places(&keys);
    if places.is_empty() { Err(Refusal::NoLabelsAnywhere { keys }) } else { Ok(places) }
}

impl Selected<'_> {
    fn check_allowed(&self, allowed: &[TopologySelectorTerm]) -> Result<(), Refusal> {
        if is_allowed(allowed, &self.place) {
            return Ok(());
        }
        Err(Refusal::NotAllowed {
            node: self.name.to_owned(),
            place: self.place.clone(),
            allowed: terms::allowed(allowed),
        })
    }

    /// The index of the first topology that contains the node.
    fn first_of(&self, requisite: &[Segments]) -> Result<usize, Refusal> {
        let first = requisite.iter().position(|term| terms::is_subset(term, &self.place));
        first.ok_or_else(|| Refusal::NotRequisite {
            node: self.name.to_owned(),
            place: self.place.clone(),
            requisite: requisite.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests;
