//! The known nodes, and the effect of events on them.
//!
//! Decides when a registration takes effect: once the labels that its keys name are kept for every
//! node. Pure.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    interned::Interned,
    terms::{Keys, Labels, MOST},
};
use crate::kube::{
    informer::{
        InformerEvent,
        cache::{Cache, Change},
    },
    objects::{CsiNode, Node, View},
};

/// A set of label keys.
pub(super) type KeySet = BTreeSet<Arc<str>>;

/// The names of objects with relevant changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) csi_nodes: Vec<Box<str>>,
    pub(super) nodes: Vec<Box<str>>,
}

/// All nodes, by name.
#[derive(Debug)]
pub(super) struct NodeIndex {
    driver: Box<str>,
    csi_nodes: Cache<Registered>,
    nodes: Cache<Labels>,
    keys: Interned<Keys>,
    labels: Interned<Labels>,
    /// The keys whose labels are kept for every node.
    kept_keys: KeySet,
    /// The keys for which nodes are being listed or watched.
    watched_keys: KeySet,
    is_warned: Warned,
}

/// Whether it was logged that there are too many.
#[derive(Debug, Default)]
struct Warned {
    keys: bool,
    labels: bool,
}

/// The driver's registration on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Registered {
    /// Its keys in effect; `None` if it is not registered.
    current: Option<Keys>,
    /// The keys that take effect once the labels are known.
    pending: Option<Keys>,
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
            csi_nodes: Cache::default(),
            nodes: Cache::default(),
            keys: Interned::default(),
            labels: Interned::default(),
            kept_keys: KeySet::new(),
            watched_keys: KeySet::new(),
            is_warned: Warned::default(),
        }
    }

    // === queries ===

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

    pub(super) fn most_common_keys(&self) -> Option<&Keys> {
        let usable =
            self.keys.iter().filter(|(keys, _)| !keys.is_empty() && self.keeps_labels_for(keys));
        // The first of those that most nodes have.
        usable.rev().max_by_key(|(_, nodes)| *nodes).map(|(keys, _)| keys)
    }

    fn keeps_labels_for(&self, keys: &Keys) -> bool {
        keys.are_in(&self.kept_keys)
    }

    // === CSINodes ===

    pub(super) fn on_csi_node_event(&mut self, event: InformerEvent<CsiNode>) -> Changed {
        let csi_nodes = match event {
            InformerEvent::InitApply(node) | InformerEvent::Apply(node) => {
                self.upsert_csi_node(&node)
            }
            InformerEvent::Delete(gone) => self.remove_csi_node(gone.name()),
            InformerEvent::InitDone => {
                let vanished = self.csi_nodes.finish_list_by_key();
                for (_, registered) in &vanished {
                    self.release(registered);
                }
                vanished.into_iter().map(|(name, _)| name).collect()
            }
            InformerEvent::Init => {
                self.csi_nodes.begin_list();
                Vec::new()
            }
            InformerEvent::Unreadable { name, .. } => {
                self.csi_nodes.mark_listed(&name);
                Vec::new()
            }
        };
        Changed { csi_nodes, ..Changed::default() }
    }

    fn upsert_csi_node(&mut self, node: &CsiNode) -> Vec<Box<str>> {
        let driver = node.spec.drivers.iter().find(|driver| *driver.name == *self.driver);
        if driver.is_some_and(|driver| driver.topology_keys.len() > MOST)
            && !std::mem::replace(&mut self.is_warned.keys, true)
        {
            tracing::warn!(
                node = node.name(),
                "The CSINode has more than {MOST} topology keys of the driver: the others are ignored. Logged once"
            );
        }
        let keys = driver
            .map(|driver| driver.topology_keys.iter().take(MOST).map(String::as_str).collect());
        let before = self.csi_nodes.get(node.name()).cloned();
        let current = || before.as_ref().and_then(|before| before.current.clone());
        let now = match keys {
            Some(keys) if !self.keeps_labels_for(&keys) => {
                Registered { current: current(), pending: Some(keys) }
            }
            keys => Registered { current: keys, pending: None },
        };
        let changed = before.as_ref().is_none_or(|before| before.current != now.current);
        self.register(node.name(), now);
        changed.then(|| node.name().into()).into_iter().collect()
    }

    fn remove_csi_node(&mut self, name: &str) -> Vec<Box<str>> {
        let Change::Gone(registered) = self.csi_nodes.remove(name) else { return Vec::new() };
        self.release(&registered);
        vec![name.into()]
    }

    fn register(&mut self, node: &str, now: Registered) {
        let mut acquire = |keys: Option<Keys>| keys.map(|keys| self.keys.acquire(keys));
        let now = Registered { current: acquire(now.current), pending: acquire(now.pending) };
        if let Change::Updated { old, .. } = self.csi_nodes.apply(node, Some(now)) {
            self.release(&old);
        }
    }

    fn release(&mut self, registered: &Registered) {
        for keys in [&registered.current, &registered.pending].into_iter().flatten() {
            self.keys.release(keys);
        }
    }

    // === Nodes ===

    /// Begins to list nodes again, for the labels of all registered keys, in effect or not yet, and
    /// no others. Returns these keys.
    pub(super) fn relist(&mut self) -> KeySet {
        self.watched_keys = self.keys.iter().flat_map(|(keys, _)| keys.shared()).collect();
        self.kept_keys.retain(|key| self.watched_keys.contains(key));
        self.watched_keys.clone()
    }

    /// Whether there are keys for which nodes are not listed and watched.
    pub(super) fn needs_relist(&self) -> bool {
        !self.keys.iter().all(|(keys, _)| keys.are_in(&self.watched_keys))
    }

    pub(super) fn on_node_event(&mut self, event: InformerEvent<Node>) -> Changed {
        let nodes = match event {
            InformerEvent::InitApply(node) | InformerEvent::Apply(node) => self.upsert_node(&node),
            InformerEvent::Delete(gone) => self.remove_node(gone.name()),
            InformerEvent::InitDone => {
                let vanished = self.nodes.finish_list_by_key();
                for (_, labels) in &vanished {
                    self.labels.release(labels);
                }
                let nodes = vanished.into_iter().map(|(name, _)| name).collect();
                return Changed { nodes, csi_nodes: self.apply_pending() };
            }
            InformerEvent::Init => {
                self.nodes.begin_list();
                Vec::new()
            }
            InformerEvent::Unreadable { name, .. } => {
                self.nodes.mark_listed(&name);
                Vec::new()
            }
        };
        Changed { nodes, ..Changed::default() }
    }

    fn upsert_node(&mut self, node: &Node) -> Vec<Box<str>> {
        let (labels, are_more) = Labels::named(&self.watched_keys, node.metadata.labels.iter());
        if are_more && !std::mem::replace(&mut self.is_warned.labels, true) {
            tracing::warn!(
                node = node.name(),
                "The Node has more than {MOST} labels that topology keys of the driver name: the others are ignored. Logged once"
            );
        }
        let labels = self.labels.acquire(labels);
        let changed = self.nodes.get(node.name()) != Some(&labels);
        if let Change::Updated { old, .. } = self.nodes.apply(node.name(), Some(labels)) {
            self.labels.release(&old);
        }
        changed.then(|| node.name().into()).into_iter().collect()
    }

    fn remove_node(&mut self, name: &str) -> Vec<Box<str>> {
        let Change::Gone(labels) = self.nodes.remove(name) else { return Vec::new() };
        self.labels.release(&labels);
        vec![name.into()]
    }

    /// All nodes were listed: applies the registrations that waited for it; returns the names of
    /// their CSINodes.
    fn apply_pending(&mut self) -> Vec<Box<str>> {
        self.kept_keys.clone_from(&self.watched_keys);
        let waiting =
            self.csi_nodes.iter().filter_map(|(node, at)| Some((node, at.pending.clone()?)));
        let due: Vec<(Box<str>, Keys)> = waiting
            .filter(|(_, keys)| self.keeps_labels_for(keys))
            .map(|(node, keys)| (node.into(), keys))
            .collect();
        for (node, keys) in &due {
            self.register(node, Registered { current: Some(keys.clone()), pending: None });
        }
        due.into_iter().map(|(node, _)| node).collect()
    }
}
