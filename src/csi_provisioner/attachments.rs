//! Which volumes are attached to a node: those must not be deleted.
//!
//! Indexes the VolumeAttachments by PersistentVolume, of whatever attacher and in whatever state,
//! as external-provisioner does, and the volumes whose deletion waits for a detachment. Exists only
//! for drivers that attach (`PUBLISH_UNPUBLISH_VOLUME`). Returns an error before all attachments
//! have been listed once, and reports when a waiting volume is detached from a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    controller::provisioner::Failure,
    kube::{
        FirstList, InformerEvent, Listed,
        informer::hash,
        objects::{View as _, VolumeAttachment},
    },
};

/// The known attachments. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Attachments(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    index: Mutex<Index>,
    list: FirstList,
}

/// An attachment's volume and UID, by [`hash`]. If the hashes of two volumes collide, an attachment of one
/// blocks the deletion of the other, which is safe.
type Key = (u64, u64);

/// Compact, because a cluster has as many attachments as volumes in use.
#[derive(Debug, Default)]
struct Index {
    /// The node of each attachment.
    attachments: BTreeMap<Key, Arc<str>>,
    /// The nodes' names, each once.
    nodes: BTreeSet<Arc<str>>,
    /// The volumes that wait for a detachment, by the hash of their names.
    waiting: BTreeMap<u64, Box<str>>,
}

impl Attachments {
    /// Whether they have been listed.
    pub fn list(&self) -> FirstList {
        self.0.list.clone()
    }

    /// Returns the node that the volume is attached to (one of them, if there are several). The
    /// volume then waits: it is reported once it is detached from a node.
    ///
    /// # Errors
    /// The attachments have not been listed yet.
    pub fn blocking_node(&self, volume: &str) -> Result<Option<String>, Failure> {
        if !self.0.list.is_whole() {
            return Err(Failure::new("the VolumeAttachments are not listed yet"));
        }
        let mut index = self.0.index.lock();
        let node = index.node_of(volume).map(str::to_owned);
        if node.is_some() {
            index.waiting.insert(hash(volume), volume.into());
        }
        Ok(node)
    }

    /// Returns the event handler of the watch. It calls `on_detached` with the name of each waiting
    /// volume that was detached from a node.
    pub fn event_handler<F: Fn(String) + Send>(
        &self,
        on_detached: F,
    ) -> impl FnMut(InformerEvent<VolumeAttachment>) + Send + use<F> {
        let shared = Arc::clone(&self.0);
        self.list().completed_by(move |event| {
            let detached = shared.index.lock().on_event(event);
            for volume in detached {
                on_detached(volume.into());
            }
        })
    }
}

impl Index {
    /// Handles an event; returns the volumes that no longer wait.
    fn on_event(&mut self, event: InformerEvent<VolumeAttachment>) -> Vec<Box<str>> {
        match event {
            InformerEvent::InitApply(attachment) | InformerEvent::Apply(attachment) => {
                self.insert(&attachment);
            }
            InformerEvent::Delete(gone) => return self.remove(&gone).into_iter().collect(),
            InformerEvent::Unreadable { .. } => {}
            InformerEvent::InitDone(listed) => return self.on_listed(&listed),
        }
        Vec::new()
    }

    /// Adds an attachment. The API does not allow its `spec` to change.
    fn insert(&mut self, attachment: &VolumeAttachment) {
        // Whichever attacher it has.
        let Some(volume) = &attachment.spec.source.persistent_volume_name else { return };
        let name = attachment.spec.node_name.as_str();
        let node = self.nodes.get(name).cloned().unwrap_or_else(|| name.into());
        self.nodes.insert(Arc::clone(&node));
        self.attachments.insert((hash(volume), hash(attachment.uid())), node);
    }

    /// Removes an attachment. If its volume waits, its deletion is tried again, and fails with the next node
    /// if there is another.
    fn remove(&mut self, gone: &VolumeAttachment) -> Option<Box<str>> {
        let uid = hash(gone.uid());
        let volume = match &gone.spec.source.persistent_volume_name {
            Some(volume) => hash(volume),
            // It could not be decoded, or was never counted: search all.
            None => self.attachments.keys().find(|(_, known)| *known == uid)?.0,
        };
        let node = self.attachments.remove(&(volume, uid))?;
        // The last one, beside that in the set.
        if Arc::strong_count(&node) == 2 {
            self.nodes.remove(&node);
        }
        self.waiting.remove(&volume)
    }

