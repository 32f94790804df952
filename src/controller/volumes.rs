//! PersistentVolumes: their deletion, and the protection finalizer.
//!
//! | module | content |
//! |---|---|
//! | [`index`] | the PersistentVolumes that need work |
//! | `sharers` | the worker's part that looks at other PersistentVolumes of the same volume |
//! | [`sync`] | the worker: deletes volumes and their PersistentVolumes |
//! | `finalizer_sync` | the worker's part that patches the finalizer |

mod finalizer_sync;
pub mod index;
mod sharers;
pub mod sync;
