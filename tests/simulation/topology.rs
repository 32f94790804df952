//! Where volumes may be, in simulated time: nodes that come, go and change their labels while
//! claims are worked on, nodes that are given back, and open calls that stay what they were.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use support::simulation::{DRIVER, Process, Simulation, claim, class, csi_node, node};
use testkit::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};
use tokio::time::sleep;

const ZONE: &str = "disk.example.com/zone";
const RACK: &str = "disk.example.com/rack";
const SELECTED: &str = "volume.kubernetes.io/selected-node";
const FAILED: &str = "ProvisioningFailed";

/// A retry this long after a failure is no retry within a test.
const NO_RETRY: [&str; 2] = ["--retry-interval-start=2h", "--retry-interval-max=2h"];

/// A cluster without nodes, whose driver knows of places; the class binds late.
fn cluster(seed: u64) -> Simulation {
    let simulation = Simulation::new(seed);
    simulation.script(json!({
        "plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"],
    }));
    simulation.create(&class("late", &json!({"volumeBindingMode": "WaitForFirstConsumer"})));
    simulation
}

/// The same with a node in each of these zones: n0, n1 and so on.
fn zonal(seed: u64, zones: &[&str]) -> Simulation {
    let simulation = cluster(seed);
    for (number, zone) in zones.iter().enumerate() {
        add_node(&simulation, &format!("n{number}"), &[(ZONE, zone)]);
        register(&simulation, &format!("n{number}"), &[ZONE]);
    }
    simulation
}

fn add_node(simulation: &Simulation, name: &str, labels: &[(&str, &str)]) {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    simulation.create(&node(name, &json!(labels)));
}

fn label(simulation: &Simulation, node: &str, key: &str, value: Option<&str>) {
    let labels = json!({"metadata": {"labels": {key: value}}});
    simulation.api.merge("Node", "", node, &labels).unwrap();
}

fn drivers(node: &str, keys: &[&str]) -> Value {
    json!({"spec": {"drivers": [{"name": DRIVER, "nodeID": node, "topologyKeys": keys}]}})
}

/// The driver's node plugin registers on the node.
fn register(simulation: &Simulation, node: &str, keys: &[&str]) {
    simulation.create(&csi_node(node, keys));
}

/// It registers anew, with these keys.
fn register_anew(simulation: &Simulation, node: &str, keys: &[&str]) {
    let unregistered = json!({"spec": {"drivers": []}});
    simulation.api.merge("CSINode", "", node, &unregistered).unwrap();
    simulation.api.merge("CSINode", "", node, &drivers(node, keys)).unwrap();
}

/// The node goes, with its CSINode.
fn remove_node(simulation: &Simulation, node: &str) {
    for kind in ["CSINode", "Node"] {
        simulation.api.delete(kind, "", node).unwrap();
    }
}

/// Makes a claim for the node that the scheduler chose; gives its UID.
fn create_for(simulation: &Simulation, name: &str, node: &str) -> String {
    let mut claim = claim(name);
    claim["spec"]["storageClassName"] = json!("late");
    claim["metadata"]["annotations"][SELECTED] = json!(node);
    simulation.create(&claim)
}

/// The scheduler chooses a node.
fn select(simulation: &Simulation, claim: &str, node: Option<&str>) {
    let chosen = json!({"metadata": {"annotations": {SELECTED: node}}});
    simulation.api.merge("PersistentVolumeClaim", "sc", claim, &chosen).unwrap();
}

fn selected(simulation: &Simulation, claim: &str) -> Option<String> {
    let claim = simulation.api.get("PersistentVolumeClaim", "sc", claim)?;
    claim["metadata"]["annotations"][SELECTED].as_str().map(str::to_owned)
}

/// What the calls for volumes asked for.
fn requirements(simulation: &Simulation) -> Vec<Value> {
    let requests = simulation.requests("CreateVolume");
    requests.into_iter().map(|request| request["accessibility_requirements"].clone()).collect()
}

/// The preferred place of a requirement.
fn best(requirement: &Value) -> Value {
    requirement["preferred"][0]["segments"].clone()
}