    /// The list is complete: returns the waiting volumes that are detached.
    fn on_listed(&mut self, listed: &Listed) -> Vec<Box<str>> {
        let known = mem::take(&mut self.attachments).into_iter();
        // Collected in order, a map is packed more densely than as it has grown.
        self.attachments = known.filter(|((_, uid), _)| listed.contains_hash(*uid)).collect();
        self.nodes.retain(|node| Arc::strong_count(node) > 1);
        let (waiting, detached): (BTreeMap<_, _>, BTreeMap<_, _>) = mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(volume, _)| self.attached(*volume).next().is_some());
        self.waiting = waiting;
        detached.into_values().collect()
    }

    /// The nodes that a volume is attached to, one for each attachment.
    fn attached(&self, volume: u64) -> impl Iterator<Item = &Arc<str>> {
        self.attachments.range((volume, 0)..=(volume, u64::MAX)).map(|(_, node)| node)
    }

    /// A node that the volume is attached to, the first by name.
    fn node_of(&self, volume: &str) -> Option<&str> {
        self.attached(hash(volume)).map(|node| &**node).min()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, volume: Option<&str>, node: &str) -> VolumeAttachment {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"attacher": "any", "nodeName": node, "source": {"persistentVolumeName": volume}},
        }))
        .unwrap()
    }

    fn node(attachments: &Attachments, volume: &str) -> Option<String> {
        attachments.blocking_node(volume).unwrap()
    }

    type Reported = Arc<Mutex<Vec<String>>>;

    /// Attachments after a list without any, their handler, and the volumes that it reports.
    fn listed() -> (Attachments, impl FnMut(InformerEvent<VolumeAttachment>), Reported) {
        let attachments = Attachments::default();
        let reported = Reported::default();
        let record = Arc::clone(&reported);
        let mut handler = attachments.event_handler(move |volume| record.lock().push(volume));
        handler(InformerEvent::InitDone(Listed::default()));
        (attachments, handler, reported)
    }

    #[test]
    fn each_attachment_counts_once_however_often_it_is_shown() {
        let (attachments, mut handler, _) = listed();
        for name in ["a", "a", "b"] {
            handler(InformerEvent::Apply(attachment(name, Some("pv"), "n1")));
        }
        handler(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler(InformerEvent::Delete(attachment("b", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }

    fn keeps_nothing(attachments: &Attachments) {
        let index = attachments.0.index.lock();
        assert!(index.attachments.range(..).next().is_none(), "{index:?}");
        assert!(index.nodes.is_empty() && index.waiting.is_empty(), "{index:?}");
    }

    #[test]
    fn a_new_list_takes_nothing_away_before_it_is_whole() {
        let (attachments, mut handler, _) = listed();
        for name in ["stays", "goes"] {
            handler(InformerEvent::Apply(attachment(name, Some(name), "n1")));
        }
        // The first list is interrupted.
        handler(InformerEvent::InitApply(attachment("new", Some("new"), "n2")));
        for name in ["stays", "goes"] {
            assert_eq!(node(&attachments, name).as_deref(), Some("n1"));
        }
        assert_eq!(node(&attachments, "new").as_deref(), Some("n2"));
        handler(InformerEvent::InitApply(attachment("newer", Some("newer"), "n3")));
        assert_eq!(node(&attachments, "newer").as_deref(), Some("n3"), "seen is attached");
        let listed =
            [("stays", "n1"), ("newer", "n3")].map(|(name, on)| attachment(name, Some(name), on));
        handler(InformerEvent::InitDone(Listed::of(&listed)));
        for (name, on) in
            [("stays", Some("n1")), ("goes", None), ("new", None), ("newer", Some("n3"))]
        {
            assert_eq!(node(&attachments, name).as_deref(), on, "{name}");
        }
    }

    #[test]
    fn an_attachment_deleted_during_a_list_is_gone() {
        let (attachments, mut handler, reported) = listed();
        handler(InformerEvent::Apply(attachment("old", Some("pv"), "n1")));
        for (name, on) in [("old", "n1"), ("new", "n2")] {
            handler(InformerEvent::InitApply(attachment(name, Some("pv"), on)));
        }
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler(InformerEvent::InitApply(attachment("third", Some("third"), "n1")));
        handler(InformerEvent::Delete(attachment("old", Some("pv"), "n1")));
        assert_eq!(std::mem::take(&mut *reported.lock()), ["pv"], "another node has it");
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n2"));
        handler(InformerEvent::Delete(attachment("new", Some("pv"), "n2")));
        assert_eq!(*reported.lock(), ["pv"]);
        let listed = Listed::of(&[attachment("third", Some("third"), "n1")]);
        handler(InformerEvent::InitDone(listed));
        assert_eq!(node(&attachments, "pv"), None);
        assert_eq!(node(&attachments, "third").as_deref(), Some("n1"), "by its name");
        handler(InformerEvent::Delete(attachment("third", Some("third"), "n1")));
        keeps_nothing(&attachments);
    }

    #[test]
    fn an_attachment_that_cant_be_read_stays_until_it_is_gone() {
        let (attachments, mut handler, _) = listed();
        handler(InformerEvent::Apply(attachment("a", Some("pv"), "n1")));
        let [namespace, name, uid] = ["", "a", "a"].map(str::to_owned);
        handler(InformerEvent::Unreadable { namespace, name, uid });
        handler(InformerEvent::InitDone(Listed::of(&[attachment("a", None, "")])));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler(InformerEvent::Delete(attachment("b", None, "")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"), "another one's end");
        handler(InformerEvent::Delete(attachment("a", None, "")));
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }
}
