//! The driver goes away and comes back: soon, late, as itself or as another.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use support::simulation::Simulation;

const HOUR: Duration = Duration::from_secs(3600);

/// A program at work with one claim served, whose driver answers at once.
async fn at_work() -> Simulation {
    let simulation = Simulation::new(1);
    simulation.start();
    simulation.create_claim("first");
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
    simulation
}

async fn restart(simulation: &Simulation, away: Duration) {
    simulation.driver.stop();
    sleep(away).await;
    simulation.driver.start();
}

/// Serves one more claim, and says how long that took.
async fn serve(simulation: &Simulation, name: &str) -> Duration {
    let saved = simulation.volumes().len();
    simulation.create_claim(name);
    simulation.until("the claim is served", |s| s.volumes().len() == saved + 1).await
}

#[tokio::test(start_paused = true)]
async fn an_idle_restart_is_noticed_and_the_driver_identified_anew() {
    for away in [Duration::from_secs(1), Duration::from_secs(30), 2 * HOUR] {
        let simulation = at_work().await;
        sleep(6 * HOUR).await;
        restart(&simulation, away).await;
        sleep(Duration::from_secs(3)).await;
        assert!(simulation.is_running(), "{away:?}");
        for method in
            ["Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities"]
        {
            assert_eq!(simulation.calls(method), 2, "{method} after {away:?}");
        }
        let took = serve(&simulation, "second").await;
        assert!(took < Duration::from_secs(1), "{took:?} after {away:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_away_is_looked_for_once_a_second_at_most() {
    let simulation = at_work().await;
    let before = simulation.connection_attempts();
    simulation.driver.stop();
    sleep(HOUR).await;
    let attempts = simulation.connection_attempts() - before;
    assert!((3590..=3610).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_up_at_once_is_dialed_with_pauses() {
    let simulation = at_work().await;
    let before = simulation.connection_attempts();
    for _ in 0..600 {
        simulation.driver.stop();
        simulation.driver.start();
        sleep(Duration::from_millis(100)).await;
    }
    let attempts = simulation.connection_attempts() - before;
    assert!(attempts <= 65, "{attempts} in a minute");
}

/// How the process ends when a driver with this script comes back.
async fn comes_back_as(script: Value) -> String {
    let simulation = at_work().await;
    simulation.driver.stop();
    simulation.script(script);
    sleep(Duration::from_secs(1)).await;
    simulation.create_claim("second");
    simulation.driver.start();
    simulation.until("the process ended", |s| !s.is_running()).await;
    assert_eq!(simulation.calls("CreateVolume"), 1, "another driver gets no call");
    format!("{:?}", simulation.last_outcome())
}

#[tokio::test(start_paused = true)]
async fn another_driver_ends_the_process_with_the_originals_words() {
    let name = comes_back_as(json!({"name": "other.example.com"})).await;
    let capabilities =
        comes_back_as(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "CLONE_VOLUME"]}))
            .await;
    for (why, what) in [(&name, "other.example.com"), (&capabilities, "CloneVolume")] {
        assert!(why.starts_with("Some(Err(\"Lost connection to CSI driver, exiting: "), "{why}");
        assert!(why.contains(what), "{why}");
    }
}