/// Waits until the claim is served, which must take less than a second.
async fn is_served_at_once(simulation: &Simulation, uid: &str) {
    let took = simulation.until("the volume is saved", |s| s.is_saved(uid)).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

async fn fails(simulation: &Simulation, claim: &str) {
    simulation.until("the failure is reported", |s| s.has_event(claim, FAILED)).await;
    sleep(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_for_a_node_without_the_driver_goes_on_once_the_driver_is_there() {
    let simulation = zonal(1, &["a"]);
    add_node(&simulation, "new", &[(ZONE, "b")]);
    let other = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "new"},
                       "spec": {"drivers": []}});
    simulation.api.create(&other).unwrap();
    simulation.start_with(&NO_RETRY);
    let uid = create_for(&simulation, "data", "new");
    fails(&simulation, "data").await;
    assert_eq!(
        simulation.event_messages("data", FAILED),
        ["error generating accessibility requirements: no topology key found for node new"]
    );
    // What happens elsewhere is no news for this claim.
    label(&simulation, "n0", ZONE, Some("c"));
    sleep(Duration::from_secs(60)).await;
    simulation.api.merge("CSINode", "", "new", &drivers("new", &[ZONE])).unwrap();
    is_served_at_once(&simulation, &uid).await;
    assert_eq!(
        requirements(&simulation).iter().map(best).collect::<Vec<_>>(),
        [json!({ZONE: "b"})]
    );
    assert_eq!(simulation.event_messages("data", FAILED).len(), 1);
}

/// Labels are kept for known keys only: a key that a driver learns must not find them missing.
#[tokio::test(start_paused = true)]
async fn a_driver_that_learns_a_key_finds_the_labels_that_nodes_had_all_along() {
    let simulation = cluster(1);
    for (node, zone, rack) in [("n0", "a", "r0"), ("n1", "b", "r1")] {
        add_node(&simulation, node, &[(ZONE, zone), (RACK, rack)]);
        register(&simulation, node, &[ZONE]);
    }
    simulation.start_with(&NO_RETRY);
    let uid = create_for(&simulation, "one", "n0");
    is_served_at_once(&simulation, &uid).await;
    let lists = |s: &Simulation| s.api_requests("list", "nodes") + s.api_requests("watch", "nodes");
    let before = lists(&simulation);
    for node in ["n0", "n1"] {
        register_anew(&simulation, node, &[ZONE, RACK]);
    }
    sleep(Duration::from_secs(5)).await;
    let uid = create_for(&simulation, "two", "n0");
    is_served_at_once(&simulation, &uid).await;
    let place = |zone: &str, rack: &str| json!({"segments": {ZONE: zone, RACK: rack}});
    let both = [place("a", "r0"), place("b", "r1")];
    assert_eq!(requirements(&simulation)[1]["requisite"], json!([both[0], both[1]]));
    assert!(lists(&simulation) - before <= 2, "Nodes are listed once for a new key");
    assert!(simulation.event_messages("two", FAILED).is_empty());
}

/// The first new key is taken up at once, as when a driver is installed.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_registers_ever_new_keys_costs_one_list_of_nodes_a_minute() {
    let simulation = zonal(1, &["a", "b"]);
    simulation.start();
    sleep(Duration::from_secs(5)).await;
    let lists = || simulation.api_requests("list", "nodes");
    let before = lists();
    for number in 0..1200 {
        register_anew(&simulation, "n1", &[&format!("disk.example.com/key-{number}")]);
        sleep(Duration::from_millis(250)).await;
    }
    let made = lists() - before;
    assert!((4..=6).contains(&made), "{made} in five minutes");
    let uid = create_for(&simulation, "data", "n0");
    is_served_at_once(&simulation, &uid).await;
}

