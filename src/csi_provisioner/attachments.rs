//! Which volumes are attached to a node: those must not be deleted.
//!
//! Indexes the VolumeAttachments by PersistentVolume, of whatever attacher and in whatever state,
//! as external-provisioner does, and the volumes whose deletion waits for a detachment. Exists only
//! for drivers that attach (`PUBLISH_UNPUBLISH_VOLUME`). Returns an error before all attachments
//! have been listed once, and reports when a waiting volume is detached from a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::RangeInclusive,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    controller::provisioner::Failure,
    kube::{
        EventHandler, Extent, FirstList, InformerEvent,
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

/// Compact, because a cluster has as many attachments as volumes in use.
#[derive(Debug, Default)]
struct Index {
    attachments: BTreeSet<Attachment>,
    /// The attachments of a list that is not complete yet.
    listed: Option<Vec<Attachment>>,
    nodes: NodeNames,
    /// The names of the volumes that wait for a detachment, by hash.
    waiting: BTreeMap<u64, BTreeSet<Box<str>>>,
    /// Waiting volumes that were detached from a node and are not reported yet.
    detached: BTreeSet<Box<str>>,
}

/// An attachment, with hashes instead of names. If the hashes of two volumes collide, an attachment
/// of one blocks the deletion of the other, which is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Attachment {
    /// Hash of the volume's name. It is the first field, so that the attachments of a volume are
    /// adjacent.
    volume: u64,
    /// Hash of the attachment's UID.
    uid: u64,
    /// The node's number in [`NodeNames`].
    node: u32,
}

impl Attachments {
    /// How far their first list is.
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
            index.waiting.entry(hash(volume)).or_default().insert(volume.into());
        }
        Ok(node)
    }

    /// Returns the event handler of the watch. It calls `on_detached` with the name of each waiting
    /// volume that was detached from a node.
    pub fn event_handler<F: Fn(String) + Send>(
        &self,
        on_detached: F,
    ) -> impl EventHandler<VolumeAttachment> + use<F> {
        let shared = Arc::clone(&self.0);
        move |event| {
            let extent = Extent::of(&event);
            let detached = shared.index.lock().on_event(event);
            shared.list.reached(extent);
            for volume in detached {
                on_detached(volume.into());
            }
        }
    }
}

impl Index {
    /// Handles an event; returns the volumes that no longer wait.
    fn on_event(&mut self, event: InformerEvent<VolumeAttachment>) -> BTreeSet<Box<str>> {
        match event {
            InformerEvent::Init => self.begin_list(),
            InformerEvent::InitApply(attachment) | InformerEvent::Apply(attachment) => {
                self.insert(&attachment);
            }
            InformerEvent::Delete(gone) => self.remove(&gone),
            InformerEvent::Unreadable { uid, .. } => self.mark_listed(hash(&uid)),
            InformerEvent::InitDone => self.finish_list(),
        }
        std::mem::take(&mut self.detached)
    }

    /// A list begins. The attachments of an unfinished list are kept like earlier ones.
    fn begin_list(&mut self) {
        for attachment in self.listed.replace(Vec::new()).unwrap_or_default() {
            self.add(attachment);
        }
    }

    /// Adds an attachment. The API does not allow its `spec` to change.
    fn insert(&mut self, attachment: &VolumeAttachment) {
        // Whichever attacher it has.
        let Some(volume) = &attachment.spec.source.persistent_volume_name else { return };
        let node = self.nodes.id(&attachment.spec.node_name);
        let attachment = Attachment { volume: hash(volume), uid: hash(attachment.uid()), node };
        match &mut self.listed {
            Some(listed) => listed.push(attachment),
            None => self.add(attachment),
        }
    }

    fn add(&mut self, attachment: Attachment) {
        if self.attachments.insert(attachment) {
            self.nodes.add_use(attachment.node);
        }
    }

    /// Removes an attachment, which may also be part of a list in progress.
    fn remove(&mut self, gone: &VolumeAttachment) {
        let uid = hash(gone.uid());
        let of_volume = match &gone.spec.source.persistent_volume_name {
            Some(volume) => self.attachments.range(of_volume(hash(volume))),
            // It could not be decoded, or was never counted: search all.
            None => self.attachments.range(..),
        };
        let kept = of_volume.copied().find(|attachment| attachment.uid == uid);
        let listed = self.listed.iter().flatten().copied().find(|listed| listed.uid == uid);
        if let Some(attachment) = kept {
            self.attachments.remove(&attachment);
        }
        match (&mut self.listed, kept) {
            // The node may be used by others of the list as well, which are counted once it is
            // complete.
            (Some(listed), _) => listed.retain(|attachment| attachment.uid != uid),
            (None, Some(attachment)) => self.nodes.remove_use(attachment.node),
            (None, None) => {}
        }
        if let Some(attachment) = kept.or(listed) {
            self.detach(attachment.volume);
        }
    }

