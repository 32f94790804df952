//! The keys of the controller's queues.

use std::sync::Arc;

/// The UID of a claim or the name of a PersistentVolume. Clones share the text.
pub type Key = Arc<str>;
