//! What claims and volumes wait for: objects that nobody watches until something waits for them.
//!
//! Owns who waits for which object ([`index`]) and the watches of those objects (`watcher`).

pub mod index;
pub(crate) mod watcher;
