//! What the tests of csi-provisioner stand on; never shipped.
pub mod apiserver;
pub mod binder;
pub mod control_plane;
pub mod driver;
pub mod player;
