//! The whole program in simulated time: `app::run` against the in-memory API server and a driver
//! behind an in-memory pipe, with another client, connector, clock, random source and spawner and
//! nothing else different.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod at_rest;
mod attributes;
mod backoff;
mod capacity;
mod claims;
mod concurrency;
mod deletes;
mod driver_restarts;
mod ends;
mod events;
mod leader_election;
mod leftovers;
mod migration;
mod nodes;
mod open_calls;
mod panics;
mod parameters;
mod protection;
mod quiet;
mod requests;
mod safety;
mod servers;
mod shadow;
mod sources;
mod start;
mod topology;
mod waits;