    /// An attachment that can't be decoded: keeps what is known of it.
    fn mark_listed(&mut self, uid: u64) {
        if let Some(listed) = &mut self.listed {
            listed.extend(self.attachments.iter().filter(|attachment| attachment.uid == uid));
        }
    }

    /// The list is complete: attachments that it did not contain are gone. A set collected at once
    /// is packed twice as densely as one that has grown.
    fn finish_list(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        let before = std::mem::replace(&mut self.attachments, listed.into_iter().collect());
        for vanished in before.difference(&self.attachments).copied().collect::<Vec<_>>() {
            self.detach(vanished.volume);
        }
        self.nodes.recount(self.attachments.iter().map(|attachment| attachment.node));
    }

    /// The volume was detached from a node: its deletion is tried again, and fails with the next
    /// node if there is another.
    fn detach(&mut self, volume: u64) {
        self.detached.extend(self.waiting.remove(&volume).unwrap_or_default());
    }

    /// A node that the volume is attached to, the first by name.
    fn node_of(&self, volume: &str) -> Option<&str> {
        self.attached(hash(volume)).map(|attachment| self.nodes.get(attachment.node)).min()
    }

    /// The attachments of a volume.
    fn attached(&self, volume: u64) -> impl Iterator<Item = &Attachment> {
        let kept = self.attachments.range(of_volume(volume));
        // A linear search, but only while a list is in progress.
        let listed = self.listed.iter().flatten();
        kept.chain(listed.filter(move |listed| listed.volume == volume))
    }
}

/// The range of the attachments of a volume.
fn of_volume(volume: u64) -> RangeInclusive<Attachment> {
    let first = Attachment { volume, uid: 0, node: 0 };
    first..=Attachment { volume, uid: u64::MAX, node: u32::MAX }
}

/// Node names, each stored once, addressed by numbers.
#[derive(Debug, Default)]
struct NodeNames {
    ids: BTreeMap<Arc<str>, u32>,
    by_id: BTreeMap<u32, NodeName>,
    next: u32,
}

#[derive(Debug)]
struct NodeName {
    name: Arc<str>,
    /// How many attachments to the node are kept.
    uses: usize,
}

impl NodeNames {
    /// The name's number, which counts one more use; the name is dropped after the last.
    fn id(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.ids.insert(Arc::clone(&name), id);
        self.by_id.insert(id, NodeName { name, uses: 0 });
        id
    }

    fn get(&self, id: u32) -> &str {
        self.by_id.get(&id).map(|known| &*known.name).unwrap_or_default()
    }

    fn add_use(&mut self, id: u32) {
        if let Some(known) = self.by_id.get_mut(&id) {
            known.uses += 1;
        }
    }

    fn remove_use(&mut self, id: u32) {
        let Some(known) = self.by_id.get_mut(&id) else { return };
        known.uses -= 1;
        if known.uses == 0 {
            self.ids.remove(&known.name);
            self.by_id.remove(&id);
        }
    }

    fn recount(&mut self, uses: impl Iterator<Item = u32>) {
        self.by_id.values_mut().for_each(|known| known.uses = 0);
        uses.for_each(|id| self.add_use(id));
        self.by_id.retain(|_, known| known.uses > 0);
        self.ids.retain(|_, id| self.by_id.contains_key(id));
    }
}

