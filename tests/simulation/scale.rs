//! What large clusters cost, in simulated time: requests, bytes, calls to the driver and waits. Prints the
//! figures from which docs/performance.md computes what to set, and asserts the counts.
//!
//! The sizes are small, and environment variables set others: `SCALE_CLASSES`, `SCALE_SEGMENTS`,
//! `SCALE_PAIRS`, `SCALE_NODES` and `SCALE_CLAIMS`.

use std::{collections::BTreeMap, env, time::Duration};

use serde_json::{Value, json};
use support::{
    capacity,
    nodes::share_with,
    simulation::{DRIVER, Simulation, claim},
};
use testkit::{
    apiserver::faults::{Effect, Rule},
    load::objects::{Family, IN_USE},
};
use tokio::time::{Instant, sleep};

/// The size that this variable sets.
fn size(variable: &str, usual: usize) -> usize {
    env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// How long it takes until `holds`.
async fn took(holds: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(100_000));
        sleep(Duration::from_millis(500)).await;
    }
    start.elapsed()
}

/// Requests by verb and resource, and the bytes of their answers.
fn requests(simulation: &Simulation) -> BTreeMap<String, (usize, u64)> {
    let mut requests = BTreeMap::<String, (usize, u64)>::new();
    for request in simulation.api.requests().all() {
        let (count, bytes) = requests.entry(request.what()).or_default();
        *count += 1;
        *bytes += request.sent();
    }
    requests
}

// === Storage capacity ===

/// How long GetCapacity takes.
const CALL_MS: u64 = 10;

/// The poll of this test, in which all calls fit.
const POLL: Duration = Duration::from_secs(1800);

fn answer_capacity(simulation: &Simulation, gib: u64) {
    let rule = json!({"available_capacity": gib << 30, "delay_ms": CALL_MS});
    simulation.script(json!({"get_capacity": [rule]}));
}

/// One object for each class and segment.
#[tokio::test(start_paused = true)]
async fn capacity_of_many_classes_and_segments() {
    let (classes, segments) = (size("SCALE_CLASSES", 20), size("SCALE_SEGMENTS", 10));
    let objects = classes * segments;
    let simulation = capacity::cluster(1);
    answer_capacity(&simulation, 1);
    for segment in 0..segments {
        capacity::add_node(&simulation, &format!("node-{segment}"), &format!("zone-{segment}"));
    }
    for class in 0..classes {
        capacity::add_class(&simulation, &format!("class-{class}"));
    }
    simulation.start_with(&[
        "--enable-capacity",
        "--capacity-ownerref-level=-1",
        "--capacity-threads=20",
        "--capacity-poll-interval=30m",
        "--kube-api-capacity-qps=100",
        "--kube-api-capacity-burst=100",
    ]);
    let calls = || simulation.calls("GetCapacity");
    let count = |verb| simulation.api_requests(verb, "csistoragecapacities");
    let created = took(|| simulation.api.count("CSIStorageCapacity") == objects).await;
    println!("{classes} classes, {segments} segments: {objects} objects created after {created:?}");
    sleep(POLL).await;
    let start = calls();
    println!("GetCapacity: {start} calls in the first minutes and one poll");
    // The first answer about a pair is not final, so that it is asked for again; then one poll.
    assert_eq!(start, 3 * objects);
    assert_eq!(count("create"), objects);

    sleep(POLL).await;
    assert_eq!(calls() - start, objects, "a poll");
    assert_eq!(count("patch"), 0, "nothing has changed");
    println!("a poll without changes: {objects} calls, no request");

    let before = calls();
    refresh_of_one_volume(&simulation).await;
    println!("a volume without topology: {} calls", calls() - before);
    assert_eq!(calls() - before, segments);

    answer_capacity(&simulation, 2);
    let changed = took(|| count("patch") == objects).await;
    println!("all objects changed {changed:?} after the sizes did: {objects} patches");
    for (what, (count, bytes)) in requests(&simulation) {
        if what.ends_with("csistoragecapacities") {
            println!("{what}: {count} requests, {bytes} bytes of answers");
        }
    }
}

/// A volume is created for a claim of the first class.
async fn refresh_of_one_volume(simulation: &Simulation) {
    let mut claim = claim("data");
    claim["spec"]["storageClassName"] = json!("class-0");
    claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("node-0");
    simulation.create(&claim);
    took(|| simulation.calls("CreateVolume") == 1).await;
    sleep(Duration::from_secs(60)).await;
}

// === A take-over ===

/// How long each request of a list takes here.
const LIST: Duration = Duration::from_secs(10);

