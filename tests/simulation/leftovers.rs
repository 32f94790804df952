//! Volumes that the driver made and that cannot be used, in simulated time: they go, once it is
//! sure that they are nobody's, and their claims are not asked for before that.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{Simulation, foreign_volume, secret, with_secret};
use testkit::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};
use tokio::time::{Instant, sleep};

const TOO_SMALL: &str = "created volume capacity 1 less than requested capacity 1073741824";

/// A driver that makes too small volumes, so many times or for ever.
fn too_small(times: Option<u32>) -> Value {
    json!({"create_volume": [{"volume": {"capacity_bytes": 1}, "times": times}, {}]})
}

/// A driver whose first volume is too small, with this ID, and which answers so to its removal.
fn first_too_small(volume_id: Option<&str>, delete_volume: Value) -> Simulation {
    let mut script = too_small(Some(1));
    script["create_volume"][0]["volume"]["volume_id"] = json!(volume_id);
    script["delete_volume"] = delete_volume;
    Simulation::scripted(script)
}

/// CreateVolume and DeleteVolume in the order of the driver's calls.
fn calls(simulation: &Simulation) -> Vec<String> {
    let calls = simulation.driver.journal().calls().into_iter().map(|call| call.method.to_string());
    calls.filter(|method| method.ends_with("eVolume")).collect()
}

/// Deleted in mid-call: the answer's volume is removed, and that is the end of it.
#[tokio::test(start_paused = true)]
async fn a_claim_deleted_before_the_too_small_answer_leaves_no_volume() {
    let simulation = Simulation::scripted(
        json!({"create_volume": [{"volume": {"capacity_bytes": 1}, "delay_ms": 3000}]}),
    );
    simulation.start();
    simulation.asked().await;
    simulation.delete_claim("data");
    simulation.until("the volume is removed", |s| s.calls("DeleteVolume") == 1).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls(&simulation), ["CreateVolume", "DeleteVolume"]);
    assert!(simulation.left_at_driver().is_empty());
}

#[tokio::test(start_paused = true)]
async fn while_it_cannot_be_removed_its_claim_is_not_asked_for() {
    let in_use =
        json!({"error": {"code": "FAILED_PRECONDITION", "message": "still in use"}, "times": 12});
    let simulation = first_too_small(None, json!([in_use, {}]));
    simulation.start();
    let uid = simulation.served().await;
    // Five tries at a time, and the third time the thirteenth succeeds.
    let mut expected = vec!["CreateVolume"];
    expected.extend(["DeleteVolume"; 13]);
    expected.push("CreateVolume");
    assert_eq!(calls(&simulation), expected);
    let mut messages = simulation.event_messages("data", "ProvisioningFailed");
    messages.sort();
    let orphaned = format!(
        "{TOO_SMALL}. Cleanup of volume pvc-{uid} failed, volume is orphaned: rpc error: code = FailedPrecondition desc = still in use"
    );
    assert_eq!(messages, [TOO_SMALL.to_owned(), orphaned]);
}

/// A driver whose volumes are too small, and which fails to delete them this slowly and this often
/// before it does not answer in time.
fn fails_slowly(delay_ms: u64, times: u64) -> Simulation {
    let fails = json!({"delay_ms": delay_ms, "error": {"code": "INTERNAL"}, "times": times});
    let simulation = first_too_small(None, json!([fails, {"delay_ms": 20_000}]));
    simulation.start();
    simulation
}

