//! The known nodes, and the effect of events on them. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::terms::{Keys, Labels, MOST_OF_A_NODE, MOST_OF_ALL};
use crate::kube::{
    InformerEvent,
    informer::hash,
    objects::{CsiNode, Node, View},
    take_vanished,
};

/// A set of label keys.
pub(super) type KeySet = BTreeSet<Arc<str>>;

/// What is kept of each object of a kind, by name, with the [`hash`] of its UID.
type Known<T> = BTreeMap<Box<str>, (u64, T)>;

/// All nodes, by name.
#[derive(Debug)]
pub(super) struct NodeIndex {
    driver: Box<str>,
    /// The driver's keys; `None` where it is not registered.
    csi_nodes: Known<Option<Keys>>,
    nodes: Known<Labels>,
    /// The keys for which nodes are being listed or watched.
    watched_keys: KeySet,
    /// The keys for which all nodes have been listed: others do not count yet.
    listed_keys: KeySet,
    /// There are more keys than are watched.
    is_cut: bool,
    /// The driver has registered a key that is not watched, or there may be room for one.
    needs_relist: bool,
}

/// Whether the driver is on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// There is no CSINode of that name.
    NoCsiNode,
    /// The driver is not registered in the CSINode.
    NoDriver,
    /// The driver is registered with these topology keys, possibly none.
    Driver(Keys),
}

impl NodeIndex {
    pub(super) fn new(driver: &str) -> Self {
        Self {
            driver: driver.into(),
            csi_nodes: Known::default(),
            nodes: Known::default(),
            watched_keys: KeySet::new(),
            listed_keys: KeySet::new(),
            is_cut: false,
            needs_relist: false,
        }
    }

    // === queries ===

    pub(super) fn registration(&self, node: &str) -> Registration {
        match self.csi_nodes.get(node) {
            None => Registration::NoCsiNode,
            Some((_, None)) => Registration::NoDriver,
            Some((_, Some(keys))) => Registration::Driver(keys.clone()),
        }
    }

    pub(super) fn labels(&self, node: &str) -> Option<&Labels> {
        self.nodes.get(node).map(|(_, labels)| labels)
    }

    /// The nodes with the driver on them, and its keys there.
    fn registered(&self) -> impl Iterator<Item = (&str, &Keys)> {
        self.csi_nodes.iter().filter_map(|(node, (_, keys))| Some((&**node, keys.as_ref()?)))
    }

    pub(super) fn driver_places(&self) -> BTreeSet<BTreeMap<String, String>> {
        let labelled =
            self.registered().filter_map(|(node, keys)| Some((keys, self.labels(node)?)));
        let distinct: BTreeSet<(&Keys, &Labels)> = labelled.collect();
        // A key that is not listed yet adds nothing to the place that the node had before.
        let place = |(keys, labels): (&Keys, _)| {
            let listed: Keys = keys.iter().filter(|key| self.listed_keys.contains(*key)).collect();
            let is_known = keys.is_empty() || !listed.is_empty();
            is_known.then(|| listed.place_in(labels)).flatten()
        };
        distinct.into_iter().filter_map(place).collect()
    }

    pub(super) fn places(&self, keys: &Keys) -> Vec<BTreeMap<String, String>> {
        if !keys.are_in(&self.listed_keys) {
            return Vec::new();
        }
        let distinct: BTreeSet<&Labels> = self.nodes.values().map(|(_, labels)| labels).collect();
        distinct.into_iter().filter_map(|labels| keys.place_in(labels)).collect()
    }

    pub(super) fn most_common_keys(&self) -> Option<&Keys> {
        let mut nodes = BTreeMap::<&Keys, usize>::new();
        let count = |keys: &Keys| !keys.is_empty() && keys.are_in(&self.listed_keys);
        for (_, keys) in self.registered().filter(|(_, keys)| count(keys)) {
            *nodes.entry(keys).or_default() += 1;
        }
        // The first of those that most nodes have.
        nodes.into_iter().rev().max_by_key(|(_, nodes)| *nodes).map(|(keys, _)| keys)
    }

    /// Whether there are keys for which nodes are not listed and watched.
    pub(super) fn needs_relist(&self) -> bool {
        self.needs_relist
    }

