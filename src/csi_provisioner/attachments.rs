//! Which volumes are attached to a node: those must not be deleted.
//!
//! Owns an index of VolumeAttachments by PersistentVolume, of whatever attacher and in whatever
//! state, as the original looks at them (reference 4.5), and of the volumes that wait to be
//! detached. Only there for drivers that attach (`PUBLISH_UNPUBLISH_VOLUME`). Promises not to
//! answer before everything has been listed once, and to tell when a volume that was asked for is
//! detached from a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::RangeInclusive,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    controller::provisioner::Failure,
    kube::{
        EventHandler, Extent, FirstList, InformerEvent,
        objects::{View as _, VolumeAttachment},
    },
    mutations,
    mutations::Mutation,
};

/// The attachments as last seen. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Attachments(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    index: Mutex<Index>,
    /// The first list: whether we may list at all.
    first_list: FirstList,
    /// The list that counts: a new leader asks for another one.
    list: FirstList,
    /// Asks for another list.
    anew: Arc<Notify>,
}

/// A cluster has as many attachments as volumes in use: little is kept of each.
#[derive(Debug, Default)]
struct Index {
    attachments: BTreeSet<Attachment>,
    /// Those that a list has shown which is not whole yet.
    listed: Option<Vec<Attachment>>,
    nodes: Names,
    /// The names of the volumes that wait to be detached, by hash.
    awaited: BTreeMap<u64, BTreeSet<Box<str>>>,
    /// Those of them that a node has let go, and are not told yet.
    detached: BTreeSet<Box<str>>,
}

/// What is kept of an attachment: the names by their hashes. Should two volumes ever share one, the
/// attachment of the one keeps the other from being deleted: the safe side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Attachment {
    /// Of the volume's name; first, so that the attachments of a volume stand together.
    volume: u64,
    /// Of the attachment's UID.
    uid: u64,
    /// In [`Names`].
    node: u32,
}

impl Attachments {
    /// DependencyIndex until the attachments are being listed: we may.
    pub async fn begun(&self) {
        self.0.first_list.begun().await;
    }

    /// Asks for another list. What was listed before counts no longer.
    pub fn list_anew(&self) {
        if !mutations::is_on(Mutation::StandbysAttachments) {
            self.0.list.anew();
            self.0.anew.notify_one();
        }
    }

    /// Told when another list is wanted, for whoever lists.
    pub fn wants_list(&self) -> Arc<Notify> {
        Arc::clone(&self.0.anew)
    }

    /// DependencyIndex until all attachments have been listed once; what is said before means nothing.
    pub async fn listed(&self) {
        self.0.list.whole().await;
    }

    /// The node that the volume is attached to, one of them where there are several. The observer
    /// then tells once the volume is detached from one of them.
    ///
    /// # Errors
    /// While the attachments have not been listed yet.
    pub fn block(&self, volume: &str) -> Result<Option<String>, Failure> {
        if !self.0.list.is_whole() {
            return Err(Failure::new("the VolumeAttachments are not listed yet"));
        }
        let mut index = self.0.index.lock();
        let node = index.node_of(volume).map(str::to_owned);
        if node.is_some() {
            index.awaited.entry(hash(volume)).or_default().insert(volume.into());
        }
        Ok(node)
    }

    /// What keeps these attachments fresh: `on_detached` is told the name of each volume that
    /// waited and that a node has let go.
    pub fn observer<F: Fn(String) + Send>(
        &self,
        on_detached: F,
    ) -> impl EventHandler<VolumeAttachment> + use<F> {
        let shared = Arc::clone(&self.0);
        move |event| {
            let extent = Extent::of(&event);
            let detached = shared.index.lock().observe(event);
            shared.first_list.reached(extent);
            shared.list.reached(extent);
            for volume in detached {
                on_detached(volume.into());
            }
        }
    }
}

