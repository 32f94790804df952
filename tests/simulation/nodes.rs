//! Many processes, one a node, that share the claims of a driver of node-local volumes, in
//! simulated time: `app::run` on each node beside a driver of its own.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use support::{
    connector::connector,
    nodes::{Cluster, GIB, SELECTED, selected, share},
    simulation::{DRIVER, Simulation, claim},
};
use testkit::{
    apiserver::faults::{Effect, Rule},
    driver::{Host, Script, Scripted, local::NODE_KEY},
};
use tokio::time::sleep;

const PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// `cargo bench --bench nodes` does the same with 100 nodes and 1,000 claims.
#[tokio::test(start_paused = true)]
async fn many_nodes_share_many_claims_without_getting_in_each_others_way() {
    let claims = 150;
    let cost = share(1, 20, claims).await;
    assert!(cost.conflicts <= claims / 10, "{cost}");
    assert_eq!(cost.puts, claims + cost.conflicts, "a PUT that is no conflict wins: {cost}");
    assert!(cost.gets <= 2 * claims, "{cost}");
    assert!(cost.capacity_calls <= 2 * claims, "{cost}");
}

/// The protection finalizer comes and goes once, by the process that reaches the volume first; where that one is
/// gone for good, by another.
#[tokio::test(start_paused = true)]
async fn the_finalizer_is_looked_after_by_the_node_that_reaches_the_volume_or_else_by_another() {
    let cluster = Cluster::new(1, &[1; 10]);
    let uid = cluster.simulation.create_claim("data");
    cluster.until_saved(1).await;
    let owner = cluster.owner("data").unwrap();
    let name = format!("pvc-{uid}");
    let change = |policy: &str, finalizers: Value| {
        let change = json!({"metadata": {"finalizers": finalizers}, "spec": {"persistentVolumeReclaimPolicy": policy}});
        cluster.simulation.api.merge("PersistentVolume", "", &name, &change).unwrap();
    };
    let is_protected =
        |s: &Simulation| s.volumes()[0]["metadata"]["finalizers"] == json!([PROTECTION]);
    let patches = || cluster.simulation.api_requests("patch", "persistentvolumes");
    let all = async |policy: &str, finalizers: Value, patience: u64, comes: bool| {
        let before = patches();
        change(policy, finalizers);
        sleep(Duration::from_secs(patience)).await;
        assert_eq!(is_protected(&cluster.simulation), comes);
        patches() - before
    };
    cluster.simulation.phase(&name, "Bound");
    assert_eq!(all("Retain", json!([PROTECTION]), 30, false).await, 1);
    assert_eq!(all("Delete", Value::Null, 30, true).await, 1);

    cluster.nodes[&owner].process.kill();
    assert!((1..=2).contains(&all("Retain", json!([PROTECTION]), 30, false).await));
    assert!((1..=2).contains(&all("Delete", Value::Null, 1800, true).await));
}

/// A node without capacity leaves a claim to others; if no node has capacity the claim is asked for again
/// and taken once there is some, and its user gets no event for each node's refusal.
#[tokio::test(start_paused = true)]
async fn a_claim_that_fits_nowhere_is_taken_once_it_fits() {
    let mut cluster = Cluster::new(1, &[0, 1, 0]);
    cluster.simulation.create_claim("first");
    cluster.until_saved(1).await;
    assert_eq!(cluster.owner("first").as_deref(), Some("n1"));
    cluster.simulation.create_claim("second");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(cluster.owner("second"), None);
    let asked = cluster.calls("GetCapacity");
    assert!(asked.values().all(|times| (8..40).contains(times)), "with back-off: {asked:?}");
    assert!(!cluster.simulation.has_event("second", "ProvisioningFailed"));

    cluster.add("n3", 1, &[]);
    cluster.until_saved(2).await;
    cluster.check_volumes(2);
    assert_eq!(cluster.owner("second").as_deref(), Some("n3"));
}

/// Starts the program on a node whose driver says that it has room, and answers CreateVolume so.
fn start_scripted(cluster: &Cluster, node: &str, create_volume: &Value) -> Arc<Host<Scripted>> {
    let script: Script = serde_json::from_value(json!({
        "name": DRIVER, "plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"],
        "controller_capabilities": ["CREATE_DELETE_VOLUME", "GET_CAPACITY"],
        "node": {"node_id": node, "topology": {NODE_KEY: node}},
        "get_capacity": [{"available_capacity": GIB}],
        "create_volume": create_volume,
    }))
    .unwrap();
    let driver = Arc::new(Host::new(Scripted::new(script)));
    cluster.simulation.start_on(node, connector(&driver), &[]);
    driver
}

/// A driver that has less capacity than it says gives the claim back, and in the end another has it;
/// nobody spins meanwhile.
#[tokio::test(start_paused = true)]
async fn a_node_that_gives_a_claim_back_races_for_it_again() {
    let mut cluster = Cluster::new(1, &[]);
    let full = json!({"error": {"code": "RESOURCE_EXHAUSTED", "message": "full after all"}});
    let liar = start_scripted(&cluster, "liar", &json!([full]));
    cluster.simulation.create_claim("data");
    sleep(Duration::from_secs(600)).await;
    let tries = liar.journal().count("CreateVolume");
    assert!((20..100).contains(&tries), "one about each 10 seconds, in the mean: {tries}");
    assert_eq!(liar.journal().count("GetCapacity"), tries, "one question a try");

    cluster.add("honest", 1, &[]);
    cluster.until_saved(1).await;
    cluster.check_volumes(1);
}

