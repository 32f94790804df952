//! PersistentVolumes: their deletion and our finalizer on them.
//!
//! | module | what it owns |
//! |---|---|
//! | [`index`] | the PersistentVolumes that something is due for |
//! | `handles` | which PersistentVolumes have the same volume |
//! | [`sync`] | the worker: deletes volumes and their PersistentVolumes |
//! | [`finalizer`] | what is due for a PersistentVolume, and the edits of our finalizer |
//! | `finalizer_sync` | the worker's part that edits the finalizer |

pub mod finalizer;
mod finalizer_sync;
pub(crate) mod handles;
pub mod index;
pub mod sync;