fn without_identity(mut object: Value) -> Value {
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// Bound claims with their volumes. Prints how large they are as clients see them; the server keeps no
/// `managedFields`.
fn add_pairs(simulation: &Simulation, pairs: usize) {
    let family = Family {
        driver: DRIVER.to_owned(),
        class: "fast".to_owned(),
        namespace: "sc".to_owned(),
        prefix: "bound-".to_owned(),
        labels: BTreeMap::new(),
    };
    let sizes = [family.bound_claim(0), family.volume(0, &family.uid("claim", 0), IN_USE)];
    let sizes = sizes.map(|object| object.to_string().len());
    println!("a claim and its volume in JSON with managedFields: {sizes:?} bytes");
    for number in 0..pairs {
        let claim = simulation.create(&without_identity(family.bound_claim(number)));
        let mut volume = family.volume(number, &claim, IN_USE);
        volume["metadata"]["name"] = json!(format!("pvc-{claim}"));
        simulation.api.create(&without_identity(volume)).unwrap();
    }
    simulation.api.compact();
}

/// Claims are served, and volumes are deleted, once claims and then PersistentVolumes are listed.
#[tokio::test(start_paused = true)]
async fn a_take_over_among_many_pairs() {
    let pairs = size("SCALE_PAIRS", 1_000);
    let simulation = Simulation::new(1);
    add_pairs(&simulation, pairs);
    let leader = simulation.start_elected("a");
    simulation.until("a leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    let released = simulation.create_claim("released");
    simulation.until("it is saved", |s| s.is_saved(&released)).await;
    simulation.start_elected("b");
    sleep(Duration::from_secs(30)).await;
    for plural in ["persistentvolumeclaims", "persistentvolumes"] {
        simulation.faults().add(Rule::on("list", plural, Effect::Delay(LIST)));
    }
    simulation.api.requests().clear();
    leader.kill();
    simulation.delete_claim("released");
    simulation.release(&released);
    let new = simulation.create_claim("new");
    let start = Instant::now();
    simulation.until("b leads", |s| s.lease_holder().as_deref() == Some("b")).await;
    let leads = start.elapsed();
    simulation.until("the new claim is served", |s| s.is_saved(&new)).await;
    let served = start.elapsed();
    simulation.until("the volume is deleted", |s| s.calls("DeleteVolume") == 1).await;
    let deleted = start.elapsed();
    println!("{pairs} pairs, {LIST:?} for each request of a list; after the leader was killed");
    println!("the other one leads after {leads:?}, serves a new claim after {served:?}");
    println!("and deletes a released volume after {deleted:?}");
    let all = requests(&simulation);
    for (what, (count, bytes)) in &all {
        println!("{what}: {count} requests, {bytes} bytes of answers");
    }
    // Pages of 1,000, of one object more than there are pairs.
    let lists = (pairs + 1).div_ceil(1_000);
    for plural in ["persistentvolumeclaims", "persistentvolumes"] {
        assert_eq!(all[&format!("list {plural}")].0, lists, "{plural}");
    }
    let listed = leads + LIST * 2 * u32::try_from(lists).unwrap();
    for done in [served, deleted] {
        assert!((listed..listed + Duration::from_secs(2)).contains(&done), "{listed:?}: {done:?}");
    }
}

// === Node deployment ===

/// How many nodes share claims, and what their watches cost.
#[tokio::test(start_paused = true)]
async fn watches_and_bids_of_many_nodes() {
    let (nodes, claims) = (size("SCALE_NODES", 20), size("SCALE_CLAIMS", 20));
    // One more node each 65 ms on average: a try takes about as long. The default is 20 s.
    let base = (nodes * 65).div_ceil(1000).max(20);
    let base_flag = format!("--node-deployment-base-delay={base}s");
    let max_flag = format!("--node-deployment-max-delay={}s", 3 * base);
    let wider = [base_flag.as_str(), max_flag.as_str()];
    let defaults = &[][..];
    let runs = if base > 20 { vec![defaults, &wider] } else { vec![defaults] };
    for flags in runs {
        let (cluster, cost) = share_with(1, nodes, claims, flags).await;
        println!("{nodes} nodes, {claims} claims, flags {flags:?}: {cost}");
        println!("median and last volume after {:?}", waits(&cluster.simulation));
        for (what, (count, bytes)) in requests(&cluster.simulation) {
            println!("  {what}: {count} requests, {bytes} bytes of answers");
            if what.starts_with("watch ") {
                assert_eq!(count, nodes, "{what}");
            }
        }
    }
}

/// When half of the PersistentVolumes, and when all of them were created.
fn waits(simulation: &Simulation) -> [f64; 2] {
    let created = simulation.api.requests().matching("create", "persistentvolumes");
    let start = simulation.api.list("PersistentVolumeClaim", "sc");
    let start = start.iter().filter_map(|claim| claim["metadata"]["creationTimestamp"].as_str());
    let start: jiff::Timestamp = start.min().unwrap().parse().unwrap();
    let since = |at: jiff::Timestamp| at.duration_since(start).as_secs_f64();
    let mut times: Vec<f64> = created.iter().map(|request| since(request.received)).collect();
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() - 1]]
}
