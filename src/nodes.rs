//! What is known of the cluster's nodes: where they are, and whether the driver is on them.
//!
//! Owns the watches of CSINodes and Nodes and what is kept of them: of a node whether the driver is
//! registered, its topology keys, and the labels that topology keys name. Most nodes share both
//! lists with others, and each list is kept once. Promises that a heartbeat, or a label that no key
//! names, changes nothing and wakes nobody, and that what is answered fits together: a registration
//! takes effect once the labels that its keys name are kept of every node. Where a driver registers
//! a key that no node's labels were kept for, the Nodes are listed anew: that is one list when a
//! driver is installed or learns a key, against keeping all labels of all nodes for ever. Leaves to
//! others what follows from where nodes are (`csi_provisioner::topology`, `capacity`).

mod book;
mod interned;
mod terms;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::book::{Book, Changed};
pub use self::{
    book::Registration,
    terms::{Keys, Labels},
};
use crate::kube::{
    EventHandler, Informer, InformerEvent,
    objects::{CsiNode, CsiNodeDriver, CsiNodeSpec, Node},
};

/// The nodes as last seen. Clones share them.
#[derive(Debug, Clone)]
pub struct Nodes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    progress: watch::Sender<Progress>,
    /// Counts the changes that matter.
    changes: watch::Sender<u64>,
}

/// How far listing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    /// What has been listed once.
    listed: Listed,
    /// All Nodes have been listed for the keys that they are watched for now.
    whole: bool,
    /// There are keys that they are not watched for.
    outgrown: bool,
}

/// What has been listed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Listed {
    #[default]
    Nothing,
    CsiNodes,
    /// CSINodes, and then Nodes.
    All,
}