/// Not keyed: it is the same in every process, and collisions are harmless.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
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

    #[test]
    fn attachments_are_unknown_before_the_first_list() {
        let attachments = Attachments::default();
        let mut handler = attachments.event_handler(drop);
        handler.on_event(InformerEvent::InitApply(attachment("a", Some("pv"), "n1")));
        assert!(attachments.blocking_node("other").is_err());
        handler.on_event(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        assert_eq!(node(&attachments, "other"), None);
    }

    #[test]
    fn each_attachment_counts_once_however_often_it_is_shown() {
        let attachments = Attachments::default();
        let mut handler = attachments.event_handler(drop);
        handler.on_event(InformerEvent::InitDone);
        for name in ["a", "a", "b"] {
            handler.on_event(InformerEvent::Apply(attachment(name, Some("pv"), "n1")));
        }
        handler.on_event(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler.on_event(InformerEvent::Delete(attachment("b", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }

    fn keeps_nothing(attachments: &Attachments) {
        let index = attachments.0.index.lock();
        assert!(index.attachments.is_empty() && index.listed.is_none(), "{index:?}");
        assert!(index.nodes.ids.is_empty() && index.nodes.by_id.is_empty(), "{index:?}");
    }

    #[test]
    fn a_new_list_takes_nothing_away_before_it_is_whole() {
        let attachments = Attachments::default();
        let mut handler = attachments.event_handler(drop);
        handler.on_event(InformerEvent::InitDone);
        for name in ["stays", "goes"] {
            handler.on_event(InformerEvent::Apply(attachment(name, Some(name), "n1")));
        }
        // The first list is interrupted.
        handler.on_event(InformerEvent::Init);
        handler.on_event(InformerEvent::InitApply(attachment("new", Some("new"), "n2")));
        handler.on_event(InformerEvent::Init);
        for name in ["stays", "goes"] {
            assert_eq!(node(&attachments, name).as_deref(), Some("n1"));
        }
        assert_eq!(node(&attachments, "new").as_deref(), Some("n2"));
        handler.on_event(InformerEvent::InitApply(attachment("newer", Some("newer"), "n3")));
        assert_eq!(node(&attachments, "newer").as_deref(), Some("n3"), "seen is attached");
        handler.on_event(InformerEvent::InitApply(attachment("stays", Some("stays"), "n1")));
        handler.on_event(InformerEvent::InitDone);
        for (name, on) in
            [("stays", Some("n1")), ("goes", None), ("new", None), ("newer", Some("n3"))]
        {
            assert_eq!(node(&attachments, name).as_deref(), on, "{name}");
        }
    }

    #[test]
    fn an_attachment_deleted_during_a_list_is_gone() {
        let attachments = Attachments::default();
        let reported: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&reported);
        let mut handler = attachments.event_handler(move |volume| record.lock().push(volume));
        handler.on_event(InformerEvent::InitDone);
        handler.on_event(InformerEvent::Apply(attachment("old", Some("pv"), "n1")));
        handler.on_event(InformerEvent::Init);
        for (name, on) in [("old", "n1"), ("new", "n2")] {
            handler.on_event(InformerEvent::InitApply(attachment(name, Some("pv"), on)));
        }
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler.on_event(InformerEvent::InitApply(attachment("third", Some("third"), "n1")));
        handler.on_event(InformerEvent::Delete(attachment("old", Some("pv"), "n1")));
        assert_eq!(std::mem::take(&mut *reported.lock()), ["pv"], "another node has it");
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n2"));
        handler.on_event(InformerEvent::Delete(attachment("new", Some("pv"), "n2")));
        assert_eq!(*reported.lock(), ["pv"]);
        handler.on_event(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv"), None);
        assert_eq!(node(&attachments, "third").as_deref(), Some("n1"), "by its name");
        handler.on_event(InformerEvent::Delete(attachment("third", Some("third"), "n1")));
        keeps_nothing(&attachments);
    }

    #[test]
    fn an_attachment_that_cant_be_read_stays_until_it_is_gone() {
        let attachments = Attachments::default();
        let mut handler = attachments.event_handler(drop);
        handler.on_event(InformerEvent::InitDone);
        handler.on_event(InformerEvent::Apply(attachment("a", Some("pv"), "n1")));
        handler.on_event(InformerEvent::Init);
        let [namespace, name, uid] = ["", "a", "a"].map(str::to_owned);
        handler.on_event(InformerEvent::Unreadable { namespace, name, uid });
        handler.on_event(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler.on_event(InformerEvent::Delete(attachment("b", None, "")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"), "another one's end");
        handler.on_event(InformerEvent::Delete(attachment("a", None, "")));
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }

    #[test]
    fn of_several_nodes_the_first_by_name_is_reported() {
        let attachments = Attachments::default();
        let mut handler = attachments.event_handler(drop);
        for (name, on) in [("a", "n2"), ("b", "n1"), ("c", "n3")] {
            handler.on_event(InformerEvent::InitApply(attachment(name, Some("pv"), on)));
        }
        handler.on_event(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
    }

    #[test]
    fn a_waiting_volume_is_reported_once_when_detached() {
        let attachments = Attachments::default();
        let reported: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&reported);
        let mut handler = attachments.event_handler(move |volume| record.lock().push(volume));
        handler.on_event(InformerEvent::InitDone);
        for (name, volume, node) in [("a", "pv", "n1"), ("b", "pv", "n2"), ("c", "other", "n1")] {
            handler.on_event(InformerEvent::Apply(attachment(name, Some(volume), node)));
        }
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        handler.on_event(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        handler.on_event(InformerEvent::Delete(attachment("c", Some("other"), "n1")));
        assert_eq!(*reported.lock(), ["pv"], "nobody waits for the other");
        handler.on_event(InformerEvent::Init);
        handler.on_event(InformerEvent::InitDone);
        assert_eq!(*reported.lock(), ["pv"], "it has not asked again");
        assert!(attachments.0.index.lock().waiting.is_empty());
    }

    #[test]
    fn a_volume_is_attached_until_its_last_attachment_is_gone() {
        let attachments = Attachments::default();
        let mut handler = attachments.event_handler(drop);
        handler.on_event(InformerEvent::InitDone);
        for (name, node) in [("a", "n1"), ("b", "n2")] {
            handler.on_event(InformerEvent::Apply(attachment(name, Some("pv"), node)));
        }
        handler.on_event(InformerEvent::Apply(attachment("inline", None, "n3")));
        handler.on_event(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n2"));
        // The other attachment is deleted while the watch is down.
        handler.on_event(InformerEvent::Init);
        handler.on_event(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }
}
