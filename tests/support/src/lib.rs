//! Set-up that the integration tests (`tests/`) and benches (`benches/`) of csi-provisioner share.
//! Never shipped.
//!
//! # Modules
//!
//! Listed from top to bottom: a module uses modules further down, not further up.
//!
//! | module | content |
//! |---|---|
//! | [`capacity`] | a simulated cluster whose driver reports capacity; the CSIStorageCapacity objects in it |
//! | [`nodes`] | a simulated cluster with a driver and a process on each node |
//! | [`sources`] | snapshots, claims to clone and grants in a simulated cluster |
//! | [`simulation`] | a simulated cluster: API server, driver and processes of the program, in simulated time |
//! | [`runtime`] | tasks that can be aborted, and a clock in tokio's paused time |
//! | [`connector`] | connects the program to a test driver, in memory |
//! | [`process`] | the real binary as a process |
//!
//! Simulations run the library in tokio's paused time; a test that uses them has
//! `#[tokio::test(start_paused = true)]`. Tests of the real binary use [`process`].
//! The API server, the drivers and the binder are in the crate `testkit`, which does not depend on
//! the product; what depends on it is here.

// Set-up that fails panics, as a failed test does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::missing_panics_doc)]

pub mod capacity;
pub mod connector;
pub mod nodes;
pub mod process;
pub mod runtime;
pub mod simulation;
pub mod sources;
