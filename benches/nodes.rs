//! What it costs when 100 nodes share 1,000 claims with immediate binding: `cargo bench --bench nodes`.
//!
//! The whole program on each node, in one process and in simulated time, on a network where a GET
//! takes 5 ms, a PUT 10 ms, and a driver's call 50 ms. external-provisioner's users count some 500
//! conflicts for 3,000 volumes and 100 nodes.

// Benches panic, as tests do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

const NODES: usize = 100;
const CLAIMS: usize = 1000;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let cost = runtime.unwrap().block_on(support::nodes::share(1, NODES, CLAIMS));
    println!("{CLAIMS} claims on {NODES} nodes: {cost}");
}
