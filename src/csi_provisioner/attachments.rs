//! Which volumes are attached to a node: those must not be deleted.
//!
//! Owns an index of VolumeAttachments by PersistentVolume, of whatever attacher and in whatever
//! state, as the original looks at them (reference 4.5). Only there for drivers that attach
//! (`PUBLISH_UNPUBLISH_VOLUME`). Promises not to answer before everything has been listed once.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    controller::provisioner::Failure,
    kube_api::{
        Observer, Sighting,
        cache::{Cache, Change},
        views::{View as _, VolumeAttachment},
    },
};

/// The attachments as last seen. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Attachments(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    index: Mutex<Index>,
    /// Whether all have been listed once.
    listed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Index {
    attachments: Cache<Attachment>,
    /// The nodes of each volume, by attachment.
    by_volume: BTreeMap<String, BTreeMap<String, String>>,
}

/// One attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attachment {
    name: String,
    volume: String,
    node: String,
}

impl Attachments {
    /// Waits until all attachments have been listed once; what is said before means nothing.
    pub async fn listed(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// The node that the volume is attached to, one of them where there are several.
    ///
    /// # Errors
    /// While the attachments have not been listed yet.
    pub fn node_of(&self, volume: &str) -> Result<Option<String>, Failure> {
        if !*self.0.listed.borrow() {
            return Err(Failure::new("the VolumeAttachments are not listed yet"));
        }
        let index = self.0.index.lock();
        Ok(index.by_volume.get(volume).and_then(|nodes| nodes.values().next()).cloned())
    }

    /// What keeps these attachments fresh.
    pub fn observer(&self) -> impl Observer<VolumeAttachment> + use<> {
        let shared = Arc::clone(&self.0);
        move |sighting| {
            let complete = matches!(sighting, Sighting::Complete);
            shared.index.lock().observe(sighting);
            if complete {
                shared.listed.send_replace(true);
            }
        }
    }
}

impl Index {
    fn observe(&mut self, sighting: Sighting<VolumeAttachment>) {
        match sighting {
            Sighting::Restarted => self.attachments.restarted(),
            Sighting::Listed(seen) | Sighting::Applied(seen) => self.seen(&seen),
            Sighting::Deleted(gone) => {
                if let Change::Gone(attachment) = self.attachments.deleted(gone.name()) {
                    self.forget(&attachment);
                }
            }
            Sighting::Unreadable { name, .. } => self.attachments.unreadable(&name),
            Sighting::Complete => {
                for attachment in self.attachments.complete() {
                    self.forget(&attachment);
                }
            }
        }
    }

    fn seen(&mut self, seen: &VolumeAttachment) {
        let attachment = seen.spec.source.persistent_volume_name.clone().map(|volume| Attachment {
            name: seen.name().to_owned(),
            volume,
            node: seen.spec.node_name.clone(),
        });
        let before = match self.attachments.seen(seen.name(), attachment.clone()) {
            Change::Updated { old, .. } | Change::Left(old) | Change::Gone(old) => Some(old),
            Change::Entered(_) | Change::Nothing => None,
        };
        if let Some(before) = before {
            self.forget(&before);
        }
        if let Some(Attachment { name, volume, node }) = attachment {
            self.by_volume.entry(volume).or_default().insert(name, node);
        }
    }

    fn forget(&mut self, attachment: &Attachment) {
        if let Some(nodes) = self.by_volume.get_mut(&attachment.volume) {
            nodes.remove(&attachment.name);
            if nodes.is_empty() {
                self.by_volume.remove(&attachment.volume);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, volume: Option<&str>, node: &str) -> VolumeAttachment {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"attacher": "any", "nodeName": node, "source": {"persistentVolumeName": volume}},
        }))
        .unwrap()
    }

    fn node(attachments: &Attachments, volume: &str) -> Option<String> {
        attachments.node_of(volume).unwrap()
    }

    #[test]
    fn nothing_is_said_before_all_are_listed() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer();
        observer.observe(Sighting::Listed(attachment("a", Some("pv"), "n1")));
        assert!(attachments.node_of("other").is_err());
        observer.observe(Sighting::Complete);
        assert_eq!(node(&attachments, "pv").as_deref(), Some("n1"));
        assert_eq!(node(&attachments, "other"), None);
    }

    #[test]
    fn a_volume_is_attached_until_its_last_attachment_is_gone() {
        let attachments = Attachments::default();
        let mut observer = attachments.observer();
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
        assert!(attachments.0.index.lock().by_volume.is_empty());
    }
}
