//! The command `demo` as a process.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod failures;
mod kubectl;
