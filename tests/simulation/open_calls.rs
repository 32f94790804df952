//! Open calls outlive the process that made them: the finalizer and the record on the claim.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::apiserver::faults::{Effect, Rule, StreamFault};
use tokio::time::sleep;

use support::simulation::{DRIVER, Simulation, claim, foreign_volume};

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

/// The driver says that it is busy, whether or not it makes the volume, and the process ends: the call
/// is open.
async fn aborted_and_rolled_out(creates: bool) -> (Simulation, String) {
    let simulation = Simulation::new(1);
    let aborted = json!({"error": {"code": "ABORTED", "message": "busy"}, "creates": creates});
    simulation.script(json!({"create_volume": [aborted]}));
    let process = simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until("the claim is protected", is_marked).await;
    simulation.until_stopped(&process).await;
    (simulation, uid)
}

#[tokio::test(start_paused = true)]
async fn auto_a_call_that_was_aborted_outlives_a_rollout() {
    for creates in [true, false] {
        let (simulation, uid) = aborted_and_rolled_out(creates).await;
        simulation.delete_claim("data");
        assert!(data(&simulation).is_some(), "the finalizer holds it");
        simulation.script(json!({"create_volume": [{}]}));
        simulation.start();
        ends_without_a_leak(&simulation, &uid).await;
    }
}

/// The driver is still at work when `--shutdown-timeout` ends. Nobody comes back to the claim before the process
/// ends: where the record is not written at once, it is tried again.
#[tokio::test(start_paused = true)]
async fn auto_a_call_that_does_not_end_in_time_is_recorded_before_it_is_cut() {
    for failures in [0, 2] {
        let simulation =
            Simulation::scripted(json!({"create_volume": [{"delay_ms": 60_000, "times": 1}, {}]}));
        let process = simulation.start_with(&["--timeout=2m", "--shutdown-timeout=5s"]);
        let uid = simulation.create_claim("data");
        simulation.until("the driver was asked", |s| s.calls_under_way("CreateVolume") == 1).await;
        assert!(!is_marked(&simulation), "nobody knows yet that it will not end");
        for verb in ["get", "update"] {
            let cut = Rule::on(verb, "persistentvolumeclaims", Effect::CutBefore);
            simulation.faults().add(cut.times(failures));
        }
        simulation.until_stopped(&process).await;
        assert!(is_marked(&simulation), "{}", simulation.trace());
        simulation.delete_claim("data");
        simulation.start();
        ends_without_a_leak(&simulation, &uid).await;
    }
}

#[tokio::test(start_paused = true)]
async fn auto_an_unsaved_volume_outlives_the_process() {
    let simulation = Simulation::new(1);
    simulation.refuse("create", "persistentvolumes", 1_000_000);
    let process = simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until("the claim is protected", is_marked).await;
    process.kill();
    simulation.delete_claim("data");
    simulation.faults().clear();
    simulation.start();
    ends_without_a_leak(&simulation, &uid).await;
}

/// The claim does not come again while its volume waits to be saved.
#[tokio::test(start_paused = true)]
async fn auto_the_record_of_an_unsaved_volume_is_tried_again() {
    let simulation = Simulation::new(1);
    simulation.refuse("create", "persistentvolumes", 1_000_000);
    simulation.refuse("update", "persistentvolumeclaims", 1_000_000);
    simulation.start();
    simulation.create_claim("data");
    sleep(Duration::from_secs(5)).await;
    assert!(!is_marked(&simulation));
    simulation.faults().clear();
    simulation.refuse("create", "persistentvolumes", 1_000_000);
    // Sooner than the resync would find it.
    sleep(Duration::from_secs(15)).await;
    assert!(is_marked(&simulation), "{}", simulation.trace());
}

