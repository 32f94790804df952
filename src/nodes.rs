//! The cluster's nodes: their topology labels, and whether the driver is registered on them.
//!
//! Owns the watches of CSINodes and Nodes. Of a node it keeps whether the driver is registered, its
//! topology keys, and the labels that topology keys name. A heartbeat, or a label that no key names,
//! changes nothing and wakes nobody. If a driver registers a key whose labels are not kept, the Nodes are
//! listed again, at most once a minute; until then the key wakes nobody and is not among the most common
//! ones. That costs one list when a driver is installed or adds a key; the alternative would be to keep all
//! labels of all nodes. What one kubelet writes is bounded: of its CSINode 256 keys of the driver count, of its
//! Node the labels for the 1,024 keys that most nodes have. What follows from topology belongs to
//! `csi_provisioner::topology` and `capacity`.

mod index;
mod terms;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};

use self::index::NodeIndex;
pub use self::{
    index::Registration,
    terms::{Keys, Labels},
};
use crate::kube::{
    Informer, InformerEvent,
    objects::{CsiNode, CsiNodeDriver, CsiNodeSpec, Metadata, Node},
};

/// How long after a list of all Nodes for new keys the next one begins: any kubelet can register a new key for
/// its node again and again.
const LIST_INTERVAL: Duration = Duration::from_secs(60);

/// The known nodes. Clones share them.
#[derive(Debug, Clone)]
pub struct Nodes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    index: Mutex<NodeIndex>,
    progress: watch::Sender<Progress>,
    /// Incremented with every relevant change.
    changes: watch::Sender<u64>,
}

/// The progress of listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    /// What has been listed once.
    listed: Kinds,
    /// All Nodes have been listed for the watched keys.
    complete: bool,
    /// There are keys that are not watched.
    needs_relist: bool,
}

/// What has been listed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Kinds {
    #[default]
    Nothing,
    CsiNodes,
    /// CSINodes, and then Nodes.
    All,
}