/// All tries begin soon after the read that shows whose the volume is.
#[tokio::test(start_paused = true)]
async fn a_driver_that_fails_slowly_is_asked_again_after_another_look() {
    let simulation = fails_slowly(1500, 2);
    simulation.create_claim("data");
    let start = Instant::now();
    simulation.until_failed("data").await;
    assert_eq!(calls(&simulation), ["CreateVolume", "DeleteVolume", "DeleteVolume"]);
    assert!((3000..4000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

/// The time that the read took counts: none is left for a second try.
#[tokio::test(start_paused = true)]
async fn after_a_slow_look_the_next_try_follows_another() {
    let simulation = fails_slowly(1000, 1);
    sleep(Duration::from_secs(5)).await;
    let slow = Effect::DelayAfter(Duration::from_millis(1500));
    simulation.faults().add(Rule::on("list", "persistentvolumes", slow).times(1));
    simulation.create_claim("data");
    simulation.until_failed("data").await;
    assert_eq!(calls(&simulation), ["CreateVolume", "DeleteVolume"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_is_waited_for_once() {
    let simulation = first_too_small(None, json!([{"delay_ms": 60_000}]));
    simulation.start();
    let uid = simulation.create_claim("data");
    let start = Instant::now();
    simulation.until_failed("data").await;
    assert!((10..12).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let messages = format!(
        "{TOO_SMALL}. Cleanup of volume pvc-{uid} failed, volume is orphaned: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    assert_eq!(simulation.event_messages("data", "ProvisioningFailed"), [messages]);
}

/// Somebody makes a PersistentVolume of the volume while its removal is tried.
#[tokio::test(start_paused = true)]
async fn what_becomes_somebodys_between_two_tries_stays() {
    let fails = json!({"delay_ms": 4000, "error": {"code": "INTERNAL"}, "times": 1});
    let simulation = first_too_small(Some("taken"), json!([fails, {}]));
    simulation.start();
    simulation.create_claim("data");
    simulation.until("its removal is tried", |s| s.calls("DeleteVolume") == 1).await;
    simulation.api.create(&foreign_volume("elsewhere", "nobody", "taken")).unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls(&simulation), ["CreateVolume", "DeleteVolume"]);
}

/// The same while the record of it is written, which takes long.
#[tokio::test(start_paused = true)]
async fn what_becomes_somebodys_before_the_first_try_stays() {
    let simulation = first_too_small(Some("taken"), json!([{}]));
    simulation.start();
    let slow = Effect::DelayAfter(Duration::from_secs(5));
    simulation.faults().add(Rule::on("update", "persistentvolumeclaims", slow).times(1));
    simulation.asked().await;
    sleep(Duration::from_secs(1)).await;
    simulation.api.create(&foreign_volume("elsewhere", "nobody", "taken")).unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls(&simulation), ["CreateVolume"]);
}

/// The same while all PersistentVolumes are listed, which takes long: the list is as old as its first
/// page.
#[tokio::test(start_paused = true)]
async fn what_gets_its_name_during_the_look_stays() {
    let simulation = first_too_small(Some("taken"), json!([{}]));
    simulation.start();
    sleep(Duration::from_secs(5)).await;
    let slow = Effect::DelayAfter(Duration::from_secs(5));
    simulation.faults().add(Rule::on("list", "persistentvolumes", slow));
    let uid = simulation.asked().await;
    sleep(Duration::from_secs(1)).await;
    simulation.api.create(&foreign_volume(&uid, "nobody", "other")).unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls(&simulation), ["CreateVolume"]);
}

#[tokio::test(start_paused = true)]
async fn with_the_secrets_of_the_create() {
    let fails = json!({"error": {"code": "INTERNAL"}, "times": 5});
    let simulation = first_too_small(None, json!([fails, {}]));
    simulation.create(&secret("s", "first"));
    simulation.replace_class(&json!({"parameters": with_secret("s")}));
    simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until("the removal was tried", |s| s.calls("DeleteVolume") == 5).await;
    simulation.api.delete("Secret", "sc", "s").unwrap();
    simulation.create(&secret("s", "second"));
    simulation.until("a volume is saved", |s| s.is_saved(&uid)).await;
    for request in simulation.requests("DeleteVolume") {
        assert_eq!(request["secrets"], simulation.requests("CreateVolume")[0]["secrets"]);
        assert_eq!(request["secrets"], json!({"key": "first"}));
    }
}

/// Another client's PersistentVolume has this volume: it stays, is reported, and is not asked for again.
#[tokio::test(start_paused = true)]
async fn what_may_be_somebodys_is_never_removed() {
    let simulation = Simulation::scripted(
        json!({"create_volume": [{"volume": {"capacity_bytes": 1, "volume_id": "taken"}}]}),
    );
    simulation.api.create(&foreign_volume("elsewhere", "nobody", "taken")).unwrap();
    simulation.phase("pvc-elsewhere", "Available");
    simulation.start();
    simulation.create_claim("data");
    simulation.until_failed("data").await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls(&simulation), ["CreateVolume"]);
    let messages = [
        format!(
            "{TOO_SMALL}. The volume \"taken\" may be left at the driver: it is not deleted, as PersistentVolume \"pvc-elsewhere\" has it"
        ),
        // For as long as the claim waits.
        "a volume that was made for the claim may be left at the driver, and no other is made while this provisioner runs: see its log for the volume, then delete the claim and create it again".to_owned(),
    ];
    assert_eq!(simulation.event_messages("data", "ProvisioningFailed"), messages);
}

/// Somebody made a PersistentVolume of it for the claim while its call ran, and both are gone since: what was written
/// to the volume meanwhile may be wanted.
#[tokio::test(start_paused = true)]
async fn what_the_claim_had_for_a_while_is_never_removed() {
    let simulation = Simulation::scripted(json!({"create_volume": [
        {"volume": {"capacity_bytes": 1, "volume_id": "taken"}, "delay_ms": 8000}]}));
    simulation.start();
    let uid = simulation.asked().await;
    let mut by_hand = foreign_volume("by-hand", &uid, "taken");
    by_hand["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    simulation.api.create(&by_hand).unwrap();
    sleep(Duration::from_secs(1)).await;
    simulation.delete_claim("data");
    simulation.api.delete("PersistentVolume", "", "pvc-by-hand").unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls(&simulation), ["CreateVolume"]);
}

/// A user makes many volumes that no PersistentVolume can be of, and deletes their claims: few lists of all
/// PersistentVolumes are enough.
#[tokio::test(start_paused = true)]
async fn many_volumes_are_removed_by_few_lists() {
    let simulation = Simulation::new(1);
    simulation.start();
    sleep(Duration::from_secs(5)).await;
    let refused = Effect::Answer(Status::new(422, "Invalid", "too large"));
    simulation.faults().add(Rule::on("create", "persistentvolumes", refused));
    let slow = Effect::DelayAfter(Duration::from_millis(500));
    simulation.faults().add(Rule::on("list", "persistentvolumes", slow));
    let names: Vec<String> = (0..100).map(|number| format!("data-{number}")).collect();
    for name in &names {
        simulation.create_claim(name);
    }
    simulation.until("all are made", |s| s.calls("CreateVolume") == 100).await;
    let before = simulation.api_requests("list", "persistentvolumes");
    // One that breaks off is made anew for all who wait, not for each.
    let broken = Rule::on("list", "persistentvolumes", Effect::CutBefore);
    simulation.faults().add(broken.skip(1).times(2));
    for name in &names {
        simulation.delete_claim(name);
    }
    simulation.until("all are removed", |s| s.left_at_driver().is_empty()).await;
    let lists = simulation.api_requests("list", "persistentvolumes") - before;
    assert!(lists <= 20, "{lists}");
}

/// Without the answers that show it to be nobody's, nothing is removed.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_looked_up_waits() {
    for (verb, kind) in [
        ("get", "persistentvolumes"),
        ("get", "persistentvolumeclaims"),
        ("list", "persistentvolumes"),
    ] {
        let simulation = Simulation::scripted(too_small(Some(1)));
        simulation.start();
        sleep(Duration::from_secs(5)).await;
        simulation.faults().add(Rule::on(verb, kind, Effect::CutBefore));
        let uid = simulation.create_claim("data");
        sleep(Duration::from_secs(120)).await;
        assert_eq!(calls(&simulation), ["CreateVolume"], "{verb} {kind}");
        assert!(
            simulation.event_messages("data", "ProvisioningFailed")[0]
                .contains("volume is orphaned: "),
            "{verb} {kind}"
        );
        simulation.faults().clear();
        simulation.until("a volume is saved", |s| s.is_saved(&uid)).await;
        assert_eq!(calls(&simulation), ["CreateVolume", "DeleteVolume", "CreateVolume"]);
    }
}

/// A restart knows nothing of the leftover: the driver shows it again, and then it goes.
#[tokio::test(start_paused = true)]
async fn a_restart_finds_the_leftover_by_asking_again() {
    let simulation = Simulation::new(1);
    let mut script = too_small(Some(2));
    script["delete_volume"] = json!([{"error": {"code": "INTERNAL"}, "times": 5}, {}]);
    simulation.script(script);
    let process = simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until("the removal was tried", |s| s.calls("DeleteVolume") == 5).await;
    process.kill();
    simulation.start();
    simulation.until("a volume is saved", |s| s.is_saved(&uid)).await;
    assert_eq!((simulation.calls("CreateVolume"), simulation.calls("DeleteVolume")), (3, 6));
    assert_eq!(simulation.left_at_driver().len(), 1);
}

/// A PersistentVolume that the API server refuses as invalid, for a claim that then goes: the
/// claim's end is what wakes, not the next try to save.
#[tokio::test(start_paused = true)]
async fn a_refused_volume_goes_as_soon_as_its_claim_is_gone() {
    let simulation = Simulation::new(1);
    let invalid = Status::new(422, "Invalid", "no");
    simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::Answer(invalid)));
    simulation.start();
    simulation.create_claim("data");
    sleep(Duration::from_secs(3000)).await;
    assert_eq!(simulation.left_at_driver().len(), 1);
    simulation.delete_claim("data");
    sleep(Duration::from_secs(2)).await;
    assert!(simulation.left_at_driver().is_empty());
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}

/// The same claim is bound to something else: nothing is deleted for it, and an event says so.
#[tokio::test(start_paused = true)]
async fn a_refused_volume_of_a_claim_bound_elsewhere_is_a_suspect() {
    let simulation = Simulation::new(1);
    let invalid = Status::new(422, "Invalid", "no");
    simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::Answer(invalid)));
    simulation.start();
    simulation.create_claim("data");
    sleep(Duration::from_secs(600)).await;
    simulation.bind("data", "another");
    sleep(Duration::from_secs(60)).await;
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert!(messages.iter().any(|text| text.contains("the claim is bound")), "{messages:?}");
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    assert_eq!(simulation.calls("CreateVolume"), 1);
}