/// A node that gave a claim back after an open call serves it when it is chosen again: the call is reported, and
/// nothing stands in the way of another.
#[tokio::test(start_paused = true)]
async fn a_node_that_gave_a_claim_back_after_an_open_call_may_be_chosen_again() {
    let cluster = Cluster::new(1, &[]);
    let error =
        |code: &str, times: u32| json!({"error": {"code": code, "message": "m"}, "times": times});
    let answers = json!([error("ABORTED", 1), error("RESOURCE_EXHAUSTED", 12), {}]);
    start_scripted(&cluster, "only", &answers);
    cluster.simulation.create_claim("data");
    cluster.until_saved(1).await;
    let texts = cluster.simulation.event_messages("data", "ProvisioningFailed");
    let reports = texts.iter().filter(|text| text.starts_with("the selected node is given back"));
    assert_eq!(reports.count(), 1, "{texts:?}");
}

/// Two nodes; the claim `data` has a call open on `n0`, whose driver does not answer.
async fn stalled_on_n0() -> Cluster {
    let cluster = Cluster::new(1, &[1; 2]);
    stall_on_n0(&cluster).await;
    cluster
}

async fn stall_on_n0(cluster: &Cluster) {
    cluster.nodes["n0"].driver.backend().stall(true);
    cluster.simulation.api.create(&selected(claim("data"), "n0")).unwrap();
    let warned = |s: &Simulation| s.has_event("data", "ProvisioningFailed");
    cluster.simulation.until("the call has timed out", warned).await;
    sleep(Duration::from_secs(1)).await;
}

/// Somebody changes the node while a call is open: it is followed to its end where it was made, and
/// the other node makes no second volume.
#[tokio::test(start_paused = true)]
async fn an_open_call_is_followed_where_it_was_made_whatever_node_is_chosen_then() {
    let cluster = stalled_on_n0().await;
    let moved = json!({"metadata": {"annotations": {SELECTED: "n1"}}});
    cluster.simulation.api.merge("PersistentVolumeClaim", "sc", "data", &moved).unwrap();
    let waits = "a CreateVolume that was made for the claim on node \"n0\" may still run: it is followed to its end there";
    let reported = |s: &Simulation| {
        s.event_messages("data", "ProvisioningFailed").iter().any(|text| text == waits)
    };
    cluster.simulation.until("the other node waits", reported).await;
    cluster.nodes["n0"].driver.backend().stall(false);
    cluster.until_saved(1).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.handles(), cluster.left_at_drivers());
    assert_eq!(cluster.calls("CreateVolume")["n1"], 0);
}

/// A claim that moves to another node still stands: its class as it is at the end says the policy
/// (seed 624862).
#[tokio::test(start_paused = true)]
async fn a_volume_of_a_claim_that_has_moved_gets_the_policy_of_its_class() {
    let cluster = Cluster::new(1, &[1; 2]);
    let class = cluster.simulation.api.list("StorageClass", "").remove(0);
    let name = class["metadata"]["name"].as_str().unwrap();
    let make_again = |policy: &str| {
        cluster.simulation.api.delete("StorageClass", "", name).unwrap();
        let mut class = class.clone();
        class["metadata"] = json!({"name": name});
        class["reclaimPolicy"] = json!(policy);
        cluster.simulation.api.create(&class).unwrap();
    };
    make_again("Retain");
    stall_on_n0(&cluster).await;
    make_again("Delete");
    let moved = json!({"metadata": {"annotations": {SELECTED: "n1"}}});
    cluster.simulation.api.merge("PersistentVolumeClaim", "sc", "data", &moved).unwrap();
    sleep(Duration::from_secs(10)).await;
    cluster.nodes["n0"].driver.backend().stall(false);
    cluster.until_saved(1).await;
    let volume = cluster.simulation.volumes().remove(0);
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
}

/// While the Node of a dead process stands, its call may still be followed there, until a deleted claim has
/// waited for `--claim-protection-timeout`.
#[tokio::test(start_paused = true)]
async fn a_deleted_claim_is_released_and_a_live_one_served_once_its_node_is_gone() {
    let of_gone_node = "the node whose CreateVolume for this claim";
    let of_timeout = "within --claim-protection-timeout";
    for (is_deleted, goes, report) in
        [(true, true, of_gone_node), (true, false, of_timeout), (false, true, of_gone_node)]
    {
        let cluster = stalled_on_n0().await;
        let api = &cluster.simulation.api;
        cluster.nodes["n0"].process.kill();
        if is_deleted {
            cluster.simulation.delete_claim("data");
        } else {
            let moved = json!({"metadata": {"annotations": {SELECTED: "n1"}}});
            api.merge("PersistentVolumeClaim", "sc", "data", &moved).unwrap();
        }
        let reports = || {
            let all = cluster.simulation.event_messages("data", "ProvisioningFailed");
            all.iter().filter(|text| text.contains(report)).count()
        };
        sleep(Duration::from_secs(1800)).await;
        assert!(api.get("PersistentVolumeClaim", "sc", "data").is_some());
        assert_eq!((reports(), cluster.calls("CreateVolume")["n1"]), (0, 0));
        if goes {
            api.delete("Node", "", "n0").unwrap();
        }
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(reports(), 1, "{is_deleted} {goes}");
        if is_deleted {
            assert!(api.get("PersistentVolumeClaim", "sc", "data").is_none());
        } else {
            assert_eq!(cluster.simulation.volumes().len(), 1);
            assert_eq!(cluster.calls("CreateVolume")["n1"], 1);
        }
    }
}