/// An object with a relevant change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange<'a> {
    /// The CSINode of this name was added or removed, or the driver's entry in it changed.
    CsiNode(&'a str),
    /// The Node of this name was added or removed, or its relevant labels changed.
    Node(&'a str),
}

impl Nodes {
    /// The nodes for `driver`; [`csi_node_handler`](Self::csi_node_handler) and
    /// [`watch_nodes`](Self::watch_nodes) fill them.
    pub fn for_driver(driver: &str) -> Self {
        Self(Arc::new(Shared {
            index: Mutex::new(NodeIndex::new(driver)),
            progress: watch::Sender::default(),
            changes: watch::Sender::default(),
        }))
    }

    /// A single node with the driver on it, in the topology `segments`; nothing is watched.
    pub fn fixed(driver: &str, name: &str, segments: &BTreeMap<String, String>) -> Self {
        let topology_keys = segments.keys().cloned().collect();
        let drivers = vec![CsiNodeDriver { name: driver.to_owned(), topology_keys }];
        let metadata = Metadata { name: Some(name.into()), ..Metadata::default() };
        let csi_node = CsiNode { metadata, spec: CsiNodeSpec { drivers } };
        let labels = segments.clone();
        let metadata = Metadata { name: Some(name.into()), labels, ..Metadata::default() };
        let node = Node { metadata };
        Self::listed_once(driver, vec![csi_node], vec![node])
    }

    /// These nodes, as they were listed; nothing is watched.
    pub fn listed_once(driver: &str, csi_nodes: Vec<CsiNode>, nodes: Vec<Node>) -> Self {
        let listed = Self::for_driver(driver);
        for event in InformerEvent::list(csi_nodes) {
            listed.on_csi_node_event(event, &|_| {});
        }
        listed.begin_list();
        for event in InformerEvent::list(nodes) {
            listed.on_node_event(event, &|_| {});
        }
        listed
    }

    // === queries ===

    /// Waits until CSINodes and Nodes have been listed once.
    pub async fn listed(&self) {
        // The sender lives as long as `self`.
        let _ =
            self.0.progress.subscribe().wait_for(|progress| progress.listed == Kinds::All).await;
    }

    /// Whether CSINodes and Nodes have been listed once.
    ///
    /// # Errors
    /// Names what has not been listed.
    pub fn readiness(&self) -> Result<(), String> {
        self.missing().map_or(Ok(()), |kind| Err(format!("{kind} are not listed yet")))
    }

    /// Returns the kind that has not been listed once.
    pub fn missing(&self) -> Option<&'static str> {
        match self.0.progress.borrow().listed {
            Kinds::Nothing => Some("CSINodes"),
            Kinds::CsiNodes => Some("Nodes"),
            Kinds::All => None,
        }
    }

    /// Returns a receiver that is notified of every relevant change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether the driver is on the node, and with which keys.
    pub fn registration(&self, node: &str) -> Registration {
        self.0.index.lock().registration(node)
    }

    /// The node's labels that topology keys name; `None` if the Node does not exist.
    pub fn labels(&self, node: &str) -> Option<Labels> {
        self.0.index.lock().labels(node).cloned()
    }

    /// The distinct places of nodes with the driver: what its keys there name. A node that lacks a label has none.
    pub fn driver_places(&self) -> BTreeSet<BTreeMap<String, String>> {
        self.0.index.lock().driver_places()
    }

    /// What these keys name on all Nodes that have all of the labels, with or without the driver. A place may
    /// be there twice. Empty until all Nodes are listed for the keys: a part of them would be another request.
    pub fn places(&self, keys: &Keys) -> Vec<BTreeMap<String, String>> {
        self.0.index.lock().places(keys)
    }

    /// The topology keys of most nodes with the driver; `None` if it has none on any node.
    pub fn most_common_keys(&self) -> Option<Keys> {
        self.0.index.lock().most_common_keys().cloned()
    }

    // === watches ===

    /// Returns the event handler for CSINodes; it calls `on_change` for relevant changes.
    pub fn csi_node_handler<F>(
        &self,
        on_change: F,
    ) -> impl FnMut(InformerEvent<CsiNode>) + Send + use<F>
    where
        F: Fn(NodeChange<'_>) + Send,
    {
        let nodes = self.clone();
        move |event| nodes.on_csi_node_event(event, &on_change)
    }

    /// Watches Nodes for the labels that the driver's keys name, with a new informer whenever there
    /// are new keys; calls `on_change` for relevant changes. Never returns.
    pub async fn watch_nodes<F>(&self, informer: impl Fn() -> Informer<Node>, on_change: F)
    where
        F: Fn(NodeChange<'_>) + Send + Sync,
    {
        // From then on the wanted labels are known.
        self.wait_until(|progress| progress.listed >= Kinds::CsiNodes).await;
        let mut next_list = Instant::now();
        loop {
            self.begin_list();
            let handler = |event| self.on_node_event(event, &on_change);
            tokio::select! {
                biased;
                () = informer().run(handler) => {}
                () = self.wait_for_new_keys(next_list) => {}
            }
            next_list = Instant::now() + LIST_INTERVAL;
        }
    }

    /// Waits until there are new keys and the time to list Nodes for them has come. A list in progress ends
    /// first, so that many new keys cost few lists.
    async fn wait_for_new_keys(&self, next_list: Instant) {
        let are_new = |progress: &Progress| progress.complete && progress.needs_relist;
        self.wait_until(are_new).await;
        sleep_until(next_list).await;
        self.wait_until(are_new).await;
    }

    async fn wait_until(&self, condition: impl FnMut(&Progress) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.0.progress.subscribe().wait_for(condition).await;
    }

    /// Starts to list Nodes for all current keys.
    fn begin_list(&self) {
        let mut index = self.0.index.lock();
        let keys = index.relist();
        self.update_progress(|progress| {
            progress.complete = false;
            progress.needs_relist = false;
        });
        tracing::debug!(?keys, "listing Nodes for the labels of the driver's topology keys");
    }

    fn on_csi_node_event(
        &self,
        event: InformerEvent<CsiNode>,
        on_change: &impl Fn(NodeChange<'_>),
    ) {
        let complete = matches!(event, InformerEvent::InitDone(_));
        let mut index = self.0.index.lock();
        let changed = index.on_csi_node_event(event);
        self.update_progress(|progress| {
            if complete {
                progress.listed = progress.listed.max(Kinds::CsiNodes);
            }
            progress.needs_relist = index.needs_relist();
        });
        drop(index);
        self.notify(&changed, |name| on_change(NodeChange::CsiNode(name)));
    }

    fn on_node_event(&self, event: InformerEvent<Node>, on_change: &impl Fn(NodeChange<'_>)) {
        let complete = matches!(event, InformerEvent::InitDone(_));
        let changed = self.0.index.lock().on_node_event(event);
        if complete {
            self.update_progress(|progress| {
                progress.listed = Kinds::All;
                progress.complete = true;
            });
        }
        self.notify(&changed, |name| on_change(NodeChange::Node(name)));
        if complete {
            let counted = self.0.index.lock().count_watched_keys();
            self.notify(&counted, |name| on_change(NodeChange::CsiNode(name)));
        }
    }

    fn update_progress(&self, step: impl FnOnce(&mut Progress)) {
        self.0.progress.send_if_modified(|progress| {
            let before = *progress;
            step(progress);
            *progress != before
        });
    }

    fn notify(&self, changed: &[Box<str>], on_change: impl Fn(&str)) {
        if !changed.is_empty() {
            self.0.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
        for name in changed {
            on_change(name);
        }
    }
}