/// The driver makes too small a volume and does not remove it at once; the process is killed in
/// between, and the claim deleted.
#[tokio::test(start_paused = true)]
async fn auto_a_volume_that_is_being_removed_outlives_the_process() {
    let simulation = Simulation::new(1);
    let busy = json!({"error": {"code": "INTERNAL", "message": "busy"}});
    simulation.script(
        json!({"create_volume": [{"volume": {"capacity_bytes": 1}}], "delete_volume": [busy]}),
    );
    let process = simulation.start();
    simulation.create_claim("data");
    simulation.until("its removal was tried", |s| s.calls("DeleteVolume") > 0).await;
    assert!(is_marked(&simulation), "before the first try");
    process.kill();
    simulation.delete_claim("data");
    simulation.script(json!({"delete_volume": [{}]}));
    simulation.start();
    simulation.until("the claim is gone", |s| data(s).is_none()).await;
    assert_eq!(simulation.left_at_driver(), Vec::<String>::new());
}

/// The record is still on the claim when the process ends; its PersistentVolume is bound and taken away by
/// force while the next one lists, whose watches stand still (seed 74066).
#[tokio::test(start_paused = true)]
async fn a_recorded_call_whose_volume_was_bound_and_is_gone_is_not_asked_for_again() {
    let simulation = Simulation::new(1);
    let always = ["--claim-protection=always"];
    let first = simulation.start_with(&always);
    let uid = simulation.served().await;
    first.kill();
    assert!(is_marked(&simulation));
    let held = Effect::Stream(StreamFault::Stall { after: 0 });
    simulation.faults().add(Rule::on("watch", "persistentvolumeclaims", held).times(1));
    let slow = Effect::Delay(Duration::from_secs(20));
    simulation.faults().add(Rule::on("list", "persistentvolumes", slow).times(1));
    simulation.start_with(&always);
    sleep(Duration::from_secs(2)).await;
    simulation.bind("data", &format!("pvc-{uid}"));
    simulation.force_delete_volume(&uid);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
    assert!(!is_marked(&simulation), "the call is closed");
}

#[tokio::test(start_paused = true)]
async fn always_the_claim_is_protected_before_the_call_and_until_it_is_bound() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 5000}]}));
    simulation.start_with(&["--claim-protection=always"]);
    let uid = simulation.asked().await;
    assert!(is_marked(&simulation));
    let written = record(&simulation);
    assert_eq!(written["volume"], format!("pvc-{uid}"));
    assert_eq!(written["driver"], "disk.example.com");
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    sleep(HOUR).await;
    assert!(is_marked(&simulation), "not bound yet");
    simulation.bind("data", &format!("pvc-{uid}"));
    simulation.until("the mark is gone", |s| !is_marked(s) && record(s).is_null()).await;
}

/// Who reads of the open call may delete the claim at once.
#[tokio::test(start_paused = true)]
async fn a_call_of_unknown_outcome_is_recorded_before_an_event_tells_of_it() {
    let simulation = Simulation::new(1);
    let slow = Effect::Delay(Duration::from_secs(2));
    simulation.faults().add(Rule::on("update", "persistentvolumeclaims", slow));
    let busy = json!({"create_volume": [{"error": {"code": "UNAVAILABLE", "message": "busy"}}]});
    simulation.driver.backend().amend(serde_json::from_value(busy).unwrap());
    simulation.start();
    simulation.create_claim("data");
    simulation.until_failed("data").await;
    assert!(is_marked(&simulation), "{}", simulation.trace());
}

/// One failed write of the record costs a turn no second one.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_is_written_once_a_turn() {
    let simulation = Simulation::new(1);
    simulation.refuse("update", "persistentvolumeclaims", usize::MAX);
    let busy = json!({"create_volume": [{"error": {"code": "UNAVAILABLE", "message": "busy"}}]});
    simulation.driver.backend().amend(serde_json::from_value(busy).unwrap());
    simulation.start();
    simulation.create_claim("data");
    simulation.until("it is asked for again", |s| s.calls("CreateVolume") == 4).await;
    let writes = simulation.api_requests("update", "persistentvolumeclaims");
    assert!(writes <= 4, "{writes} writes in four turns");
}