/// An object of which something that matters has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News<'a> {
    /// The CSINode of this name came, went, or says something else of the driver.
    CsiNode(&'a str),
    /// The Node of this name came, went, or has other labels.
    Node(&'a str),
}

impl Nodes {
    /// The nodes as `driver` sees them, once they are watched.
    pub fn of(driver: &str) -> Self {
        Self(Arc::new(Shared {
            book: Mutex::new(Book::new(driver)),
            progress: watch::Sender::default(),
            changes: watch::Sender::default(),
        }))
    }

    /// The one node `name` with the driver on it, which is where `segments` say. Nothing is
    /// watched.
    pub fn fixed(driver: &str, name: &str, segments: &BTreeMap<String, String>) -> Self {
        let metadata =
            |labels| ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
        let topology_keys = segments.keys().cloned().collect();
        let drivers = vec![CsiNodeDriver { name: driver.to_owned(), topology_keys }];
        let csi_node = CsiNode { metadata: metadata(None), spec: CsiNodeSpec { drivers } };
        let node = Node { metadata: metadata(Some(segments.clone())) };
        let nodes = Self::of(driver);
        for event in [InformerEvent::InitApply(csi_node), InformerEvent::InitDone] {
            nodes.see_csi_node(event, &|_| {});
        }
        nodes.begin();
        for event in [InformerEvent::InitApply(node), InformerEvent::InitDone] {
            nodes.see_node(event, &|_| {});
        }
        nodes
    }

    // === what is asked ===

    /// DependencyIndex until all have been listed once; what is said before means nothing.
    pub async fn listed(&self) {
        // The sender lives as long as `self`.
        let _ =
            self.0.progress.subscribe().wait_for(|progress| progress.listed == Listed::All).await;
    }

    /// Whether all have been listed once; an error names what has not.
    ///
    /// # Errors
    /// They have not.
    pub fn readiness(&self) -> Result<(), String> {
        match self.0.progress.borrow().listed {
            Listed::Nothing => Err("CSINodes are not listed yet".to_owned()),
            Listed::CsiNodes => Err("Nodes are not listed yet".to_owned()),
            Listed::All => Ok(()),
        }
    }

    /// Changes its value with every change that matters.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether the driver is on the node, and with which keys.
    pub fn registration(&self, node: &str) -> Registration {
        self.0.book.lock().registration(node)
    }

    /// The node's labels that topology keys name; none where there is no such Node.
    pub fn labels(&self, node: &str) -> Option<Labels> {
        self.0.book.lock().labels(node).cloned()
    }

    /// Shows `each` node with the driver on it, by name: its keys, and its labels where there is a
    /// Node and not just a CSINode. Must not ask anything else of the nodes meanwhile.
    pub fn registered(&self, mut each: impl FnMut(&str, &Keys, Option<&Labels>)) {
        let book = self.0.book.lock();
        book.registered().for_each(|(name, keys, labels)| each(name, keys, labels));
    }

    /// The labels of all Nodes, with the driver on them or not, each combination once, in order.
    pub fn distinct_labels(&self) -> Vec<Labels> {
        self.0.book.lock().distinct_labels().cloned().collect()
    }

    /// The keys that the driver has registered on most nodes; none where it has none anywhere.
    pub fn usual_keys(&self) -> Option<Keys> {
        self.0.book.lock().usual_keys().cloned()
    }

    // === what keeps them fresh ===

    /// What takes in CSINodes; `tell` is told what has changed.
    pub fn csi_node_observer<F>(&self, tell: F) -> impl EventHandler<CsiNode> + use<F>
    where
        F: Fn(News<'_>) + Send,
    {
        let nodes = self.clone();
        move |event| nodes.see_csi_node(event, &tell)
    }

    /// Watches Nodes for the labels that the driver's keys name, with a fresh reflector whenever
    /// there are new keys; `tell` is told what has changed. Never returns.
    pub async fn follow<F>(&self, reflector: impl Fn() -> Informer<Node>, tell: F)
    where
        F: Fn(News<'_>) + Send + Sync,
    {
        // Which labels are wanted is known from then on.
        self.until(|progress| progress.listed >= Listed::CsiNodes).await;
        loop {
            self.begin();
            let observer = |event| self.see_node(event, &tell);
            tokio::select! {
                biased;
                () = reflector().run(observer) => {}
                // A list that is under way ends first, so that many new keys cost few lists.
                () = self.until(|progress| progress.whole && progress.outgrown) => {}
            }
        }
    }

    async fn until(&self, such: impl FnMut(&Progress) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.0.progress.subscribe().wait_for(such).await;
    }

    /// From now on Nodes are listed for all keys that there are.
    fn begin(&self) {
        let mut book = self.0.book.lock();
        let keys = book.relist();
        self.advance(|progress| (progress.whole, progress.outgrown) = (false, false));
        tracing::debug!(?keys, "listing Nodes for the labels of the driver's topology keys");
    }

    fn see_csi_node(&self, event: InformerEvent<CsiNode>, tell: &impl Fn(News<'_>)) {
        let complete = matches!(event, InformerEvent::InitDone);
        let mut book = self.0.book.lock();
        let changed = book.observe_csi_node(event);
        self.advance(|progress| {
            if complete {
                progress.listed = progress.listed.max(Listed::CsiNodes);
            }
            progress.outgrown = book.is_outgrown();
        });
        drop(book);
        self.tell(&changed, tell);
    }

    fn see_node(&self, event: InformerEvent<Node>, tell: &impl Fn(News<'_>)) {
        let complete = matches!(event, InformerEvent::InitDone);
        let changed = self.0.book.lock().observe_node(event);
        if complete {
            self.advance(|progress| (progress.listed, progress.whole) = (Listed::All, true));
        }
        self.tell(&changed, tell);
    }

    fn advance(&self, step: impl FnOnce(&mut Progress)) {
        self.0.progress.send_if_modified(|progress| {
            let before = *progress;
            step(progress);
            *progress != before
        });
    }

    fn tell(&self, changed: &Changed, tell: &impl Fn(News<'_>)) {
        if *changed == Changed::default() {
            return;
        }
        self.0.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        changed.csi_nodes.iter().for_each(|name| tell(News::CsiNode(name)));
        changed.nodes.iter().for_each(|name| tell(News::Node(name)));
    }
}