impl Index {
    /// Takes in a sighting; gives the volumes that need wait no longer.
    fn observe(&mut self, event: InformerEvent<VolumeAttachment>) -> BTreeSet<Box<str>> {
        match event {
            InformerEvent::Init => self.restarted(),
            InformerEvent::InitApply(seen) | InformerEvent::Apply(seen) => self.seen(&seen),
            InformerEvent::Delete(gone) => self.deleted(&gone),
            InformerEvent::Unreadable { uid, .. } => self.unreadable(hash(&uid)),
            InformerEvent::InitDone => self.complete(),
        }
        std::mem::take(&mut self.detached)
    }

    /// A list begins. What an unfinished one has shown counts like everything before.
    fn restarted(&mut self) {
        for attachment in self.listed.replace(Vec::new()).unwrap_or_default() {
            self.keep(attachment);
        }
    }

    /// An attachment never moves: the API refuses changes of its `spec`.
    fn seen(&mut self, seen: &VolumeAttachment) {
        let volume = seen.spec.source.persistent_volume_name.as_deref().filter(|_| counts(seen));
        let Some(volume) = volume else { return };
        let node = self.nodes.id(&seen.spec.node_name);
        let attachment = Attachment { volume: hash(volume), uid: hash(seen.uid()), node };
        match &mut self.listed {
            Some(listed) => listed.push(attachment),
            None => self.keep(attachment),
        }
    }

    fn keep(&mut self, attachment: Attachment) {
        if self.attachments.insert(attachment) {
            self.nodes.used(attachment.node);
        }
    }

    /// It may have been shown by a list that is still under way.
    fn deleted(&mut self, gone: &VolumeAttachment) {
        let uid = hash(gone.uid());
        let of_volume = match &gone.spec.source.persistent_volume_name {
            Some(volume) => self.attachments.range(of_volume(hash(volume))),
            // It could not be read, or was never counted: looked for among all.
            None => self.attachments.range(..),
        };
        let kept = of_volume.copied().find(|attachment| attachment.uid == uid);
        let listed = self.listed.iter().flatten().copied().find(|listed| listed.uid == uid);
        if let Some(attachment) = kept {
            self.attachments.remove(&attachment);
        }
        match (&mut self.listed, kept) {
            // Its node may be another's of the list as well: that is counted when it is whole.
            (Some(listed), _) => listed.retain(|attachment| attachment.uid != uid),
            (None, Some(attachment)) => self.nodes.left(attachment.node),
            (None, None) => {}
        }
        if let Some(attachment) = kept.or(listed) {
            self.detach(attachment.volume);
        }
    }

    /// What is known of an attachment that can't be read stays as it is.
    fn unreadable(&mut self, uid: u64) {
        if let Some(listed) = &mut self.listed {
            listed.extend(self.attachments.iter().filter(|attachment| attachment.uid == uid));
        }
    }

    /// The list is whole: what it has not shown is gone. Collected at once, the set is packed
    /// twice as tightly as one that has grown.
    fn complete(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        let before = std::mem::replace(&mut self.attachments, listed.into_iter().collect());
        for vanished in before.difference(&self.attachments).copied().collect::<Vec<_>>() {
            self.detach(vanished.volume);
        }
        self.nodes.count_anew(self.attachments.iter().map(|attachment| attachment.node));
    }

    /// The volume is detached from a node: whoever waits for it looks again, and is told of another
    /// node that has it.
    fn detach(&mut self, volume: u64) {
        self.detached.extend(self.awaited.remove(&volume).unwrap_or_default());
    }

    /// A node that the volume is attached to, the first by name.
    fn node_of(&self, volume: &str) -> Option<&str> {
        self.attached(hash(volume)).map(|attachment| self.nodes.get(attachment.node)).min()
    }

    /// The attachments of a volume.
    fn attached(&self, volume: u64) -> impl Iterator<Item = &Attachment> {
        let kept = self.attachments.range(of_volume(volume));
        // Searched one by one, but only where a list is under way.
        let listed = self.listed.iter().flatten();
        kept.chain(listed.filter(move |listed| listed.volume == volume))
    }
}