    // === changes ===

    /// Begins to list nodes again, for the labels of the registered keys and no others. Returns these
    /// keys.
    pub(super) fn relist(&mut self) -> KeySet {
        (self.watched_keys, self.is_cut) = self.common_keys();
        self.listed_keys.retain(|key| self.watched_keys.contains(key));
        self.needs_relist = false;
        self.watched_keys.clone()
    }

    /// The [`MOST_OF_ALL`] keys that are registered on most nodes: what one node registers hides no label of others.
    /// And whether there are more.
    fn common_keys(&self) -> (KeySet, bool) {
        let mut nodes = BTreeMap::<&str, usize>::new();
        for key in self.registered().flat_map(|(_, keys)| keys.iter()) {
            *nodes.entry(key).or_default() += 1;
        }
        let mut keys: Vec<_> = nodes.into_iter().collect();
        keys.sort_by_key(|(_, nodes)| Reverse(*nodes));
        let is_cut = keys.len() > MOST_OF_ALL;
        (keys.into_iter().take(MOST_OF_ALL).map(|(key, _)| key.into()).collect(), is_cut)
    }

    /// Returns the names of the CSINodes with relevant changes. New keys are none until all nodes are listed
    /// for them: whoever waits for them would find no labels.
    pub(super) fn on_csi_node_event(&mut self, event: InformerEvent<CsiNode>) -> Vec<Box<str>> {
        let Self { driver, csi_nodes, watched_keys, .. } = self;
        let mut has_others = false;
        let mut changed = follow(csi_nodes, event, |node| {
            let ours = node.spec.drivers.iter().find(|entry| *entry.name == **driver)?;
            let keys: Keys = ours.topology_keys.iter().take(MOST_OF_A_NODE).cloned().collect();
            has_others |= !keys.are_in(watched_keys);
            Some(keys)
        });
        // Where not all keys are watched, there may be room for others now.
        self.needs_relist |= has_others || self.is_cut && !changed.is_empty();
        changed.retain(|node| match self.csi_nodes.get(node) {
            Some((_, Some(keys))) => keys.are_in(&self.listed_keys),
            _ => true,
        });
        changed
    }

    /// All nodes are listed for the watched keys: returns the names of the CSINodes whose keys count from now
    /// on.
    pub(super) fn count_watched_keys(&mut self) -> Vec<Box<str>> {
        let before = std::mem::replace(&mut self.listed_keys, self.watched_keys.clone());
        let count_now = |keys: &Keys| !keys.are_in(&before) && keys.are_in(&self.listed_keys);
        let new = self.registered().filter(|(_, keys)| count_now(keys));
        new.map(|(node, _)| node.into()).collect()
    }

    /// Returns the names of the Nodes with relevant changes.
    pub(super) fn on_node_event(&mut self, event: InformerEvent<Node>) -> Vec<Box<str>> {
        let Self { nodes, watched_keys, .. } = self;
        follow(nodes, event, |node| Labels::named(watched_keys, node.metadata.labels.iter()))
    }
}

/// Applies an event to what is kept of each object, which `keep` takes from it. Returns the names of the
/// objects of which something else is kept now.
fn follow<V: View, T: PartialEq>(
    known: &mut Known<T>,
    event: InformerEvent<V>,
    keep: impl FnOnce(&V) -> T,
) -> Vec<Box<str>> {
    match event {
        InformerEvent::InitApply(object) | InformerEvent::Apply(object) => {
            let (uid, new) = (hash(object.uid()), keep(&object));
            let is_new = known.get(object.name()).is_none_or(|(_, old)| *old != new);
            known.insert(object.name().into(), (uid, new));
            if is_new { vec![object.name().into()] } else { Vec::new() }
        }
        InformerEvent::Delete(gone) => {
            known.remove_entry(gone.name()).map(|(name, _)| name).into_iter().collect()
        }
        InformerEvent::InitDone(listed) => {
            take_vanished(known, |_, (uid, _)| listed.contains_hash(*uid)).into_keys().collect()
        }
        InformerEvent::Unreadable { .. } => Vec::new(),
    }
}
