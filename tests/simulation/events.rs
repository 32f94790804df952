//! Whatever a claim or volume waits for is reported by an event on it, in time and once.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};
use tokio::time::sleep;

use support::simulation::{DRIVER, Simulation, claim, class, foreign_volume};

fn class_of(provisioner: &str) -> Value {
    class("fast", &json!({"provisioner": provisioner, "reclaimPolicy": "Delete"}))
}

fn remove_class(simulation: &Simulation) {
    simulation.api.delete("StorageClass", "", "fast").unwrap();
}

/// The messages of the claim's warnings, with the count of each.
fn warnings(simulation: &Simulation) -> Vec<(String, u64)> {
    let events = simulation.api.list("Event", "sc");
    let warnings = events.iter().filter(|event| event["type"] == "Warning");
    let warned = warnings
        .map(|event| (event["message"].as_str().unwrap(), event["count"].as_u64().unwrap()));
    warned.map(|(message, count)| (message.to_owned(), count)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_put_right_at_once_is_not_reported() {
    for at_first in [None, Some(class_of("other.example.com"))] {
        let simulation = Simulation::new(1);
        remove_class(&simulation);
        simulation.start();
        let uid = simulation.create_claim("data");
        if let Some(class) = at_first {
            simulation.api.create(&class).unwrap();
            sleep(Duration::from_millis(600)).await;
            remove_class(&simulation);
        }
        sleep(Duration::from_millis(600)).await;
        simulation.api.create(&class_of(DRIVER)).unwrap();
        simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
        assert_eq!(warnings(&simulation), []);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_retry_interval_it_is_reported_once_within_a_second() {
    for start in ["100ms", "700ms", "1m"] {
        let simulation = Simulation::new(1);
        remove_class(&simulation);
        let start = format!("--retry-interval-start={start}");
        simulation.start_with(&[&start, "--retry-interval-max=2m"]);
        simulation.create_claim("data");
        sleep(Duration::from_secs(1)).await;
        let missing = r#"storageclass.storage.k8s.io "fast" not found"#;
        assert_eq!(warnings(&simulation), [(missing.to_owned(), 1)], "{start}");
        sleep(Duration::from_secs(300)).await;
        assert_eq!(warnings(&simulation), [(missing.to_owned(), 1)], "{start}");
    }
}

/// Whether the claim has a PersistentVolume must be known before the first call.
#[tokio::test(start_paused = true)]
async fn a_look_up_that_is_refused_is_reported() {
    let simulation = Simulation::new(1);
    simulation.create_claim("data");
    simulation.refuse("get", "persistentvolumes", 6);
    simulation.start();
    simulation.until_failed("data").await;
    let (text, _) = warnings(&simulation).remove(0);
    assert!(text.starts_with("cannot tell whether the claim has a PersistentVolume: "), "{text}");
    assert_eq!(simulation.calls("CreateVolume"), 0);
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
}

/// With `always` the record of a call is written before the call.
#[tokio::test(start_paused = true)]
async fn whatever_the_retry_interval_a_record_that_is_refused_is_reported_within_three_seconds() {
    let simulation = Simulation::new(1);
    simulation.refuse("update", "persistentvolumeclaims", usize::MAX);
    simulation.start_with(&["--claim-protection=always", "--retry-interval-start=5m"]);
    simulation.create_claim("data");
    sleep(Duration::from_secs(3)).await;
    let warned = warnings(&simulation);
    let named = "cannot put the finalizer provisioner.storage.kubernetes.io/provisioning-protection on the claim: ";
    assert!(warned.len() == 1 && warned[0].0.starts_with(named), "{warned:?}");
    assert_eq!(simulation.calls("CreateVolume"), 0);
    simulation.faults().clear();
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
}

/// A webhook may name a request or a time in its refusal.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_in_ever_new_words_is_retried_with_back_off_and_reported_once() {
    let simulation = Simulation::new(1);
    for request in 0..40 {
        let refusal = Status::bad_request(format!("admission webhook denied request {request}"));
        let rule = Rule::on("update", "persistentvolumeclaims", Effect::Answer(refusal));
        simulation.faults().add(rule.times(1));
    }
    simulation.start_with(&["--claim-protection=always"]);
    simulation.create_claim("data");
    sleep(Duration::from_secs(600)).await;
    let writes = simulation.api_requests("update", "persistentvolumeclaims");
    assert!(writes <= 12, "{writes} writes in ten minutes");
    let warned = warnings(&simulation);
    assert!(warned.len() == 1 && warned[0].0.contains("denied request"), "{warned:?}");
}

/// Somebody deleted a PersistentVolume that is kept by our finalizer alone.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_cannot_be_taken_off_a_deleted_volume_is_reported() {
    let simulation = Simulation::new(1);
    let mut volume = foreign_volume("a", "a", "handle");
    volume["metadata"]["finalizers"] =
        json!(["external-provisioner.volume.kubernetes.io/finalizer"]);
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    simulation.api.create(&volume).unwrap();
    simulation.api.delete("PersistentVolume", "", "pvc-a").unwrap();
    simulation.refuse("patch", "persistentvolumes", 3);
    simulation.start();
    simulation
        .until("it is reported", |s| s.has_cluster_event("pvc-a", "VolumeFailedDelete"))
        .await;
    simulation.until("it is gone", |s| s.volumes().is_empty()).await;
    assert_eq!(simulation.calls("DeleteVolume"), 0);
}

/// Quota, RBAC, an admission webhook: whatever the API server says to the PersistentVolume is said
/// on its claim in time, the volume is made once, and saved as soon as it may be.
#[tokio::test(start_paused = true)]
async fn a_refused_volume_is_reported_in_the_api_servers_words_within_two_seconds() {
    let kinds = Simulation::new(1).api.kinds();
    let kind = kinds.iter().find(|kind| kind.plural == "persistentvolumes").unwrap();
    for (refusal, words) in [
        (Status::forbidden(kind, "x", "exceeded quota: few"), "exceeded quota: few"),
        (Status::forbidden(kind, "x", "no such right"), "no such right"),
        (Status::bad_request("admission webhook \"w\" denied the request"), "denied the request"),
    ] {
        let simulation = Simulation::new(1);
        simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::Answer(refusal)));
        simulation.start();
        let uid = simulation.create_claim("data");
        sleep(Duration::from_secs(2)).await;
        let warned = warnings(&simulation);
        assert!(warned.len() == 1 && warned[0].0.contains(words), "{words}: {warned:?}");
        sleep(Duration::from_secs(120)).await;
        let warned = warnings(&simulation);
        assert!(warned.iter().all(|(text, _)| text.contains(words)), "{words}: {warned:?}");
        simulation.faults().clear();
        simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
        assert_eq!((simulation.calls("CreateVolume"), simulation.left_at_driver().len()), (1, 1));
    }
}

