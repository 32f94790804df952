//! Failed attempts are repeated after `--retry-interval-start`, then after twice as long, and so on up to
//! `--retry-interval-max` (the recorded scenario `lifecycle-retry-backoff`, to the hundredth of a second).

use std::time::Duration;

use serde_json::json;
use support::simulation::{Simulation, provisioned_volume};
use tokio::time::Instant;

/// The times of the first five calls, in hundredths of a second after the first.
async fn times(simulation: &Simulation, method: &str) -> Vec<u128> {
    let mut times = Vec::new();
    for calls in 1..=5 {
        let what = format!("{method} is called {calls} times");
        simulation.until(&what, |s| s.calls(method) == calls).await;
        times.push(Instant::now());
    }
    times.iter().map(|time| (*time - times[0]).as_millis() / 10).collect()
}

#[tokio::test(start_paused = true)]
async fn failed_creations_and_deletions_are_repeated_after_doubled_waits() {
    let simulation = Simulation::new(1);
    let broken = json!([{"error": {"code": "INTERNAL", "message": "broken"}}]);
    let script = json!({"create_volume": broken, "delete_volume": broken});
    simulation.driver.backend().amend(serde_json::from_value(script).unwrap());
    simulation.start_with(&["--retry-interval-start=300ms", "--retry-interval-max=600ms"]);
    simulation.create_claim("data");
    simulation.api.create(&provisioned_volume("pv", "h-1")).unwrap();
    simulation.phase("pv", "Released");
    let both = tokio::join!(times(&simulation, "CreateVolume"), times(&simulation, "DeleteVolume"));
    for times in [both.0, both.1] {
        for (time, expected) in times.iter().zip([0_u128, 30, 90, 150, 210]) {
            assert!(time.abs_diff(expected) <= 4, "{times:?}: polled each 20 ms");
        }
    }
    let waits = Duration::from_secs(1);
    let calls = simulation.calls("CreateVolume");
    tokio::time::sleep(10 * waits).await;
    let more = simulation.calls("CreateVolume") - calls;
    assert!((16..=17).contains(&more), "{more} in ten seconds");
}
