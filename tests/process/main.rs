//! The shipped binaries as processes, over TLS and a unix socket: the recorded scenarios, attacks, outages,
//! storms, the README's walk and the demo.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod arguments;
mod attacks;
mod conformance;
mod csi_wire;
mod dead_link;
mod demo;
mod ends;
mod explained;
mod huge;
mod outages;
mod proxy;
mod shadow;
mod storm;
mod walk;
