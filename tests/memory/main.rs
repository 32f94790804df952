//! What the program holds in memory and how often it asks for some, counted by the allocator: so neither the
//! machine nor the time of day matters.
//!
//! One after the other and without a test harness, whose threads would be counted as well. Arguments that are
//! no flags choose by a part of the name.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod allocations;
mod objects;
mod texts;

use std::{alloc::System, env};

use futures::{FutureExt as _, future::LocalBoxFuture};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Live bytes on the heap.
fn live() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.bytes_allocated - stats.bytes_deallocated) as u64
}

/// How often memory was asked for so far.
fn asked() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// A measurement, in simulated time.
type Measurement = (&'static str, fn() -> LocalBoxFuture<'static, ()>);

/// All; the last one begins to log.
const ALL: [Measurement; 3] = [
    ("texts", || async { texts::what_users_write_takes_little() }.boxed_local()),
    ("objects", || objects::memory_follows_the_work_and_not_the_cluster().boxed_local()),
    ("allocations", || {
        allocations::a_claim_a_line_and_an_event_ask_for_little_memory().boxed_local()
    }),
];

fn main() {
    let wanted: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    for (name, measure) in ALL.into_iter().filter(|(name, _)| is_wanted(name)) {
        println!("{name}");
        let simulated =
            runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        simulated.unwrap().block_on(measure());
    }
}