/// Another client takes the PersistentVolume's name between the read and the POST. Under a truncated UUID two
/// claims share a name, and so may share the volume, by two handles: while a PersistentVolume of
/// the name stands, the volume is never deleted.
#[tokio::test(start_paused = true)]
async fn a_volume_whose_name_a_stranger_has_waits_and_stays_as_a_suspect() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 3000}]}));
    simulation.start();
    let uid = simulation.asked().await;
    simulation.api.create(&foreign_volume(&uid, "nobody", "other-handle")).unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.left_at_driver().len(), 1);
    assert_eq!(simulation.calls("DeleteVolume"), 0, "the name may become free");
    simulation.delete_claim("data");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(simulation.left_at_driver().len(), 1);
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    assert_eq!(simulation.volumes().len(), 1, "the other one stays");
}

/// If the other PersistentVolume has this very volume: nothing is left over, and once the claim is
/// gone nothing is left to do.
#[tokio::test(start_paused = true)]
async fn a_volume_that_a_stranger_stands_for_is_let_go_with_its_claim() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 3000}]}));
    let process = simulation.start();
    let uid = simulation.asked().await;
    let handle = format!("vol-pvc-{uid}");
    simulation.api.create(&foreign_volume(&uid, "nobody", &handle)).unwrap();
    simulation.until_failed("data").await;
    simulation.delete_claim("data");
    sleep(Duration::from_secs(60)).await;
    let looks = simulation.api_requests("get", "persistentvolumes");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(simulation.api_requests("get", "persistentvolumes"), looks);
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert!(messages.iter().all(|text| text.contains("exists already and is not for this claim")));
    process.stop();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(process.outcome(), Some(Ok(())), "it has nothing left to save");
    assert_eq!(simulation.left_at_driver(), [handle]);
    assert_eq!((simulation.calls("DeleteVolume"), simulation.volumes().len()), (0, 1));
}

