//! Classes of volume attributes, in simulated time, on servers that know them and on older ones.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{DRIVER, Simulation};
use tokio::time::sleep;

/// A driver that can modify volumes.
fn modifies(simulation: &Simulation) {
    simulation
        .script(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "MODIFY_VOLUME"]}));
}

fn volume_class(simulation: &Simulation) -> Value {
    simulation.volumes()[0]["spec"]["volumeAttributesClassName"].clone()
}

/// Where the API server does not serve the classes, or the gate is shut, claims that name one get
/// their volumes all the same: without.
#[tokio::test(start_paused = true)]
async fn where_classes_are_not_looked_at_their_names_are_ignored() {
    for (simulation, flags) in [
        (Simulation::of_release(33), &[][..]),
        (Simulation::of_release(36), &["--feature-gates=VolumeAttributesClass=false"][..]),
    ] {
        modifies(&simulation);
        simulation.start_with(flags);
        let uid = simulation.create_claim_of("data", "gold");
        simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
        assert_eq!(simulation.requests("CreateVolume")[0].get("mutable_parameters"), None);
        assert_eq!(volume_class(&simulation), Value::Null);
        assert_eq!(simulation.api_requests("get", "volumeattributesclasses"), 0);
    }
}

/// If the feature gate is set, the server is not asked: an older server's refusal is reported.
#[tokio::test(start_paused = true)]
async fn a_gate_that_is_set_beats_what_the_server_serves() {
    let simulation = Simulation::of_release(33);
    modifies(&simulation);
    simulation.start_with(&["--feature-gates=VolumeAttributesClass=true"]);
    simulation.create_claim_of("data", "gold");
    sleep(Duration::from_secs(10)).await;
    let messages = simulation.event_messages("data", "ProvisioningFailed");
    assert_eq!(
        messages,
        [
            "the server could not find the requested resource (get volumeattributesclasses.storage.k8s.io gold)"
        ]
    );
    assert_eq!(simulation.calls("CreateVolume"), 0);
}

/// A server that fails to answer at the start counts as one that serves the classes.
#[tokio::test(start_paused = true)]
async fn without_an_answer_the_classes_count_as_served() {
    use testkit::apiserver::faults::{Effect, Rule};
    let simulation = Simulation::new(1);
    modifies(&simulation);
    simulation.faults().add(Rule::on("get", "", Effect::CutBefore));
    simulation.create_attributes_class("gold", DRIVER, &json!({"iops": "1"}));
    simulation.start();
    let uid = simulation.create_claim_of("data", "gold");
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    assert_eq!(volume_class(&simulation), "gold");
}
