//! Open calls outlive the process that made them: the finalizer and the record on the claim.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::apiserver::faults::{Effect, Rule};
use tokio::time::sleep;

use super::world::{Process, Simulation};

const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";
const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";
const HOUR: Duration = Duration::from_secs(3600);

/// The claim `data`, while it exists.
fn data(simulation: &Simulation) -> Option<Value> {
    let claims = simulation.api.list("PersistentVolumeClaim", "sc");
    claims.into_iter().find(|claim| claim["metadata"]["name"] == "data")
}

fn is_marked(simulation: &Simulation) -> bool {
    data(simulation).is_some_and(|claim| {
        let finalizers = claim["metadata"]["finalizers"].as_array();
        finalizers.into_iter().flatten().any(|name| name == FINALIZER)
    })
}

/// What the claim's record says.
fn record(simulation: &Simulation) -> Value {
    let claim = data(simulation).unwrap();
    let text = claim["metadata"]["annotations"][RECORD].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

/// Waits until the deleted claim is gone, and its volume with it: by the ordinary release, where
/// it got a PersistentVolume.
async fn ends_without_a_leak(simulation: &Simulation, uid: &str) {
    simulation.until("the claim is gone", |s| data(s).is_none()).await;
    if simulation.is_saved(uid) {
        simulation.release(uid);
    }
    simulation.until("nothing is left", |s| s.left_at_driver().is_empty()).await;
    simulation.until("no volume is left", |s| s.volumes().is_empty()).await;
    assert_eq!(simulation.calls("DeleteVolume"), 1, "{}", simulation.trace());
}

/// Killed after the driver has made the volume, while the claim is in its very first call.
async fn killed_after_the_answer(flags: &[&str]) -> (Simulation, String) {
    let simulation = Simulation::new(1);
    simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::Hang));
    let process = simulation.start_with(flags);
    let uid = simulation.create_claim("data");
    simulation.until("the volume is made", |s| s.left_at_driver().len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    process.kill();
    simulation.faults().clear();
    (simulation, uid)
}

#[tokio::test(start_paused = true)]
async fn always_a_kill_after_the_answer_and_a_deleted_claim_leak_nothing() {
    let flags = ["--claim-protection=always"];
    let (simulation, uid) = killed_after_the_answer(&flags).await;
    simulation.delete_claim("data");
    sleep(Duration::from_secs(60)).await;
    simulation.start_with(&flags);
    ends_without_a_leak(&simulation, &uid).await;
    let requests = simulation.requests("CreateVolume");
    assert!(requests.len() == 2 && requests[0] == requests[1], "{requests:?}");
}

/// Stops the process and waits for its end.
async fn roll_out(simulation: &Simulation, process: &Process) {
    process.stop();
    simulation.until("the process ended", |_| process.outcome().is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn auto_a_call_that_was_aborted_outlives_a_rollout() {
    for creates in [true, false] {
        let simulation = Simulation::new(1);
        let aborted = json!({"error": {"code": "Aborted", "message": "busy"}, "creates": creates});
        simulation.script(json!({"create_volume": [aborted]}));
        let process = simulation.start();
        let uid = simulation.create_claim("data");
        simulation.until("the claim is protected", is_marked).await;
        roll_out(&simulation, &process).await;
        simulation.delete_claim("data");
        assert!(data(&simulation).is_some(), "the finalizer holds it");
        simulation.script(json!({"create_volume": [{}]}));
        simulation.start();
        ends_without_a_leak(&simulation, &uid).await;
    }
}
