//! What storage capacity costs in a large cluster, in simulated time: 2,000 nodes in 10 zones and
//! 20 classes, which is 200 objects. Prints writes, questions, the time until everything is
//! published, and memory; fails above the bounds.

use std::time::Duration;

use support::{
    capacity::{add_class, add_node, cluster, move_node, remove_node, set_capacity, writes},
    simulation::Simulation,
};
use tokio::time::{Instant, sleep};

use crate::live;

const NODES: usize = 2_000;
const ZONES: usize = 10;
const CLASSES: usize = 20;
const OBJECTS: usize = ZONES * CLASSES;

/// The poll's default interval.
const POLL: Duration = Duration::from_secs(60);

/// Nodes that are replaced one after the other.
const REPLACED: usize = 300;

/// Bytes that publishing may cost.
const AT_MOST: u64 = 512 << 10;

fn large() -> Simulation {
    let simulation = cluster(1);
    for node in 0..NODES {
        add_node(&simulation, &format!("node-{node:04}"), &zone(node));
    }
    for class in 0..CLASSES {
        add_class(&simulation, &format!("class-{class:02}"));
    }
    simulation
}

fn zone(node: usize) -> String {
    format!("zone-{}", node % ZONES)
}

/// Whether all objects are there and have this size.
fn all_are(simulation: &Simulation, size: &str) -> bool {
    let objects = simulation.api.objects("CSIStorageCapacity");
    objects.len() == OBJECTS && objects.iter().all(|object| object.value()["capacity"] == size)
}

fn count(simulation: &Simulation) -> usize {
    simulation.api.count("CSIStorageCapacity")
}

/// How long it takes until `holds`, at most for this time.
async fn took(most: Duration, holds: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < most, "not within {most:?}");
        sleep(Duration::from_millis(100)).await;
    }
    begun.elapsed()
}

/// One line of the table.
fn print(flags: &str, what: &str, took: Duration, before: [usize; 3], simulation: &Simulation) {
    let [created, corrected, deleted] = writes(simulation);
    println!(
        "{flags:28} {what:34} {:7.1} s {:5} created {:5} corrected {:5} deleted",
        took.as_secs_f64(),
        created - before[0],
        corrected - before[1],
        deleted - before[2],
    );
}

/// From nothing to everything, then to other sizes, then through a rolling replacement of nodes.
async fn measure(flags: &[&str], most: Duration) {
    let simulation = large();
    let name = if flags.is_empty() { "(defaults)" } else { flags[0] };
    let all = [&["--enable-capacity", "--capacity-ownerref-level=-1"], flags].concat();
    let process = simulation.start_with(&all);
    let published = took(most, || all_are(&simulation, "1Gi")).await;
    print(name, "all objects published after", published, [0; 3], &simulation);
    sleep(2 * POLL).await;
    assert_eq!(writes(&simulation), [OBJECTS, 0, 0], "each is written once");
    let asked = simulation.calls("GetCapacity");
    println!("{name:28} GetCapacity called {asked} times until then and in two polls more");

    set_capacity(&simulation, 2);
    let corrected = took(POLL + most, || all_are(&simulation, "2Gi")).await;
    print(name, "other sizes are published after", corrected, [OBJECTS, 0, 0], &simulation);

    // Nodes are replaced one after the other: no zone is without nodes.
    let before = writes(&simulation);
    let begun = Instant::now();
    for node in 0..REPLACED {
        let name = format!("node-{node:04}");
        add_node(&simulation, &format!("new-{name}"), &zone(node));
        remove_node(&simulation, &name);
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(writes(&simulation), before, "which changes nothing");
    // And a zone comes.
    for node in 0..10 {
        move_node(&simulation, &format!("new-node-{node:04}"), "zone-x");
    }
    took(most, || count(&simulation) == OBJECTS + CLASSES).await;
    print(name, "300 nodes replaced, one zone more", begun.elapsed(), before, &simulation);
    process.kill();
}

pub(crate) async fn two_hundred_objects_are_published_within_two_polls() {
    measure(&["--kube-api-capacity-qps=50"], 2 * POLL).await;
    // external-provisioner's one request a second is the default here, too.
    measure(&[], Duration::from_secs(OBJECTS as u64 + 10)).await;
    memory().await;
}

/// What publishing costs, once everything is published.
async fn memory() {
    let capacity =
        ["--enable-capacity", "--capacity-ownerref-level=-1", "--kube-api-capacity-qps=50"];
    let (without, with) = (held(&[], 0).await, held(&capacity, OBJECTS).await);
    let cost = with.saturating_sub(without);
    println!("memory: {cost} bytes for {NODES} nodes, {CLASSES} classes and {OBJECTS} objects");
    assert!(cost > 0 && cost < AT_MOST, "{cost} ({with} held, {without} without)");
}

/// What the program holds once so many objects are published.
async fn held(flags: &[&str], objects: usize) -> u64 {
    let simulation = large();
    let process = simulation.start_with(flags);
    took(2 * POLL, || count(&simulation) == objects).await;
    sleep(POLL).await;
    let running = live();
    process.kill();
    drop(process);
    sleep(Duration::from_secs(1)).await;
    running.saturating_sub(live())
}
