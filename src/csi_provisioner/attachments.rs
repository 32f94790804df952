//! Which volumes are attached to a node: those must not be deleted.
//!
//! Owns an index of VolumeAttachments by PersistentVolume, of whatever attacher and in whatever
//! state, as the original looks at them (reference 4.5), and of the volumes that wait to be
//! detached. Only there for drivers that attach (`PUBLISH_UNPUBLISH_VOLUME`). Promises not to
//! answer before everything has been listed once, and to tell when a volume that was asked for is
//! no longer attached.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    controller::provisioner::Failure,
    kube_api::{
        Extent, FirstList, Observer, Sighting,
        cache::{Cache, Change},
        views::{View as _, VolumeAttachment},
    },
    mutations::{self, Mutation},
};

/// The attachments as last seen. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Attachments(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    index: Mutex<Index>,
    first_list: FirstList,
}

/// A cluster has as many attachments as volumes in use: little is kept of each.
#[derive(Debug, Default)]
struct Index {
    /// By UID.
    attachments: Cache<Attachment>,
    /// How many attachments there are of each volume to each node.
    counts: BTreeMap<Attachment, u32>,
    /// Every node's name, once.
    nodes: BTreeSet<Arc<str>>,
    /// The names of the volumes that wait to be detached, by hash.
    awaited: BTreeMap<u64, BTreeSet<Box<str>>>,
    /// Those of them that are detached and not told yet.
    detached: BTreeSet<Box<str>>,
}

/// What is kept of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Attachment {
    /// The hash of the volume's name. Should two names ever share one, the attachment of the one
    /// keeps the other from being deleted: the safe side.
    volume: u64,
    node: Arc<str>,
}

impl Attachments {
    /// Waits until the attachments are being listed: we may.
    pub async fn begun(&self) {
        self.0.first_list.begun().await;
    }

    /// Waits until all attachments have been listed once; what is said before means nothing.
    pub async fn listed(&self) {
        self.0.first_list.whole().await;
    }

    /// The node that the volume is attached to, one of them where there are several. The observer
    /// then tells once the volume is attached to none.
    ///
    /// # Errors
    /// While the attachments have not been listed yet.
    pub fn block(&self, volume: &str) -> Result<Option<String>, Failure> {
        if !self.0.first_list.is_whole() {
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
    /// waited and is attached to no node any more.
    pub fn observer<F: Fn(String) + Send>(
        &self,
        on_detached: F,
    ) -> impl Observer<VolumeAttachment> + use<F> {
        let shared = Arc::clone(&self.0);
        move |sighting| {
            let extent = Extent::of(&sighting);
            let detached = shared.index.lock().observe(sighting);
            shared.first_list.reached(extent);
            for volume in detached {
                on_detached(volume.into());
            }
        }
    }
}

impl Index {
    /// Takes in a sighting; gives the volumes that need wait no longer.
    fn observe(&mut self, sighting: Sighting<VolumeAttachment>) -> BTreeSet<Box<str>> {
        match sighting {
            Sighting::Restarted => self.attachments.restarted(),
            Sighting::Listed(seen) | Sighting::Applied(seen) => self.seen(&seen),
            Sighting::Deleted(gone) => {
                if let Change::Gone(attachment) = self.attachments.deleted(gone.uid()) {
                    self.forget(&attachment);
                }
            }
            Sighting::Unreadable { uid, .. } => self.attachments.unreadable(&uid),
            Sighting::Complete => {
                for attachment in self.attachments.complete() {
                    self.forget(&attachment);
                }
            }
        }
        std::mem::take(&mut self.detached)
    }

    fn seen(&mut self, seen: &VolumeAttachment) {
        let volume = seen.spec.source.persistent_volume_name.as_deref().filter(|_| counts(seen));
        let attachment = volume.map(|volume| self.attachment(volume, &seen.spec.node_name));
        let before = match self.attachments.seen(seen.uid(), attachment.clone()) {
            Change::Updated { old, .. } | Change::Left(old) | Change::Gone(old) => Some(old),
            Change::Entered(_) | Change::Nothing => None,
        };
        if let Some(attachment) = attachment {
            *self.counts.entry(attachment).or_default() += 1;
        }
        if let Some(before) = before {
            self.forget(&before);
        }
    }

    fn attachment(&mut self, volume: &str, node: &str) -> Attachment {
        let known = self.nodes.get(node).cloned();
        let node = known.unwrap_or_else(|| {
            let node: Arc<str> = node.into();
            self.nodes.insert(Arc::clone(&node));
            node
        });
        Attachment { volume: hash(volume), node }
    }

    fn forget(&mut self, attachment: &Attachment) {
        if let Some(count) = self.counts.get_mut(attachment) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(attachment);
                self.detach(attachment.volume);
            }
        }
        // Held by the set and by `attachment`: by no other attachment.
        if Arc::strong_count(&attachment.node) == 2 {
            self.nodes.remove(&attachment.node);
        }
    }