/// The same where nobody may read whose it is. Once it is gone the volume may be, too, which only asking
/// anew would show: when the claim goes before that, it is reported.
#[tokio::test(start_paused = true)]
async fn a_volume_that_may_have_gone_with_a_strangers_is_reported_when_nobody_waits() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 3000}]}));
    simulation.start();
    let uid = simulation.asked().await;
    let name = format!("pvc-{uid}");
    simulation.api.create(&foreign_volume(&uid, "nobody", &format!("vol-{name}"))).unwrap();
    simulation.refuse("get", "persistentvolumes", 1);
    simulation.until_failed("data").await;
    // One read finds it gone, and the next ones fail.
    let forbidden = Effect::Answer(Status::new(403, "Forbidden", "no"));
    simulation.faults().add(Rule::on("get", "persistentvolumes", forbidden).skip(1).times(5));
    let looks = simulation.api_requests("get", "persistentvolumes");
    simulation.api.delete("PersistentVolume", "", &name).unwrap();
    let looked = |s: &Simulation| s.api_requests("get", "persistentvolumes") >= looks + 2;
    simulation.until("it was looked up in vain", looked).await;
    // Observed to be deleted, and still there for the event.
    let kept = json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}});
    simulation.api.merge("PersistentVolumeClaim", "sc", "data", &kept).unwrap();
    simulation.delete_claim("data");
    let suspected = |s: &Simulation| {
        let messages = s.event_messages("data", "ProvisioningFailed");
        messages.iter().any(|text| text.contains("may be left at the driver"))
    };
    simulation.until("it is reported", suspected).await;
    assert_eq!((simulation.left_at_driver().len(), simulation.calls("CreateVolume")), (1, 1));
}
