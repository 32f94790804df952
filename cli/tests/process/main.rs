//! `kubectl csi-provisioner` as a process, beside the sidecar's.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod check;
mod explain;
mod ran;
mod release_claims;
mod status;