/// Without the right to update claims `auto` goes on.
#[tokio::test(start_paused = true)]
async fn a_forbidden_mark_does_not_stop_auto() {
    let simulation = Simulation::new(1);
    simulation.refuse("update", "persistentvolumeclaims", 1_000_000);
    let aborted = json!({"times": 5, "error": {"code": "ABORTED", "message": "busy"}});
    simulation.script(json!({"create_volume": [aborted, {}]}));
    simulation.start();
    simulation.served().await;
}

/// The API server takes no request of its size, and so the claim gets no mark.
#[tokio::test(start_paused = true)]
async fn always_a_claim_that_is_too_large_to_be_written_is_reported_and_holds_up_nobody() {
    let simulation = Simulation::new(1);
    simulation.start_with(&["--claim-protection=always"]);
    let mut fat = claim("fat");
    let condition = json!({"type": "Odd", "status": "True", "message": "\u{1b}".repeat(600_000)});
    fat["status"] = json!({"conditions": [condition]});
    simulation.create(&fat);
    simulation.until_failed("fat").await;
    let messages = simulation.event_messages("fat", "ProvisioningFailed");
    let is_said = |text: &String| {
        text.starts_with("cannot put the finalizer") && text.contains("entity too large")
    };
    assert!(messages.iter().all(is_said), "{messages:?}");
    simulation.served().await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
}

/// A protected claim that is deleted, with a driver that never says how its call ended.
async fn deleted_under_a_dead_driver(flags: &[&str]) -> Simulation {
    let simulation = Simulation::new(1);
    let aborted = json!({"error": {"code": "ABORTED", "message": "busy"}});
    simulation.script(json!({"create_volume": [aborted]}));
    simulation.start_with(flags);
    simulation.create_claim("data");
    simulation.until("the claim is protected", is_marked).await;
    simulation.delete_claim("data");
    simulation
}

