//! What many claims cost that wait for one object: requests in an hour, and the time until all are served once
//! the object is there. In simulated time; prints its figures. `load --waiting` measures their memory.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{DRIVER, Simulation, claim};
use tokio::time::sleep;

const HOUR: Duration = Duration::from_secs(3600);
const ZONE: &str = "topology.example.com/zone";

/// How many events may be written about a claim in an hour: that an attempt begins, and why it failed, before
/// the last ones expire.
const EVENTS: usize = 4;

/// What the claims wait for.
struct Object {
    name: &'static str,
    claims: usize,
    /// How many other requests a claim may cost in an hour, besides watches: the attempt reads what is
    /// missing.
    reads: usize,
    /// How soon all claims must be served, in seconds, with a driver that takes no time: at once where a
    /// watch shows the object, else with the next poll.
    soon: u64,
    /// What there is before.
    begins: fn(&Simulation),
    appears: fn(&Simulation),
}

const OBJECTS: [Object; 3] = [
    Object {
        name: "class",
        claims: 400,
        reads: 2,
        soon: 5,
        begins: |_| {},
        appears: |simulation| class(simulation, &json!({}), "Immediate"),
    },
    Object {
        name: "secret",
        claims: 100,
        reads: 13,
        soon: 301,
        begins: |simulation| {
            let secret = json!({
                "csi.storage.k8s.io/provisioner-secret-name": "login",
                "csi.storage.k8s.io/provisioner-secret-namespace": "sc",
            });
            class(simulation, &secret, "Immediate");
        },
        appears: |simulation| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret",
                                "metadata": {"name": "login", "namespace": "sc"}});
            simulation.api.create(&secret).unwrap();
        },
    },
    Object {
        name: "label of the node",
        claims: 100,
        reads: 2,
        soon: 5,
        begins: |simulation| {
            node(simulation);
            class(simulation, &json!({}), "WaitForFirstConsumer");
        },
        appears: |simulation| {
            let label = json!({"metadata": {"labels": {ZONE: "a"}}});
            simulation.api.merge("Node", "", "n0", &label).unwrap();
        },
    },
];

fn class(simulation: &Simulation, parameters: &Value, binding: &str) {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
                       "provisioner": DRIVER, "parameters": parameters, "volumeBindingMode": binding});
    simulation.api.create(&class).unwrap();
}

/// The driver knows of zones, and its plugin is on the node `n0`, which has none.
fn node(simulation: &Simulation) {
    simulation.script(json!({
        "plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"],
    }));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}});
    let drivers = json!([{"name": DRIVER, "nodeID": "n0", "topologyKeys": [ZONE]}]);
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                          "metadata": {"name": "n0"}, "spec": {"drivers": drivers}});
    simulation.api.create(&node).unwrap();
    simulation.api.create(&csi_node).unwrap();
}

/// A cluster with the claims, whose pods run on `n0`.
fn cluster(object: &Object) -> Simulation {
    let simulation = Simulation::new(1);
    (object.begins)(&simulation);
    for number in 0..object.claims {
        let mut claim = claim(&format!("data-{number}"));
        claim["spec"]["storageClassName"] = json!("late");
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n0");
        simulation.create(&claim);
    }
    simulation
}

/// Requests that were recorded: events, and others but watches.
fn requests(simulation: &Simulation) -> [usize; 2] {
    let requests = simulation.api.requests().all();
    let events = requests.iter().filter(|request| request.info.resource == "events").count();
    let watches = requests.iter().filter(|request| request.info.verb == "watch").count();
    [events, requests.len() - events - watches]
}

async fn cost_little(object: &Object, idle: usize) {
    let simulation = cluster(object);
    let [events, others] = in_an_hour(&simulation).await;
    (object.appears)(&simulation);
    let all = object.claims;
    let took = simulation.until("all are saved", |s| s.api.count("PersistentVolume") == all).await;
    println!(
        "{all} claims wait for a {}: in an hour {events} events and {others} other requests ({idle} without claims); all are served after {took:?}",
        object.name
    );
    let soon = Duration::from_secs(object.soon);
    assert!(
        events <= EVENTS * all && others <= idle + object.reads * all && took <= soon,
        "see above"
    );
}

/// The requests of the program in an hour, once it has settled.
async fn in_an_hour(simulation: &Simulation) -> [usize; 2] {
    let _process = simulation.start_with(&["--feature-gates=Topology=true"]);
    sleep(Duration::from_secs(600)).await;
    simulation.api.requests().clear();
    sleep(HOUR).await;
    requests(simulation)
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_cost_little_and_are_served_soon() {
    let [_, idle] = in_an_hour(&Simulation::new(1)).await;
    for object in &OBJECTS {
        cost_little(object, idle).await;
    }
}
