//! The way of claims and their volumes, with nothing going wrong and with much.

use std::time::Duration;

use serde_json::json;
use support::simulation::{Simulation, foreign_volume};
use testkit::apiserver::faults::{Effect, Rule, StreamFault};
use tokio::time::sleep;

/// A POST whose answer is lost is looked after, not repeated blindly; its user hears of success.
#[tokio::test(start_paused = true)]
async fn an_unclear_save_is_looked_after() {
    let simulation = Simulation::new(1);
    simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::CutAfter).times(1));
    simulation.start();
    simulation.create_claim("data");
    simulation.until("success is reported", |s| s.has_event("data", "ProvisioningSucceeded")).await;
    assert_eq!(simulation.api_requests("create", "persistentvolumes"), 1);
    assert_eq!((simulation.volumes().len(), simulation.calls("CreateVolume")), (1, 1));
}

/// A claim that outlives its volume gets another, but only when it is looked at again.
#[tokio::test(start_paused = true)]
async fn a_claim_that_outlives_its_volume_gets_another_in_time() {
    let simulation = Simulation::new(1);
    simulation.start();
    let uid = simulation.served().await;
    simulation.release(&uid);
    simulation.until("the volume is gone", |s| s.volumes().is_empty()).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
    sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!((simulation.calls("CreateVolume"), simulation.volumes().len()), (2, 1));
}

/// What was made is saved before the process ends in order, though the first attempts fail.
#[tokio::test(start_paused = true)]
async fn a_stop_in_order_waits_until_what_was_made_is_saved() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 5000}]}));
    simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::CutBefore).times(3));
    let process = simulation.start_elected("a");
    simulation.asked().await;
    process.stop();
    simulation.until("the process ended", |s| !s.is_running()).await;
    assert_eq!(simulation.volumes().len(), 1);
    assert_eq!(simulation.lease_holder().as_deref(), Some(""));
}

/// A save whose answer was lost is not repeated once its PersistentVolume has come and gone: the
/// driver's volume went with it.
#[tokio::test(start_paused = true)]
async fn a_volume_that_came_and_went_is_not_saved_again() {
    let simulation = Simulation::new(1);
    let faults = simulation.faults();
    faults.add(Rule::on("create", "persistentvolumes", Effect::CutAfter).times(1));
    faults.add(Rule::on("get", "persistentvolumes", Effect::CutBefore).times(8));
    simulation.start();
    // The claim was created after the list and needs no look-up: the first GET is that of saving.
    sleep(Duration::from_secs(1)).await;
    let uid = simulation.served().await;
    simulation.delete_claim("data");
    simulation.release(&uid);
    simulation.until("the volume is gone", |s| s.left_at_driver().is_empty()).await;
    sleep(Duration::from_secs(3600)).await;
    assert!(simulation.volumes().is_empty(), "no PersistentVolume of a volume that is gone");
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}

/// A save whose answer was lost, and whose PersistentVolume is found being deleted, is not repeated
/// once that is gone: the claim asks the driver anew, if it still waits.
#[tokio::test(start_paused = true)]
async fn a_volume_found_being_deleted_is_asked_for_anew_once_it_is_gone() {
    for wanted in [true, false] {
        let simulation = Simulation::new(1);
        let stall = Effect::Stream(StreamFault::Stall { after: 1 });
        let faults = simulation.faults();
        faults.add(Rule::on("watch", "persistentvolumes", stall).times(1));
        faults.add(Rule::on("create", "persistentvolumes", Effect::CutAfter).times(1));
        faults.add(Rule::on("get", "persistentvolumes", Effect::CutBefore).times(4));
        simulation.start();
        sleep(Duration::from_secs(1)).await;
        // The last that the watch shows for a while.
        simulation.api.create(&foreign_volume("passer-by", "nobody", "passer-by")).unwrap();
        sleep(Duration::from_secs(1)).await;
        let uid = simulation.served().await;
        simulation.api.delete("PersistentVolume", "", &format!("pvc-{uid}")).unwrap();
        let messages = |s: &Simulation| {
            let messages = s.event_messages("data", "ProvisioningFailed");
            messages.iter().any(|text| text.ends_with("to go: somebody deleted it"))
        };
        simulation.until("the wait is reported", messages).await;
        if !wanted {
            simulation.delete_claim("data");
        }
        simulation.strip(&format!("pvc-{uid}"));
        sleep(Duration::from_secs(30)).await;
        assert!(!simulation.is_saved(&uid), "it may be gone at the driver, too");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(simulation.is_saved(&uid), wanted);
        assert_eq!(simulation.calls("CreateVolume"), 1 + usize::from(wanted), "{wanted}");
    }
}

/// Another client's PersistentVolume has the claim's name: it is reported; ours is saved once it is gone.
#[tokio::test(start_paused = true)]
async fn a_strangers_volume_under_our_name_is_waited_for() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 5000}]}));
    simulation.start();
    let uid = simulation.asked().await;
    simulation.api.create(&foreign_volume(&uid, "other-uid", "strange")).unwrap();
    simulation.until_failed("data").await;
    simulation.api.delete("PersistentVolume", "", &format!("pvc-{uid}")).unwrap();
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((simulation.calls("CreateVolume"), simulation.calls("DeleteVolume")), (1, 0));
}

/// The claim got another volume during the call: that one stays; ours is a suspected leak, reported and kept.
#[tokio::test(start_paused = true)]
async fn a_second_volume_for_a_claim_is_a_suspect_and_never_deleted() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 5000}]}));
    simulation.start();
    let uid = simulation.asked().await;
    simulation.api.create(&foreign_volume(&uid, &uid, "another")).unwrap();
    simulation.until_failed("data").await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((simulation.calls("CreateVolume"), simulation.calls("DeleteVolume")), (1, 0));
    assert_eq!((simulation.volumes().len(), simulation.left_at_driver().len()), (1, 1));
}

/// After a volume that came and went during the call the claim needs verification; its open call is followed all
/// the same once nobody wants it any more.
#[tokio::test(start_paused = true)]
async fn an_open_call_in_doubt_is_followed_although_the_claim_is_deleted() {
    let simulation = Simulation::scripted(json!({"create_volume": [
        {"delay_ms": 5000, "error": {"code": "ABORTED"}, "creates": true, "times": 1}, {}]}));
    simulation.start();
    let uid = simulation.asked().await;
    simulation.api.create(&foreign_volume(&uid, &uid, "another")).unwrap();
    sleep(Duration::from_secs(1)).await;
    simulation.force_delete_volume(&uid);
    simulation.delete_claim("data");
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    assert_eq!((simulation.calls("CreateVolume"), simulation.left_at_driver().len()), (2, 1));
}