/// The answer is lost to the write that takes the record of a gone node off a claim: its sender reports the
/// call all the same, as nobody else will.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_perhaps_let_go_is_reported() {
    for is_deleted in [true, false] {
        let cluster = stalled_on_n0().await;
        let api = &cluster.simulation.api;
        cluster.nodes["n0"].process.kill();
        api.delete("Node", "", "n0").unwrap();
        let lost = Rule::on("update", "persistentvolumeclaims", Effect::CutAfter).times(1);
        cluster.simulation.faults().add(lost);
        if is_deleted {
            cluster.simulation.delete_claim("data");
        } else {
            let moved = json!({"metadata": {"annotations": {SELECTED: "n1"}}});
            api.merge("PersistentVolumeClaim", "sc", "data", &moved).unwrap();
        }
        sleep(Duration::from_secs(3600)).await;
        let is_gone = api.get("PersistentVolumeClaim", "sc", "data").is_none();
        assert_eq!((is_gone, cluster.simulation.volumes().is_empty()), (is_deleted, is_deleted));
        let reported = cluster.simulation.event_messages("data", "ProvisioningFailed");
        let is_report =
            |text: &&String| text.contains("the node whose CreateVolume for this claim");
        assert_eq!(reported.iter().filter(is_report).count(), 1, "{reported:?}");
    }
}

/// Claims that wait for their turn hold no worker: this node's own claims do not wait for them.
#[tokio::test(start_paused = true)]
async fn claims_of_nobody_do_not_hold_up_the_nodes_own() {
    let cluster = Cluster::with(
        1,
        &[100],
        &[
            "--worker-threads=1",
            "--node-deployment-base-delay=1m",
            "--node-deployment-max-delay=1m",
        ],
    );
    for number in 0..50 {
        cluster.simulation.create_claim(&format!("data-{number}"));
    }
    sleep(Duration::from_millis(500)).await;
    cluster.simulation.api.create(&selected(claim("own"), "n0")).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(cluster.simulation.has_event("own", "ProvisioningSucceeded"));
    cluster.until_saved(51).await;
    cluster.check_volumes(51);
}

/// An API server that lets no node be selected is reported, with external-provisioner's text.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_written_is_reported() {
    let cluster = Cluster::new(1, &[1]);
    cluster.simulation.refuse("update", "persistentvolumeclaims", 3);
    cluster.simulation.create_claim("data");
    let reported = |s: &Simulation| s.has_event("data", "ProvisioningFailed");
    cluster.simulation.until("it is reported", reported).await;
    let text = cluster.simulation.event_messages("data", "ProvisioningFailed").remove(0);
    let words = "node check failed: PVC sc/data: selecting node \"n0\" for PVC failed: ";
    assert!(text.starts_with(words), "{text}");
    cluster.until_saved(1).await;
    cluster.check_volumes(1);
}

/// A user writes the record of another node on claims of his own, and deletes them.
#[tokio::test(start_paused = true)]
async fn forged_records_of_another_node_cost_few_reads_of_that_node() {
    let cluster = Cluster::new(1, &[1; 3]);
    let api = &cluster.simulation.api;
    sleep(Duration::from_secs(5)).await;
    // Its own process would take them off at once.
    cluster.nodes["n0"].process.kill();
    let record = json!({"driver": DRIVER, "volume": "pvc-1", "node": "n0"}).to_string();
    for number in 0..50 {
        let mut forged = claim(&format!("forged-{number}"));
        forged["metadata"]["finalizers"] =
            json!(["provisioner.storage.kubernetes.io/provisioning-protection"]);
        forged["metadata"]["annotations"] =
            json!({"provisioner.storage.kubernetes.io/open-request": record});
        forged["spec"]["storageClassName"] = json!("none");
        api.create(&forged).unwrap();
        cluster.simulation.delete_claim(&format!("forged-{number}"));
    }
    sleep(Duration::from_secs(3000)).await;
    assert!(api.get("PersistentVolumeClaim", "sc", "forged-7").is_some());
    let reads = cluster.simulation.api_requests("get", "nodes");
    assert!((1..=400).contains(&reads), "{reads}");
    sleep(Duration::from_secs(1200)).await;
    assert!(api.get("PersistentVolumeClaim", "sc", "forged-7").is_none());
}
