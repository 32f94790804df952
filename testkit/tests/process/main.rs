//! testkit's control plane and programs, as their users meet them.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod control_plane;
mod load;
