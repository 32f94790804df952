//! The storage behind the drivers: the images that exist.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::time::Instant;

/// An image of the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its size in bytes.
    pub size: i64,
    pub made: Instant,
    /// Made when the process that had asked for it was gone, perhaps after another had done with it;
    /// or led no longer, and another had.
    pub late: bool,
}

/// All images by name, and snapshots by handle.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    images: Mutex<BTreeMap<String, Image>>,
    snapshots: Mutex<BTreeSet<String>>,
}

impl Storage {
    pub(crate) fn get(&self, name: &str) -> Option<Image> {
        self.images.lock().get(name).cloned()
    }

    /// Makes an image, unless it is there.
    pub(crate) fn make(&self, name: &str, size: i64, late: bool) {
        let image = Image { size, made: Instant::now(), late };
        self.images.lock().entry(name.to_owned()).or_insert(image);
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        self.images.lock().remove(name).is_some()
    }

    /// How many images a node has.
    pub(crate) fn count_on(&self, node: &str) -> usize {
        self.images.lock().keys().filter(|image| node_of(image) == Some(node)).count()
    }

    /// A node is gone for ever with all that it had.
    pub(crate) fn lose(&self, node: &str) {
        self.images.lock().retain(|image, _| node_of(image) != Some(node));
    }

    /// Cuts a snapshot.
    pub(crate) fn cut(&self, handle: &str) {
        self.snapshots.lock().insert(handle.to_owned());
    }

    /// Removes a snapshot.
    pub(crate) fn uncut(&self, handle: &str) {
        self.snapshots.lock().remove(handle);
    }

    /// Whether there is something of this handle to copy.
    pub(crate) fn has_source(&self, handle: &str) -> bool {
        self.snapshots.lock().contains(handle) || self.get(image_of(handle)).is_some()
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Image> {
        self.images.lock().clone()
    }
}

/// The id that the driver gives an image: it names the cluster that the request named, so that one
/// image can have several, as ceph-csi's do.
pub(crate) fn handle(cluster: &str, image: &str) -> String {
    format!("0001-{cluster}-{image}")
}

/// The name that an image was asked for by: of one that a node has for itself, without the node.
pub(crate) fn name_of(image: &str) -> &str {
    image.split_once('@').map_or(image, |(name, _)| name)
}

/// The node that has the image for itself.
pub(crate) fn node_of(image: &str) -> Option<&str> {
    image.split_once('@').map(|(_, node)| node)
}

/// The image that an id means.
pub(crate) fn image_of(handle: &str) -> &str {
    handle.splitn(3, '-').nth(2).unwrap_or(handle)
}
