//! From a claim, its class and the nodes to where the volume is asked to be.
//!
//! Owns the original's algorithm and its texts (reference 5.3). A pure function of what is asked
//! and of the nodes as they are known.

use crate::{
    controller::model::topology::{Requirement, Segments},
    go_fmt::quote,
    kube::objects::TopologySelectorTerm,
    nodes::{Keys, Labels, Nodes, Registration},
};

use super::{spreading, terms};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    /// The claim's name.
    pub(super) claim: &'a str,
    /// Where the class allows volumes to be.
    pub(super) allowed: &'a [TopologySelectorTerm],
    /// The node that the scheduler chose.
    pub(super) node: Option<&'a str>,
    /// All labels of that node, where they were read live; else what is known of it counts.
    pub(super) live: Option<&'a Segments>,
    /// `--strict-topology`.
    pub(super) strict: bool,
    /// `--immediate-topology`.
    pub(super) immediate: bool,
}

/// Why it can't be said where the volume is to be.
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
    /// The class does not allow the selected node's place.
    #[error(
        "selected node '{}' topology '{}' is not in allowed topologies: {}",
        quote(.node), terms::show(.place), terms::show_all(.allowed)
    )]
    NotAllowed { node: String, place: Segments, allowed: Vec<Segments> },
    /// The selected node is in none of the places that volumes may be in.
    #[error(
        "topology {} from selected node {} is not in requisite: {}",
        terms::show(.place), quote(.node), terms::show_all(.requisite)
    )]
    NotRequisite { node: String, place: Segments, requisite: Vec<Segments> },
    /// The driver has keys on no node.
    #[error("no available topology found")]
    NoKeysAnywhere,
    /// No node has all the labels.
    #[error("topologyKeys {keys} were not found on any nodes")]
    NoLabelsAnywhere { keys: Keys },
}

/// The node that the scheduler chose.
struct Selected<'a> {
    name: &'a str,
    keys: Keys,
    place: Segments,
}

/// Where the volume is asked to be; none where the driver is to be told nothing.
pub(super) fn decide(ask: &Ask<'_>, nodes: &Nodes) -> Result<Option<Requirement>, Refusal> {
    let selected = ask.node.map(|node| select(node, ask.live, nodes)).transpose()?;
    let mut requisite = requisite(ask, selected.as_ref(), nodes)?;
    if requisite.is_empty() {
        return Ok(None);
    }
    requisite.sort_by(terms::order);
    requisite.dedup();
    let first = match &selected {
        None => spreading::preferred(ask.claim, requisite.len()),
        Some(_) if ask.strict => 0,
        Some(selected) => selected.first_of(&requisite)?,
    };
    Ok(Requirement::new(requisite, first))
}

/// Whether the class allows volumes to be in `place`.
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
    let place = terms::of_labels(&keys, |key| labels.get(key).map(String::as_str));
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

/// The places that volumes may be in, in no particular order; none where the driver is to be told
/// nothing.
fn requisite(
    ask: &Ask<'_>,
    selected: Option<&Selected<'_>>,
    nodes: &Nodes,
) -> Result<Vec<Segments>, Refusal> {
    if let Some(selected) = selected.filter(|_| ask.strict) {
        selected.check_allowed(ask.allowed)?;
        return Ok(vec![selected.place.clone()]);
    }
    if !ask.allowed.is_empty() {
        return Ok(terms::allowed(ask.allowed));
    }
    let keys = match selected {
        Some(selected) => selected.keys.clone(),
        None if !ask.immediate => return Ok(Vec::new()),
        None => nodes.usual_keys().ok_or(Refusal::NoKeysAnywhere)?,
    };
    let places = terms::of_nodes(&keys, &nodes.distinct_labels());
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

    /// The index of the first place that the node is in.
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