/// Where the attachments of a volume stand.
fn of_volume(volume: u64) -> RangeInclusive<Attachment> {
    let first = Attachment { volume, uid: 0, node: 0 };
    first..=Attachment { volume, uid: u64::MAX, node: u32::MAX }
}

/// The names of nodes, each once, by numbers that take little room.
#[derive(Debug, Default)]
struct Names {
    ids: BTreeMap<Arc<str>, u32>,
    by_id: BTreeMap<u32, Name>,
    next: u32,
}

#[derive(Debug)]
struct Name {
    name: Arc<str>,
    /// How many attachments to the node are kept.
    uses: usize,
}

impl Names {
    /// The name's number. It is forgotten once it was used and left by all.
    fn id(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let (name, id): (Arc<str>, _) = (name.into(), self.next);
        self.next = id.wrapping_add(1);
        self.ids.insert(Arc::clone(&name), id);
        self.by_id.insert(id, Name { name, uses: 0 });
        id
    }

    fn get(&self, id: u32) -> &str {
        self.by_id.get(&id).map(|known| &*known.name).unwrap_or_default()
    }

    fn used(&mut self, id: u32) {
        if let Some(known) = self.by_id.get_mut(&id) {
            known.uses += 1;
        }
    }

    fn left(&mut self, id: u32) {
        let Some(known) = self.by_id.get_mut(&id) else { return };
        known.uses -= 1;
        if known.uses == 0 {
            self.ids.remove(&known.name);
            self.by_id.remove(&id);
        }
    }

    fn count_anew(&mut self, uses: impl Iterator<Item = u32>) {
        self.by_id.values_mut().for_each(|known| known.uses = 0);
        uses.for_each(|id| self.used(id));
        self.by_id.retain(|_, known| known.uses > 0);
        self.ids.retain(|_, id| self.by_id.contains_key(id));
    }
}

