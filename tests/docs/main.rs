//! What stands beside the code says the same as the code: pages, manifests, alerts, and the picture of the
//! modules.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod deployment;
mod differences;
mod kustomize;
mod metrics;
mod modules;
mod rights;
mod safety;
mod troubleshooting;
