//! What an informer tells of the objects.

use super::Listed;
use crate::kube::objects::View;

/// An event of an informer. The names are those of kube-rs's `watcher::Event`.
#[derive(Debug, Clone, PartialEq)]
pub enum InformerEvent<V> {
    /// An object of a list, which may break off and begin again.
    InitApply(V),
    /// The list is complete: an object that was known and is not in it has vanished.
    InitDone(Listed),
    /// An object was created or changed.
    Apply(V),
    /// An object was deleted; this is its last state.
    Delete(V),
    /// An object of the list, or one that was created or changed, cannot be read.
    Unreadable {
        /// Its namespace; empty if it has none.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

impl<V: View> InformerEvent<V> {
    /// The events of a list of these objects.
    pub fn list(objects: Vec<V>) -> impl Iterator<Item = Self> {
        let listed = Listed::of(&objects);
        objects.into_iter().map(Self::InitApply).chain([Self::InitDone(listed)])
    }
}
