//! The data that the controller and a [`Provisioner`](super::provisioner::Provisioner) exchange:
//! plain values and pure functions, without locks or requests.

pub mod failure;
pub mod finalizer;
pub mod outcome;
pub mod overview;
pub mod record;
pub mod request;
pub mod source;
pub mod topology;
pub mod unsaved_volume;
pub mod unusable_volume;
pub mod volume_handle;