#[tokio::test(start_paused = true)]
async fn heartbeats_and_other_labels_wake_nobody_and_cost_no_request() {
    let simulation = zonal(1, &["a", "b"]);
    add_node(&simulation, "new", &[]);
    register(&simulation, "new", &[ZONE]);
    simulation.start_with(&NO_RETRY);
    create_for(&simulation, "data", "new");
    fails(&simulation, "data").await;
    let before = simulation.api.requests().all().len();
    for beat in 0..100 {
        for node in ["n0", "n1", "new"] {
            label(&simulation, node, "beat", Some(&beat.to_string()));
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(simulation.api.requests().all().len(), before, "{}", simulation.trace());
    assert_eq!(simulation.event_messages("data", FAILED).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_room_is_given_back_and_the_next_one_asked_for() {
    let simulation = zonal(1, &["a", "b"]);
    let full = json!({"error": {"code": "RESOURCE_EXHAUSTED", "message": "full"}, "times": 1});
    simulation.script(json!({"create_volume": [full, {}]}));
    simulation.start();
    let uid = create_for(&simulation, "data", "n0");
    simulation.until("the node is given back", |s| selected(s, "data").is_none()).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1, "nobody chose a node");
    select(&simulation, "data", Some("n1"));
    is_served_at_once(&simulation, &uid).await;
    let asked: Vec<Value> = requirements(&simulation).iter().map(best).collect();
    assert_eq!(asked, [json!({ZONE: "a"}), json!({ZONE: "b"})]);
}

/// A call may still make a volume for the node, so the node stays (safety rule 4).
#[tokio::test(start_paused = true)]
async fn a_node_is_not_given_back_while_a_call_may_be_running() {
    let simulation = zonal(1, &["a", "b"]);
    let answer =
        |code: &str, times: u32| json!({"error": {"code": code, "message": "m"}, "times": times});
    simulation.script(
        json!({"create_volume": [answer("ABORTED", 1), answer("RESOURCE_EXHAUSTED", 3), {}]}),
    );
    simulation.start();
    let uid = create_for(&simulation, "data", "n0");
    simulation.until("the first call is open", |s| s.calls("CreateVolume") == 1).await;
    remove_node(&simulation, "n0");
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    assert_eq!(selected(&simulation, "data").as_deref(), Some("n0"));
    let asked = simulation.requests("CreateVolume");
    assert!(asked.len() == 5 && asked.iter().all(|request| *request == asked[0]), "{asked:?}");
}

/// Once its node is given back, the place of an open call is recorded no more: after a restart the claim is
/// asked for where the next node is.
#[tokio::test(start_paused = true)]
async fn the_place_of_a_node_that_was_given_back_is_not_waited_for_after_a_restart() {
    let simulation = zonal(1, &["a", "b"]);
    let busy = json!({"error": {"code": "ABORTED", "message": "m"}, "times": 1});
    let full = json!({"error": {"code": "RESOURCE_EXHAUSTED", "message": "full"}});
    simulation.script(json!({"create_volume": [busy, full]}));
    let process = simulation.start_with(&["--strict-topology"]);
    let uid = create_for(&simulation, "data", "n0");
    simulation.until("the node is given back", |s| selected(s, "data").is_none()).await;
    sleep(Duration::from_secs(60)).await;
    simulation.until_stopped(&process).await;
    simulation.script(json!({"create_volume": [{}]}));
    simulation.start_with(&["--strict-topology"]);
    select(&simulation, "data", Some("n1"));
    let took = simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(best(requirements(&simulation).last().unwrap()), json!({ZONE: "b"}));
}

/// A claim that waits for the list of nodes says so.
#[tokio::test(start_paused = true)]
async fn a_claim_has_an_event_while_nodes_cannot_be_listed() {
    for (plural, kind) in [("csinodes", "CSINodes"), ("nodes", "Nodes")] {
        let simulation = zonal(1, &["a"]);
        let down = Effect::Answer(Status::unavailable("down"));
        simulation.faults().add(Rule::on("list", plural, down));
        simulation.start();
        let uid = create_for(&simulation, "data", "n0");
        sleep(Duration::from_secs(130)).await;
        let why = format!(
            "{kind} are not listed yet, and nothing is asked for before: the log says why, as does /readyz"
        );
        assert_eq!(simulation.event_messages("data", FAILED), [why]);
        assert_eq!(simulation.calls("CreateVolume"), 0);
        simulation.faults().clear();
        simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    }
}

/// The watch of claims is down: what is known of the claim still names the node.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_given_back_is_not_asked_for_again_however_late_the_watch_is() {
    let simulation = zonal(1, &["a", "b"]);
    let full =
        json!({"error": {"code": "RESOURCE_EXHAUSTED", "message": "full"}, "delay_ms": 2000});
    simulation.script(json!({"create_volume": [full]}));
    simulation.start();
    create_for(&simulation, "data", "n0");
    simulation.until("the call runs", |s| s.calls_under_way("CreateVolume") == 1).await;
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    simulation.api.merge("PersistentVolumeClaim", "sc", "data", &touched).unwrap();
    sleep(Duration::from_millis(100)).await;
    let down = Effect::Answer(Status::unavailable("down"));
    simulation.faults().add(Rule::on("watch", "persistentvolumeclaims", down));
    simulation.api.watches().cut(Some("persistentvolumeclaims"));
    simulation.until("the node is given back", |s| selected(s, "data").is_none()).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1, "{}", simulation.trace());
    simulation.faults().clear();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
}

/// Two claims whose calls are open, in a cluster where nothing is any more as it was at the calls.
async fn open_calls_in_a_changed_cluster(flags: &[&str]) -> (Simulation, Process, [String; 2]) {
    let simulation = zonal(1, &["a", "b", "c"]);
    let busy = json!({"error": {"code": "ABORTED", "message": "busy"}});
    simulation.script(json!({"create_volume": [busy]}));
    let process = simulation.start_with(flags);
    let uids = [create_for(&simulation, "late", "n1"), simulation.create_claim("data-web-2")];
    simulation.until("both calls are open", |s| s.calls("CreateVolume") >= 2).await;
    sleep(Duration::from_secs(5)).await;
    label(&simulation, "n0", ZONE, Some("x"));
    remove_node(&simulation, "n1");
    add_node(&simulation, "n9", &[(ZONE, "z")]);
    register(&simulation, "n9", &[ZONE]);
    select(&simulation, "late", Some("n9"));
    (simulation, process, uids)
}

/// The same request, byte for byte, as long as the process lives.
#[tokio::test(start_paused = true)]
async fn an_open_call_is_repeated_as_it_was() {
    let (simulation, _process, uids) = open_calls_in_a_changed_cluster(&[]).await;
    sleep(Duration::from_secs(60)).await;
    simulation.script(json!({"create_volume": [{}]}));
    for uid in &uids {
        simulation.until("the volume is saved", |s| s.is_saved(uid)).await;
        assert_one_request(&simulation, uid);
    }
    let after = create_for(&simulation, "after", "n9");
    is_served_at_once(&simulation, &after).await;
    assert_eq!(best(requirements(&simulation).last().unwrap()), json!({ZONE: "z"}));
}

/// After a restart only what would be asked for now is asked for: while the preferred place is none of
/// that, the call waits.
#[tokio::test(start_paused = true)]
async fn a_recorded_call_waits_until_its_preferred_place_is_to_be_had() {
    for strict in [false, true] {
        let flags: &[&str] = if strict { &["--strict-topology"] } else { &[] };
        let (simulation, process, [late, _]) = open_calls_in_a_changed_cluster(flags).await;
        simulation.until_stopped(&process).await;
        simulation.script(json!({"create_volume": [{}]}));
        let before = calls_for(&simulation, &late).len();
        simulation.start_with(flags);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(calls_for(&simulation, &late).len(), before);
        let messages = simulation.event_messages("late", "ProvisioningFailed");
        assert!(
            messages.iter().any(|text| text.contains("the place that it preferred")),
            "{messages:?}"
        );
        add_node(&simulation, "n1", &[(ZONE, "b")]);
        register(&simulation, "n1", &[ZONE]);
        select(&simulation, "late", Some("n1"));
        simulation.until("the volume is saved", |s| s.is_saved(&late)).await;
        let asked = calls_for(&simulation, &late);
        let requirement = &asked.last().unwrap()["accessibility_requirements"];
        assert_eq!(requirement["preferred"][0]["segments"], json!({ZONE: "b"}));
    }
}

/// As long as a deleted claim is kept, and no longer: then it is asked for as a new one is.
#[tokio::test(start_paused = true)]
async fn a_recorded_call_whose_place_is_gone_is_given_up_with_a_warning() {
    let flags = ["--claim-protection-timeout=2m"];
    let (simulation, process, [late, _]) = open_calls_in_a_changed_cluster(&flags).await;
    simulation.until_stopped(&process).await;
    simulation.script(json!({"create_volume": [{}]}));
    simulation.start_with(&flags);
    simulation.until("the volume is saved", |s| s.is_saved(&late)).await;
    let messages = simulation.event_messages("late", "ProvisioningFailed");
    assert!(messages.iter().any(|text| text.contains("it is asked for elsewhere")), "{messages:?}");
    assert_eq!(best(requirements(&simulation).last().unwrap()), json!({ZONE: "z"}));
}

/// All calls for the claim's volume were the same.
fn assert_one_request(simulation: &Simulation, uid: &str) {
    let asked = calls_for(simulation, uid);
    assert!(asked.iter().all(|request| *request == asked[0]), "{asked:#?}");
}

fn calls_for(simulation: &Simulation, uid: &str) -> Vec<Value> {
    let name = json!(format!("pvc-{uid}"));
    simulation.requests("CreateVolume").into_iter().filter(|call| call["name"] == name).collect()
}

#[tokio::test(start_paused = true)]
async fn with_the_gate_off_or_without_the_capability_nodes_are_not_looked_at() {
    for gate_off in [true, false] {
        let simulation = zonal(1, &["a"]);
        if !gate_off {
            simulation.script(json!({"plugin_capabilities": ["CONTROLLER_SERVICE"]}));
        }
        let off: &[&str] = if gate_off { &["--feature-gates=Topology=false"] } else { &[] };
        simulation.start_with(off);
        let uid = create_for(&simulation, "data", "nowhere");
        is_served_at_once(&simulation, &uid).await;
        assert_eq!(requirements(&simulation), [Value::Null]);
        for kind in ["nodes", "csinodes"] {
            assert_eq!(simulation.api.watches().count(kind), 0);
        }
    }
}