/// The same in every process, and nothing anybody could aim at is at stake.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Whether the attachment keeps its volume: whoever attaches it.
fn counts(seen: &VolumeAttachment) -> bool {
    !mutations::is_on(Mutation::AttachmentsByAttacher)
        || seen.spec.attacher == mutations::SIMULATED_DRIVER
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
        attachments.block(volume).unwrap()
    }

    #[test]
    fn nothing_is_said_before_all_are_listed() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        observer.observe(InformerEvent::InitApply(attachment("a", Some("pv"), "n1")));
        assert!(attachments.block("other").is_err());
        observer.observe(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        assert_eq!(node(&attachments, "other"), None);
    }

    #[test]
    fn each_attachment_counts_once_however_often_it_is_shown() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        observer.observe(InformerEvent::InitDone);
        for name in ["a", "a", "b"] {
            observer.observe(InformerEvent::Apply(attachment(name, Some("pv"), "n1")));
        }
        observer.observe(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        observer.observe(InformerEvent::Delete(attachment("b", Some("pv"), "n1")));
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
        let mut observer = attachments.observer(drop);
        observer.observe(InformerEvent::InitDone);
        for name in ["stays", "goes"] {
            observer.observe(InformerEvent::Apply(attachment(name, Some(name), "n1")));
        }
        // The first attempt breaks off.
        observer.observe(InformerEvent::Init);
        observer.observe(InformerEvent::InitApply(attachment("new", Some("new"), "n2")));
        observer.observe(InformerEvent::Init);
        for name in ["stays", "goes"] {
            assert_eq!(node(&attachments, name).as_deref(), Some("n1"));
        }
        assert_eq!(node(&attachments, "new").as_deref(), Some("n2"));
        observer.observe(InformerEvent::InitApply(attachment("newer", Some("newer"), "n3")));
        assert_eq!(node(&attachments, "newer").as_deref(), Some("n3"), "seen is attached");
        observer.observe(InformerEvent::InitApply(attachment("stays", Some("stays"), "n1")));
        observer.observe(InformerEvent::InitDone);
        for (name, on) in
            [("stays", Some("n1")), ("goes", None), ("new", None), ("newer", Some("n3"))]
        {
            assert_eq!(node(&attachments, name).as_deref(), on, "{name}");
        }
    }

    #[test]
    fn what_goes_while_it_is_listed_is_gone() {
        let attachments = Attachments::default();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let tell = Arc::clone(&told);
        let mut observer = attachments.observer(move |volume| tell.lock().push(volume));
        observer.observe(InformerEvent::InitDone);
        observer.observe(InformerEvent::Apply(attachment("old", Some("pv"), "n1")));
        observer.observe(InformerEvent::Init);
        for (name, on) in [("old", "n1"), ("new", "n2")] {
            observer.observe(InformerEvent::InitApply(attachment(name, Some("pv"), on)));
        }
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        observer.observe(InformerEvent::InitApply(attachment("third", Some("third"), "n1")));
        observer.observe(InformerEvent::Delete(attachment("old", Some("pv"), "n1")));
        assert_eq!(std::mem::take(&mut *told.lock()), ["pv"], "another node has it");
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n2"));
        observer.observe(InformerEvent::Delete(attachment("new", Some("pv"), "n2")));
        assert_eq!(*told.lock(), ["pv"]);
        observer.observe(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv"), None);
        assert_eq!(node(&attachments, "third").as_deref(), Some("n1"), "by its name");
        observer.observe(InformerEvent::Delete(attachment("third", Some("third"), "n1")));
        keeps_nothing(&attachments);
    }

    #[test]
    fn an_attachment_that_cant_be_read_stays_until_it_is_gone() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        observer.observe(InformerEvent::InitDone);
        observer.observe(InformerEvent::Apply(attachment("a", Some("pv"), "n1")));
        observer.observe(InformerEvent::Init);
        let [namespace, name, uid] = ["", "a", "a"].map(str::to_owned);
        observer.observe(InformerEvent::Unreadable { namespace, name, uid });
        observer.observe(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        observer.observe(InformerEvent::Delete(attachment("b", None, "")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"), "another one's end");
        observer.observe(InformerEvent::Delete(attachment("a", None, "")));
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }

    #[test]
    fn of_several_nodes_the_first_by_name_is_told() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        for (name, on) in [("a", "n2"), ("b", "n1"), ("c", "n3")] {
            observer.observe(InformerEvent::InitApply(attachment(name, Some("pv"), on)));
        }
        observer.observe(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
    }

    #[test]
    fn a_volume_that_waits_is_told_once_when_a_node_lets_it_go() {
        let attachments = Attachments::default();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let tell = Arc::clone(&told);
        let mut observer = attachments.observer(move |volume| tell.lock().push(volume));
        observer.observe(InformerEvent::InitDone);
        for (name, volume, node) in [("a", "pv", "n1"), ("b", "pv", "n2"), ("c", "other", "n1")] {
            observer.observe(InformerEvent::Apply(attachment(name, Some(volume), node)));
        }
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        observer.observe(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        observer.observe(InformerEvent::Delete(attachment("c", Some("other"), "n1")));
        assert_eq!(*told.lock(), ["pv"], "nobody waits for the other");
        observer.observe(InformerEvent::Init);
        observer.observe(InformerEvent::InitDone);
        assert_eq!(*told.lock(), ["pv"], "it has not asked again");
        assert!(attachments.0.index.lock().awaited.is_empty());
    }

    #[test]
    fn a_volume_is_attached_until_its_last_attachment_is_gone() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        observer.observe(InformerEvent::InitDone);
        for (name, node) in [("a", "n1"), ("b", "n2")] {
            observer.observe(InformerEvent::Apply(attachment(name, Some("pv"), node)));
        }
        observer.observe(InformerEvent::Apply(attachment("inline", None, "n3")));
        observer.observe(InformerEvent::Delete(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n2"));
        // The other one vanishes while the watch is down.
        observer.observe(InformerEvent::Init);
        observer.observe(InformerEvent::InitDone);
        assert_eq!(node(&attachments, "pv"), None);
        keeps_nothing(&attachments);
    }
}