    /// The volume is detached from a node: nobody waits for it any more if that was the last.
    fn detach(&mut self, volume: u64) {
        if self.node_of_hash(volume).is_none() {
            self.detached.extend(self.awaited.remove(&volume).unwrap_or_default());
        }
    }

    /// A node that the volume is attached to.
    fn node_of(&self, volume: &str) -> Option<&str> {
        self.node_of_hash(hash(volume))
    }

    fn node_of_hash(&self, volume: u64) -> Option<&str> {
        let (first, _) = self.counts.range(Attachment { volume, node: "".into() }..).next()?;
        (first.volume == volume).then_some(&*first.node)
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
        observer.observe(Sighting::Listed(attachment("a", Some("pv"), "n1")));
        assert!(attachments.block("other").is_err());
        observer.observe(Sighting::Complete);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        assert_eq!(node(&attachments, "other"), None);
    }

    #[test]
    fn each_attachment_counts_once_however_often_it_is_shown() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        observer.observe(Sighting::Complete);
        for name in ["a", "a", "b"] {
            observer.observe(Sighting::Applied(attachment(name, Some("pv"), "n1")));
        }
        observer.observe(Sighting::Applied(attachment("b", Some("other"), "n2")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        assert_eq!(node(&attachments, "other").as_deref(), Some("n2"));
        observer.observe(Sighting::Deleted(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv"), None);
        observer.observe(Sighting::Deleted(attachment("b", Some("other"), "n2")));
        let index = attachments.0.index.lock();
        assert!(index.counts.is_empty() && index.nodes.is_empty());
    }

    #[test]
    fn a_volume_that_waits_is_told_once_when_its_last_attachment_is_gone() {
        let attachments = Attachments::default();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let tell = Arc::clone(&told);
        let mut observer = attachments.observer(move |volume| tell.lock().push(volume));
        observer.observe(Sighting::Complete);
        for (name, volume, node) in [("a", "pv", "n1"), ("b", "pv", "n2"), ("c", "other", "n1")] {
            observer.observe(Sighting::Applied(attachment(name, Some(volume), node)));
        }
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        observer.observe(Sighting::Deleted(attachment("a", Some("pv"), "n1")));
        observer.observe(Sighting::Deleted(attachment("c", Some("other"), "n1")));
        assert!(told.lock().is_empty(), "still attached, and nobody waits for the other");
        observer.observe(Sighting::Restarted);
        observer.observe(Sighting::Complete);
        assert_eq!(*told.lock(), ["pv"]);
        assert!(attachments.0.index.lock().awaited.is_empty());
    }

    #[test]
    fn a_volume_is_attached_until_its_last_attachment_is_gone() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer(drop);
        observer.observe(Sighting::Complete);
        for (name, node) in [("a", "n1"), ("b", "n2")] {
            observer.observe(Sighting::Applied(attachment(name, Some("pv"), node)));
        }
        observer.observe(Sighting::Applied(attachment("inline", None, "n3")));
        observer.observe(Sighting::Deleted(attachment("a", Some("pv"), "n1")));
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n2"));
        // The other one vanishes while the watch is down.
        observer.observe(Sighting::Restarted);
        observer.observe(Sighting::Complete);
        assert_eq!(node(&attachments, "pv"), None);
        let index = attachments.0.index.lock();
        assert!(index.counts.is_empty() && index.nodes.is_empty());
    }
}
