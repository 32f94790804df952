//! The storage behind the drivers: what images there are, whoever asks.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// An image of the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its size in bytes.
    pub size: i64,
    /// Made when the process that had asked for it was gone, perhaps after another had done with it.
    pub late: bool,
}

/// All images by name.
#[derive(Debug, Default)]
pub(crate) struct Storage(Mutex<BTreeMap<String, Image>>);

impl Storage {
    pub(crate) fn get(&self, name: &str) -> Option<Image> {
        self.0.lock().get(name).cloned()
    }

    /// Makes an image, unless it is there.
    pub(crate) fn make(&self, name: &str, size: i64, late: bool) {
        self.0.lock().entry(name.to_owned()).or_insert(Image { size, late });
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        self.0.lock().remove(name).is_some()
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Image> {
        self.0.lock().clone()
    }
}

/// The id that the driver gives an image: it names the cluster that the request named, so that one
/// image can have several, as ceph-csi's do.
pub(crate) fn handle(cluster: &str, image: &str) -> String {
    format!("0001-{cluster}-{image}")
}

/// The image that an id means.
pub(crate) fn image_of(handle: &str) -> &str {
    handle.splitn(3, '-').nth(2).unwrap_or(handle)
}
