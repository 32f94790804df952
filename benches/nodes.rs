//! What it costs when 100 nodes share 1,000 claims with immediate binding: `cargo bench --bench nodes`.
//!
//! The whole program on each node, in one process and in simulated time, on a network where a GET
//! takes 5 ms, a PUT 10 ms, and a driver's call 50 ms. The original's users count some 500
//! conflicts for 3,000 volumes and 100 nodes.

// What benches and tests share fails like a test does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[allow(dead_code)] // tests share the cluster
#[path = "../tests/nodes/cluster.rs"]
mod cluster;

const NODES: usize = 100;
const CLAIMS: usize = 1000;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let cost = runtime.unwrap().block_on(cluster::share(1, NODES, CLAIMS));
    println!("{CLAIMS} claims on {NODES} nodes: {cost}");
}