#[tokio::test(start_paused = true)]
async fn a_deleted_claim_is_let_go_with_a_warning_when_its_time_is_over() {
    let simulation = deleted_under_a_dead_driver(&[]).await;
    sleep(Duration::from_secs(59 * 60)).await;
    assert!(is_marked(&simulation), "not yet");
    simulation.until("the claim is gone", |s| data(s).is_none()).await;
    let calls = simulation.calls("CreateVolume");
    sleep(HOUR).await;
    assert_eq!(simulation.calls("CreateVolume"), calls, "it is followed no longer");
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert!(messages.iter().any(|text| text.contains("may be left at the driver")), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_time_out_a_deleted_claim_is_kept_for_ever() {
    let simulation = deleted_under_a_dead_driver(&["--claim-protection-timeout=0"]).await;
    sleep(HOUR * 5).await;
    assert!(is_marked(&simulation));
}

#[tokio::test(start_paused = true)]
async fn three_final_answers_let_a_deleted_claim_go() {
    let simulation = deleted_under_a_dead_driver(&[]).await;
    let refused = json!({"error": {"code": "INTERNAL", "message": "no"}});
    simulation.script(json!({"create_volume": [refused]}));
    let calls = simulation.calls("CreateVolume");
    simulation.until("the claim is gone", |s| data(s).is_none()).await;
    assert!(simulation.calls("CreateVolume") >= calls + 3, "{}", simulation.trace());
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert!(messages.iter().any(|text| text.contains("it is left at the driver")), "{messages:?}");
}

/// What we write on a claim is no reason to ask its driver sooner.
#[tokio::test(start_paused = true)]
async fn the_mark_does_not_hurry_the_polls() {
    let calls_in_a_minute = async |flags: &[&str]| {
        let simulation = Simulation::new(1);
        let aborted = json!({"error": {"code": "ABORTED", "message": "busy"}});
        simulation.script(json!({"create_volume": [aborted]}));
        simulation.start_with(flags);
        simulation.create_claim("data");
        sleep(Duration::from_secs(60)).await;
        simulation.calls("CreateVolume")
    };
    let unmarked = calls_in_a_minute(&["--claim-protection=off"]).await;
    assert_eq!(calls_in_a_minute(&[]).await, unmarked);
}

/// Aborted, then the process ends; before the next one starts, something is `changed`.
async fn rolled_out(changed: impl FnOnce(&Simulation)) -> (Simulation, String) {
    let (simulation, uid) = aborted_and_rolled_out(true).await;
    changed(&simulation);
    simulation.script(json!({"create_volume": [{}]}));
    simulation.start();
    (simulation, uid)
}

/// The same; meanwhile the claim is deleted and its class is `changed`.
async fn with_another_class(changed: impl FnOnce(&Simulation)) -> (Simulation, String) {
    let change = |simulation: &Simulation| {
        simulation.delete_claim("data");
        changed(simulation);
    };
    rolled_out(change).await
}

fn replace_class(simulation: &Simulation) {
    simulation.replace_class(&json!({"reclaimPolicy": "Delete", "parameters": {"pool": "other"}}));
}

fn restore_class(simulation: &Simulation) {
    simulation.replace_class(&json!({"reclaimPolicy": "Delete", "parameters": {}}));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_not_the_one_asked_with_is_not_asked_with() {
    let (simulation, uid) = with_another_class(replace_class).await;
    simulation.until_failed("data").await;
    sleep(Duration::from_secs(600)).await;
    let before = simulation.requests("CreateVolume");
    assert!(before.iter().all(|request| request == &before[0]), "{before:?}");
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert!(messages.iter().any(|text| text.contains("was replaced by another")), "{messages:?}");

    // Made again as it was, the class serves.
    restore_class(&simulation);
    ends_without_a_leak(&simulation, &uid).await;
}

/// A claim that stands while its class was replaced: it waits, and its reason is reported.
async fn live_under_another_class() -> (Simulation, String) {
    let (simulation, uid) = rolled_out(replace_class).await;
    simulation.until_failed("data").await;
    let calls = simulation.calls("CreateVolume");
    sleep(HOUR * 2).await;
    assert!(is_marked(&simulation), "it is followed for as long as it stands");
    assert_eq!(simulation.calls("CreateVolume"), calls);
    (simulation, uid)
}

#[tokio::test(start_paused = true)]
async fn a_live_claim_is_served_once_its_class_is_restored() {
    let (simulation, uid) = live_under_another_class().await;
    restore_class(&simulation);
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    assert_eq!(simulation.left_at_driver().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_class_stays_another_goes_with_a_warning_when_its_user_deletes_it() {
    let (simulation, _) = live_under_another_class().await;
    let calls = simulation.calls("CreateVolume");
    simulation.delete_claim("data");
    sleep(Duration::from_secs(59 * 60)).await;
    assert!(is_marked(&simulation), "the class may still be restored");
    sleep(Duration::from_secs(16 * 60)).await;
    assert!(data(&simulation).is_none(), "the time-out is noticed within a quarter of an hour");
    assert_eq!(simulation.calls("CreateVolume"), calls);
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert!(messages.iter().any(|text| text.contains("may be left at the driver")), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_name_stays_taken_goes_after_its_time_out() {
    let take_name = |simulation: &Simulation| {
        let uid = data(simulation).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        simulation.api.create(&foreign_volume(&uid, "other", "handle")).unwrap();
    };
    let (simulation, _) = rolled_out(take_name).await;
    simulation.until_failed("data").await;
    let calls = simulation.calls("CreateVolume");
    simulation.delete_claim("data");
    sleep(Duration::from_secs(59 * 60)).await;
    assert!(is_marked(&simulation), "the name may still become free");
    sleep(Duration::from_secs(16 * 60)).await;
    assert!(data(&simulation).is_none(), "the time-out is noticed within a quarter of an hour");
    assert_eq!(simulation.calls("CreateVolume"), calls);
}

#[tokio::test(start_paused = true)]
async fn a_class_restored_after_its_claims_deletion_leaves_no_volume_behind() {
    let (simulation, uid) = live_under_another_class().await;
    simulation.delete_claim("data");
    sleep(HOUR / 2).await;
    restore_class(&simulation);
    ends_without_a_leak(&simulation, &uid).await;
}

/// The class says Retain by now: what is made for the deleted claim stays, with its PersistentVolume.
#[tokio::test(start_paused = true)]
async fn retain_wins_for_a_volume_that_a_later_process_saves() {
    let keep = |simulation: &Simulation| {
        simulation.replace_class(&json!({"reclaimPolicy": "Retain", "parameters": {}}));
    };
    let (simulation, uid) = with_another_class(keep).await;
    simulation.until("the claim is gone", |s| data(s).is_none()).await;
    simulation.release(&uid);
    sleep(HOUR).await;
    assert_eq!(simulation.volumes()[0]["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!((simulation.left_at_driver().len(), simulation.calls("DeleteVolume")), (1, 0));
}

/// Whether an event says that the claim's record is not followed, with the volume that it names.
fn is_reported(simulation: &Simulation, volume: &str) -> bool {
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    messages.iter().any(|text| text.contains("is not followed") && text.contains(volume))
}

/// The prefix of names was changed: a record under another name does not count, and is reported.
#[tokio::test(start_paused = true)]
async fn a_record_under_another_name_is_no_obstacle_and_reported() {
    let (simulation, uid) = aborted_and_rolled_out(true).await;
    simulation.script(json!({"create_volume": [{}]}));
    simulation.start_with(&["--volume-name-prefix=new"]);
    simulation.until("a volume is saved", |s| s.volumes().len() == 1).await;
    assert_eq!(simulation.volumes()[0]["metadata"]["name"], format!("new-{uid}"));
    assert!(is_reported(&simulation, &format!("pvc-{uid}")));
}

/// A static PersistentVolume, and the claim bound to it.
fn bind_by_hand(simulation: &Simulation, uid: &str) {
    let claim =
        json!({"kind": "PersistentVolumeClaim", "namespace": "sc", "name": "data", "uid": uid});
    let by_hand = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a-static"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                 "hostPath": {"path": "/a"}, "claimRef": claim},
    });
    simulation.api.create(&by_hand).unwrap();
    simulation.bind("data", "a-static");
}

/// The process that made the call follows it, whatever the claim is bound to meanwhile.
#[tokio::test(start_paused = true)]
async fn a_call_of_this_process_is_followed_though_its_claim_has_another_volume() {
    let simulation = Simulation::new(1);
    let aborted = json!({"error": {"code": "ABORTED", "message": "busy"}, "creates": true});
    simulation.script(json!({"create_volume": [aborted]}));
    simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until("the claim is protected", is_marked).await;
    bind_by_hand(&simulation, &uid);
    simulation.script(json!({"create_volume": [{}]}));
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
}

/// After a restart the record of a bound claim is all there is, and its user may have written it.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_bound_claim_is_reported_and_cleared_away() {
    let (simulation, uid) = aborted_and_rolled_out(true).await;
    bind_by_hand(&simulation, &uid);
    simulation.script(json!({"create_volume": [{}]}));
    let calls = simulation.calls("CreateVolume");
    simulation.start();
    simulation.until("the mark is gone", |s| !is_marked(s)).await;
    assert!(is_reported(&simulation, &format!("pvc-{uid}")));
    sleep(HOUR).await;
    assert_eq!(simulation.calls("CreateVolume"), calls);
}

/// A call that has ended leaves nothing on the claim, and a finalizer alone says that nothing is open.
#[tokio::test(start_paused = true)]
async fn with_always_a_restart_does_not_open_what_was_closed() {
    let simulation = Simulation::new(1);
    let refused = json!({"times": 1, "error": {"code": "INTERNAL", "message": "no"}});
    simulation.script(json!({"create_volume": [refused, {"delay_ms": 600_000}]}));
    let always = ["--claim-protection=always", "--retry-interval-start=10m"];
    let process = simulation.start_with(&always);
    simulation.create_claim("data");
    let is_closed =
        |s: &Simulation| s.calls("CreateVolume") == 1 && !is_marked(s) && record(s).is_null();
    simulation.until("nothing says that a call is open", is_closed).await;
    process.kill();
    let marked = json!({"metadata": {"finalizers": [FINALIZER]}});
    simulation.api.merge("PersistentVolumeClaim", "sc", "data", &marked).unwrap();
    simulation.delete_claim("data");
    simulation.start_with(&always);
    simulation.until("the claim is gone", |s| data(s).is_none()).await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
}

/// Marks of other drivers' provisioners are theirs.
#[tokio::test(start_paused = true)]
async fn another_drivers_open_call_is_left_alone() {
    let simulation = Simulation::new(1);
    simulation.start();
    let mut claim = claim("data");
    claim["metadata"]["finalizers"] = json!([FINALIZER]);
    claim["metadata"]["annotations"] = json!({
        "volume.kubernetes.io/storage-provisioner": "other.example.com",
        RECORD: r#"{"driver":"other.example.com"}"#,
    });
    simulation.api.create(&claim).unwrap();
    simulation.delete_claim("data");
    sleep(HOUR * 3).await;
    assert!(is_marked(&simulation));
    assert_eq!(simulation.calls("CreateVolume"), 0);
}

/// The record of a driver that is gone, on a claim that was restored into a class of ours.
fn restored(name: &str, provisioner: &str) -> Value {
    let mut claim = claim(name);
    claim["metadata"]["finalizers"] = json!([FINALIZER]);
    claim["metadata"]["annotations"] = json!({
        "volume.kubernetes.io/storage-provisioner": provisioner,
        RECORD: r#"{"driver":"gone.example.com","volume":"pvc-1"}"#,
    });
    claim
}

/// It is served as any other; deleted, it is not held for ever by a provisioner that never comes.
#[tokio::test(start_paused = true)]
async fn another_drivers_record_on_a_claim_of_ours_goes_after_the_time_out() {
    let simulation = Simulation::new(1);
    let process = simulation.start();
    let uid = simulation.create(&restored("data", DRIVER));
    simulation.until("it is served", |s| s.is_saved(&uid)).await;
    simulation.bind("data", &format!("pvc-{uid}"));
    sleep(HOUR).await;
    assert_eq!(simulation.event_messages("data", "ProvisioningFailed"), [""; 0]);

    simulation.delete_claim("data");
    sleep(HOUR / 2).await;
    assert!(is_marked(&simulation), "its own provisioner may still come");
    let told = simulation.event_messages("data", "ProvisioningFailed");
    assert_eq!(told.len(), 1, "{told:?}");
    let command = "kubectl csi-provisioner release-claims --driver gone.example.com --release";
    assert!(told[0].contains(command), "{told:?}");
    assert!(process.metrics().contains("\nprovisioner_unfollowed_records_total 1\n"));

    sleep(HOUR).await;
    assert_eq!(data(&simulation), None);
    let told = simulation.event_messages("data", "ProvisioningFailed");
    assert!(told.len() == 2 && told[1].contains(r#"CSI driver "gone.example.com""#), "{told:?}");
    assert!(told[1].contains("--claim-protection-timeout"), "{told:?}");
}

/// Its annotation came with it from the other cluster: the volume that it is bound to says whose it is.
#[tokio::test(start_paused = true)]
async fn another_drivers_record_on_a_claim_with_our_volume_goes_after_the_time_out() {
    for (driver, goes) in [(DRIVER, true), ("other.example.com", false)] {
        let simulation = Simulation::new(1);
        let mut claim = restored("data", "gone.example.com");
        claim["spec"]["volumeName"] = json!("restored");
        let uid = simulation.create(&claim);
        let mut volume = foreign_volume("restored", &uid, "handle");
        volume["metadata"]["name"] = json!("restored");
        volume["metadata"]["annotations"] = json!({});
        volume["spec"]["csi"]["driver"] = json!(driver);
        simulation.api.create(&volume).unwrap();
        simulation.start();
        simulation.delete_claim("data");
        sleep(HOUR * 2).await;
        assert_eq!(data(&simulation).is_none(), goes, "{driver}");
    }
}
