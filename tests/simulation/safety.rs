//! Safety rules that only the whole program can keep, in simulated time: docs/safety.md names them.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{DRIVER, Simulation, foreign_volume, secret, with_secret};
use tokio::time::sleep;

/// The protection finalizer.
const PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// A PersistentVolume of ours under the name that the claim `uid` gets, for a claim that is gone.
fn released(simulation: &Simulation, uid: &str) {
    let mut volume = foreign_volume(uid, "gone", "handle");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
    simulation.api.create(&volume).unwrap();
    simulation.release(uid);
}

/// Rule 4: all is asked for as it was but the secrets, which an admin may have had to put right.
#[tokio::test(start_paused = true)]
async fn an_open_call_is_repeated_with_the_secrets_as_they_are_by_then() {
    let simulation = Simulation::scripted(
        json!({"create_volume": [{"error": {"code": "ABORTED"}, "times": 1}, {}]}),
    );
    let mut parameters = with_secret("key");
    parameters["pool"] = json!("a");
    simulation.replace_class(&json!({"parameters": parameters}));
    simulation.create(&secret("key", "first"));
    simulation.start();
    let uid = simulation.asked().await;
    simulation.api.delete("Secret", "sc", "key").unwrap();
    simulation.create(&secret("key", "second"));
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    let mut asked = simulation.requests("CreateVolume");
    let secrets: Vec<_> = asked.iter_mut().map(|request| request["secrets"].take()).collect();
    assert_eq!(secrets, [json!({"key": "first"}), json!({"key": "second"})]);
    assert_eq!(asked[0], asked[1], "all else is the same");
}

/// Rule 5. Somebody takes the PersistentVolume away while its volume is being deleted, so nothing
/// else holds the claim back that will get a volume of the same name.
#[tokio::test(start_paused = true)]
async fn while_a_volume_is_being_deleted_none_of_its_name_is_made() {
    let simulation = Simulation::scripted(json!({"delete_volume": [{"delay_ms": 8000}]}));
    let uid = simulation.create_claim("data");
    released(&simulation, &uid);
    simulation.start();
    simulation.until("the deletion runs", |s| s.calls("DeleteVolume") == 1).await;
    simulation.force_delete_volume(&uid);
    while simulation.calls_under_way("DeleteVolume") == 1 {
        assert_eq!(simulation.calls("CreateVolume"), 0, "beside the deletion");
        sleep(Duration::from_millis(100)).await;
    }
    simulation.until("the claim has its volume", |s| s.is_saved(&uid)).await;
}

/// Rule 10: what is removed is the PersistentVolume whose volume was deleted, not its name.
#[tokio::test(start_paused = true)]
async fn a_volume_that_took_the_name_of_a_deleted_one_stays() {
    let simulation = Simulation::scripted(json!({"delete_volume": [{"delay_ms": 5000}]}));
    released(&simulation, "old");
    simulation.start();
    simulation.until("the deletion runs", |s| s.calls("DeleteVolume") == 1).await;
    simulation.force_delete_volume("old");
    let mut restored = foreign_volume("old", "somebody", "another");
    restored["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    let restored: Value = simulation.api.create(&restored).unwrap();
    sleep(Duration::from_secs(600)).await;
    let uids: Vec<_> =
        simulation.volumes().iter().map(|volume| volume["metadata"]["uid"].clone()).collect();
    assert_eq!(uids, [restored["metadata"]["uid"].clone()]);
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}

/// By another replica, or by this process on a view that was out of date.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_came_while_its_volume_was_deleted_goes_as_well() {
    let simulation = Simulation::scripted(json!({"delete_volume": [{"delay_ms": 5000}]}));
    released(&simulation, "late");
    simulation.api.merge("PersistentVolume", "", "pvc-late", &finalizers(&[])).unwrap();
    simulation.start();
    simulation.until("the deletion runs", |s| s.calls("DeleteVolume") == 1).await;
    simulation.api.merge("PersistentVolume", "", "pvc-late", &finalizers(&[PROTECTION])).unwrap();
    simulation.until("it is gone", |s| s.volumes().is_empty()).await;
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}

fn finalizers(these: &[&str]) -> Value {
    json!({"metadata": {"finalizers": these}})
}
