//! What is kept of all nodes, and what a sighting of one changes.
//!
//! Owns the decision when a registration takes effect: once the labels that its keys name are
//! kept of every node. Pure. Leaves listing the nodes anew for that to the room.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    interned::Interned,
    terms::{Keys, Labels},
};
use crate::kube::{
    informer::{
        InformerEvent,
        cache::{Cache, Change},
    },
    objects::{CsiNode, Node, View},
};

/// Label keys.
pub(super) type Vocabulary = BTreeSet<Arc<str>>;

/// What a sighting has changed that matters, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) csi_nodes: Vec<Box<str>>,
    pub(super) nodes: Vec<Box<str>>,
}

/// All nodes, by name.
#[derive(Debug)]
pub(super) struct Book {
    driver: Box<str>,
    csi_nodes: Cache<Registered>,
    nodes: Cache<Labels>,
    keys: Interned<Keys>,
    labels: Interned<Labels>,
    /// The keys whose labels are kept of every node.
    known: Vocabulary,
    /// The keys for which nodes are listed or watched now.
    vocabulary: Vocabulary,
}

/// What the driver has registered on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Registered {
    /// Its keys, as far as they are in effect; none where it is not registered.
    current: Option<Keys>,
    /// What comes into effect once the labels are known.
    next: Option<Keys>,
}

/// Whether the driver is on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// There is no CSINode of that name.
    NoCsiNode,
    /// The driver is not registered in the CSINode.
    NoDriver,
    /// The driver is registered with these topology keys, which may be none.
    Driver(Keys),
}

impl Book {
    pub(super) fn new(driver: &str) -> Self {
        Self {
            driver: driver.into(),
            csi_nodes: Cache::default(),
            nodes: Cache::default(),
            keys: Interned::default(),
            labels: Interned::default(),
            known: Vocabulary::new(),
            vocabulary: Vocabulary::new(),
        }
    }

    // === what is asked ===

    pub(super) fn registration(&self, node: &str) -> Registration {
        match self.csi_nodes.get(node) {
            None => Registration::NoCsiNode,
            Some(Registered { current: None, .. }) => Registration::NoDriver,
            Some(Registered { current: Some(keys), .. }) => Registration::Driver(keys.clone()),
        }
    }

    pub(super) fn labels(&self, node: &str) -> Option<&Labels> {
        self.nodes.get(node)
    }

    pub(super) fn registered(&self) -> impl Iterator<Item = (&str, &Keys, Option<&Labels>)> {
        let registered = self.csi_nodes.iter();
        registered.filter_map(|(node, at)| Some((node, at.current.as_ref()?, self.labels(node))))
    }

    pub(super) fn distinct_labels(&self) -> impl Iterator<Item = &Labels> {
        self.labels.iter().map(|(labels, _)| labels)
    }

    pub(super) fn usual_keys(&self) -> Option<&Keys> {
        let usable = self.keys.iter().filter(|(keys, _)| !keys.is_empty() && self.knows(keys));
        // The first of those that most nodes have.
        usable.rev().max_by_key(|(_, nodes)| *nodes).map(|(keys, _)| keys)
    }

    fn knows(&self, keys: &Keys) -> bool {
        keys.are_in(&self.known)
    }

    // === CSINodes ===

    pub(super) fn observe_csi_node(&mut self, event: InformerEvent<CsiNode>) -> Changed {
        let csi_nodes = match event {
            InformerEvent::InitApply(seen) | InformerEvent::Apply(seen) => {
                self.csi_node_seen(&seen)
            }
            InformerEvent::Delete(gone) => self.csi_node_gone(gone.name()),
            InformerEvent::InitDone => {
                let vanished = self.csi_nodes.complete_by_key();
                for (_, registered) in &vanished {
                    self.release(registered);
                }
                vanished.into_iter().map(|(name, _)| name).collect()
            }
            InformerEvent::Init => {
                self.csi_nodes.restarted();
                Vec::new()
            }
            InformerEvent::Unreadable { name, .. } => {
                self.csi_nodes.unreadable(&name);
                Vec::new()
            }
        };
        Changed { csi_nodes, ..Changed::default() }
    }

