//! What claims and volumes wait for beside the driver, in simulated time: they go on as soon as it
//! comes or changes, and ask for nothing meanwhile that they need not.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{Simulation, secret, with_secret};
use testkit::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};
use tokio::time::sleep;

const ONE_SECOND: Duration = Duration::from_secs(1);

/// A cluster whose class names the secret `s`.
fn secured() -> Simulation {
    let simulation = Simulation::new(1);
    simulation.replace_class(&json!({"parameters": with_secret("s")}));
    simulation
}

/// The secret is there, and may not or cannot be read for a while: no storm of tries, and it is noticed soon.
#[tokio::test(start_paused = true)]
async fn a_secret_that_can_be_read_later_is_noticed_and_not_asked_for_in_a_frenzy() {
    let kinds = Simulation::new(1).api.kinds();
    let kind = kinds.iter().find(|kind| kind.plural == "secrets").unwrap();
    for status in [Status::forbidden(kind, "s", "no"), Status::internal("no")] {
        let simulation = secured();
        simulation.api.create(&secret("s", "k")).unwrap();
        simulation.faults().add(Rule::on("get", "secrets", Effect::Answer(status)));
        simulation.start();
        let uid = simulation.create_claim("data");
        sleep(Duration::from_secs(300)).await;
        assert!(simulation.api_requests("get", "secrets") < 30);
        simulation.faults().clear();
        let took = simulation.until_saved(&uid).await;
        assert!(took <= Duration::from_secs(16), "{took:?}");
    }
}

// === Claims that the driver refuses as they stand ===

fn refusal(after_ms: u64) -> Value {
    let error = json!({"code": "INVALID_ARGUMENT", "message": "no"});
    json!({"times": 1, "delay_ms": after_ms, "error": error})
}

/// A claim that was refused once and would now be served.
async fn refused(flags: &[&str]) -> (Simulation, String) {
    let simulation = secured();
    simulation.api.create(&secret("s", "wrong")).unwrap();
    simulation.script(json!({"create_volume": [refusal(0), {}]}));
    simulation.start_with(flags);
    let uid = simulation.asked().await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1, "it rests");
    (simulation, uid)
}

#[tokio::test(start_paused = true)]
async fn they_rest_however_they_are_recorded() {
    for mode in ["off", "auto", "always"] {
        refused(&[&format!("--claim-protection={mode}")]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn they_go_on_when_class_or_claim_changes() {
    let touched = json!({"metadata": {"annotations": {"touched": "yes"}}});
    for (kind, namespace, name) in
        [("StorageClass", "", "fast"), ("PersistentVolumeClaim", "sc", "data")]
    {
        let (simulation, uid) = refused(&[]).await;
        simulation.api.merge(kind, namespace, name, &touched).unwrap();
        assert!(simulation.until_saved(&uid).await < ONE_SECOND, "{kind}");
    }
}

/// A user changes his claim all the time, which is refused each time.
#[tokio::test(start_paused = true)]
async fn one_that_changes_all_the_time_is_tried_seldom() {
    let simulation = secured();
    simulation.api.create(&secret("s", "wrong")).unwrap();
    let mut always = refusal(0);
    always.as_object_mut().unwrap().remove("times");
    simulation.script(json!({"create_volume": [always]}));
    simulation.start_with(&[]);
    simulation.create_claim("data");
    for number in 0..15_000 {
        let labels = json!({"metadata": {"labels": {"touched": number.to_string()}}});
        simulation.api.merge("PersistentVolumeClaim", "sc", "data", &labels).unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    let calls = simulation.calls("CreateVolume");
    assert!((20..45).contains(&calls), "{calls} in 300 s");
}

#[tokio::test(start_paused = true)]
async fn they_are_tried_again_after_the_longest_interval() {
    let (simulation, uid) = refused(&["--retry-interval-max=4m"]).await;
    let took = simulation.until_saved(&uid).await;
    let rest = Duration::from_secs(139)..Duration::from_secs(141);
    assert!(rest.contains(&took), "{took:?}");
}