/// For an open call each code is reported once: the driver's next failure is a new event.
#[tokio::test(start_paused = true)]
async fn each_kind_of_unknown_end_is_warned_of_once() {
    let simulation = Simulation::new(1);
    let busy = |code: &str, times: u32| json!({"error": {"code": code, "message": "busy"}, "times": times});
    simulation.script(json!({"create_volume": [
        busy("UNAVAILABLE", 3), busy("DEADLINE_EXCEEDED", 3), busy("UNAVAILABLE", 3), busy("ABORTED", 3), {}]}));
    simulation.start();
    simulation.served().await;
    let warning = |code| (format!("rpc error: code = {code} desc = busy"), 1);
    let mut warned = warnings(&simulation);
    warned.sort();
    assert_eq!(warned, ["Aborted", "DeadlineExceeded", "Unavailable"].map(warning));
}

/// Who may update the events of a namespace can make them so large that the API server cannot store the next count.
#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_updated_hold_up_no_others_and_are_replaced() {
    let simulation = Simulation::scripted(json!({"create_volume": [
        {"match": {"parameters": {"pool": "bad"}}, "error": {"code": "INTERNAL"}}, {}]}));
    let bad = json!({"provisioner": DRIVER, "parameters": {"pool": "bad"}});
    simulation.api.create(&class("bad", &bad)).unwrap();
    let too_large = Effect::Answer(Status::internal("etcdserver: request is too large"));
    simulation.faults().add(Rule::on("patch", "events", too_large));
    simulation.start();
    for number in 0..100 {
        let mut failing = claim(&format!("failing-{number}"));
        failing["spec"]["storageClassName"] = json!("bad");
        simulation.api.create(&failing).unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    simulation.served().await;
    sleep(Duration::from_secs(2)).await;
    assert!(simulation.has_event("data", "ProvisioningSucceeded"));
    let failed = warnings(&simulation);
    assert!(failed.iter().any(|(_, count)| *count > 1), "{failed:?}");
}
