//! The API objects that claims and volumes depend on, such as a missing Secret or VolumeSnapshot.
//!
//! [`index`] records which item waits for which object. `watcher` watches those objects, for as long as
//! an item waits for them, and wakes the items when an object changes.

pub mod index;
pub(crate) mod watcher;
