//! CSIStorageCapacity objects: publishes how much free space the driver has, for the scheduler.
//!
//! One object exists for each StorageClass in each [`Segment`] of the cluster. `index` holds the
//! desired and the existing objects and derives the difference (pure). `publisher` calls GetCapacity
//! and writes, through `store` in the API version that the server serves. `object` holds the content
//! of an object, `labels` tells whose it is, and `owner` finds its owner.
//!
//! Guarantees: of several objects for one class and segment, as a lost response to a POST leaves them, all
//! but one are deleted once they are seen; objects of others are never modified; nothing is written before
//! all inputs have been listed, or by a standby. Node topology belongs to `nodes`, the environment to `flags`.

mod index;
mod labels;
mod object;
mod owner;
mod publisher;
mod segment;
mod store;

pub use self::{
    publisher::{Publisher, PublisherDeps},
    segment::Segment,
    store::Store,
};