    fn csi_node_seen(&mut self, seen: &CsiNode) -> Vec<Box<str>> {
        let driver = seen.spec.drivers.iter().find(|driver| *driver.name == *self.driver);
        let said = driver.map(|driver| driver.topology_keys.iter().map(String::as_str).collect());
        let before = self.csi_nodes.get(seen.name()).cloned();
        let current = || before.as_ref().and_then(|before| before.current.clone());
        let now = match said {
            Some(keys) if !self.knows(&keys) => Registered { current: current(), next: Some(keys) },
            said => Registered { current: said, next: None },
        };
        let changed = before.as_ref().is_none_or(|before| before.current != now.current);
        self.register(seen.name(), now);
        changed.then(|| seen.name().into()).into_iter().collect()
    }

    fn csi_node_gone(&mut self, name: &str) -> Vec<Box<str>> {
        let Change::Gone(registered) = self.csi_nodes.deleted(name) else { return Vec::new() };
        self.release(&registered);
        vec![name.into()]
    }

    fn register(&mut self, node: &str, now: Registered) {
        let mut hold = |keys: Option<Keys>| keys.map(|keys| self.keys.hold(keys));
        let now = Registered { current: hold(now.current), next: hold(now.next) };
        if let Change::Updated { old, .. } = self.csi_nodes.seen(node, Some(now)) {
            self.release(&old);
        }
    }

    fn release(&mut self, registered: &Registered) {
        for keys in [&registered.current, &registered.next].into_iter().flatten() {
            self.keys.release(keys);
        }
    }

    // === Nodes ===

    /// Nodes are about to be listed anew: for the labels of all keys that are registered anywhere,
    /// in effect or not yet, and for no others. Gives these keys.
    pub(super) fn relist(&mut self) -> Vocabulary {
        self.vocabulary = self.keys.iter().flat_map(|(keys, _)| keys.shared()).collect();
        self.known.retain(|key| self.vocabulary.contains(key));
        self.vocabulary.clone()
    }

    /// Whether there are keys that nodes are not listed and watched for.
    pub(super) fn is_outgrown(&self) -> bool {
        !self.keys.iter().all(|(keys, _)| keys.are_in(&self.vocabulary))
    }

    pub(super) fn observe_node(&mut self, event: InformerEvent<Node>) -> Changed {
        let nodes = match event {
            InformerEvent::InitApply(seen) | InformerEvent::Apply(seen) => self.node_seen(&seen),
            InformerEvent::Delete(gone) => self.node_gone(gone.name()),
            InformerEvent::InitDone => {
                let vanished = self.nodes.complete_by_key();
                for (_, labels) in &vanished {
                    self.labels.release(labels);
                }
                let nodes = vanished.into_iter().map(|(name, _)| name).collect();
                return Changed { nodes, csi_nodes: self.take_effect() };
            }
            InformerEvent::Init => {
                self.nodes.restarted();
                Vec::new()
            }
            InformerEvent::Unreadable { name, .. } => {
                self.nodes.unreadable(&name);
                Vec::new()
            }
        };
        Changed { nodes, ..Changed::default() }
    }

    fn node_seen(&mut self, seen: &Node) -> Vec<Box<str>> {
        let all = seen.metadata.labels.as_ref();
        let label = |key: &str| all.and_then(|all| all.get(key)).map(String::as_str);
        let labels = self.labels.hold(Labels::named(&self.vocabulary, label));
        let changed = self.nodes.get(seen.name()) != Some(&labels);
        if let Change::Updated { old, .. } = self.nodes.seen(seen.name(), Some(labels)) {
            self.labels.release(&old);
        }
        changed.then(|| seen.name().into()).into_iter().collect()
    }

    fn node_gone(&mut self, name: &str) -> Vec<Box<str>> {
        let Change::Gone(labels) = self.nodes.deleted(name) else { return Vec::new() };
        self.labels.release(&labels);
        vec![name.into()]
    }

    /// All nodes were listed: registrations that waited for that take effect.
    fn take_effect(&mut self) -> Vec<Box<str>> {
        self.known.clone_from(&self.vocabulary);
        let waiting = self.csi_nodes.iter().filter_map(|(node, at)| Some((node, at.next.clone()?)));
        let due: Vec<(Box<str>, Keys)> = waiting
            .filter(|(_, keys)| self.knows(keys))
            .map(|(node, keys)| (node.into(), keys))
            .collect();
        for (node, keys) in &due {
            self.register(node, Registered { current: Some(keys.clone()), next: None });
        }
        due.into_iter().map(|(node, _)| node).collect()
    }
}
