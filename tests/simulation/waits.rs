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

/// The API server answers so to this verb on Secrets.
fn refuse_secrets(simulation: &Simulation, verb: &str) {
    let kinds = simulation.api.kinds();
    let kind = kinds.iter().find(|kind| kind.plural == "secrets").unwrap();
    let forbidden = Effect::Answer(Status::forbidden(kind, "s", "no"));
    simulation.faults().add(Rule::on(verb, "secrets", forbidden));
}

mod secrets {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_granted_later_is_noticed() {
        let simulation = secured();
        simulation.api.create(&secret("s", "k")).unwrap();
        refuse_secrets(&simulation, "get");
        simulation.start();
        let uid = simulation.create_claim("data");
        sleep(Duration::from_secs(40)).await;
        simulation.faults().clear();
        let took = simulation.until_saved(&uid).await;
        assert!(took <= Duration::from_secs(16), "{took:?}");
    }

    /// The secret is there, but cannot be read for a moment: no storm of tries.
    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_read_is_not_asked_for_in_a_frenzy() {
        let simulation = secured();
        simulation.api.create(&secret("s", "k")).unwrap();
        let broken = Effect::Answer(Status::internal("no"));
        simulation.faults().add(Rule::on("get", "secrets", broken));
        simulation.start();
        let uid = simulation.create_claim("data");
        sleep(Duration::from_secs(300)).await;
        assert!(simulation.api_requests("get", "secrets") < 30);
        simulation.faults().clear();
        simulation.until_saved(&uid).await;
    }

    /// Deleted with its credentials as soon as they are there to be read.
    #[tokio::test(start_paused = true)]
    async fn a_volume_goes_as_soon_as_its_secret_can_be_read() {
        let simulation = secured();
        simulation.api.create(&secret("s", "k")).unwrap();
        simulation.start();
        let uid = simulation.create_claim("data");
        simulation.until_saved(&uid).await;
        // What was read for the first call serves others for a second.
        sleep(Duration::from_secs(1)).await;
        simulation.delete_claim("data");
        refuse_secrets(&simulation, "get");
        simulation.release(&uid);
        sleep(Duration::from_secs(50)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        simulation.faults().clear();
        let took = simulation.until("it is gone", |s| s.volumes().is_empty()).await;
        assert!(took <= Duration::from_secs(16), "{took:?}");
        assert_eq!(simulation.requests("DeleteVolume")[0]["secrets"]["key"], "k");
    }
}

/// Claims that the driver refuses as they stand.
mod infeasible {
    use super::*;

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
    async fn they_go_on_when_the_class_changes() {
        let (simulation, uid) = refused(&[]).await;
        let labels = json!({"metadata": {"labels": {"touched": "yes"}}});
        simulation.api.merge("StorageClass", "", "fast", &labels).unwrap();
        assert!(simulation.until_saved(&uid).await < ONE_SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn they_go_on_when_the_claim_changes() {
        let (simulation, uid) = refused(&[]).await;
        let annotations = json!({"metadata": {"annotations": {"touched": "yes"}}});
        simulation.api.merge("PersistentVolumeClaim", "sc", "data", &annotations).unwrap();
        assert!(simulation.until_saved(&uid).await < ONE_SECOND);
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
}
