//! The demo shows what is so: it succeeds with the real program, and fails where something is missing
//! or lost.
//!
//! It stands here and not in `demo/`, for cargo gives a test the program of its own package only.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use demo::{
    Failure,
    play::{Player, Settings},
    scenarios::{self, Scenario},
    timeline::Timeline,
};
use futures::future::join_all;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use parking_lot::Mutex;
use testkit::apiserver::serve::manifests;

/// What the demo printed.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn settings(output: &Output) -> Settings {
    Settings {
        program: PathBuf::from(env!("CARGO_BIN_EXE_csi-provisioner")),
        limit: Duration::from_secs(120),
        timeline: Timeline::plain(output.clone()),
    }
}

/// What the secret of the claim holds.
fn secret_content() -> Vec<String> {
    let objects = manifests::parse(include_str!("../../demo/objects/claim.yaml")).unwrap();
    let secret = objects.into_iter().find(|object| object["kind"] == "Secret").unwrap();
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let text = |bytes: ByteString| String::from_utf8(bytes.0).unwrap();
    secret.data.unwrap().into_values().map(text).collect()
}

#[tokio::test]
async fn no_secret_is_shown_logged_or_written() {
    let output = Output::default();
    // A claim's life up to the middle of it.
    let mut created = scenario("demo");
    created.parts.truncate(2);
    created.volumes = 1;
    let mut player = Player::prepare(created, settings(&output)).await.unwrap();
    player.play(false).await.unwrap();
    let cluster = player.cluster();
    let volume = fs::read_dir(cluster.volumes_directory()).unwrap().next().unwrap().unwrap();
    let record = fs::read_to_string(volume.path().join("volume.json")).unwrap();
    let log = fs::read_to_string(cluster.log()).unwrap();
    assert!(output.text().contains("with secret password + user"), "{}", output.text());
    for content in secret_content() {
        for text in [&output.text(), &log, &record] {
            assert!(!text.contains(&content), "{content} in:\n{text}");
        }
    }
    player.stop().await;
}

// === Scenarios ===

fn scenario(name: &str) -> Scenario {
    scenarios::all().unwrap().into_iter().find(|scenario| scenario.name == name).unwrap()
}

/// Plays a scenario with the real program; returns what it printed.
async fn played_scenario(scenario: Scenario) -> (Result<(), Failure>, String) {
    let output = Output::default();
    let mut player = Player::prepare(scenario, settings(&output)).await.unwrap();
    let directory = player.cluster().volumes_directory().parent().unwrap().to_owned();
    let outcome = player.play(false).await;
    player.stop().await;
    assert!(!directory.exists(), "files are left in {}", directory.display());
    (outcome, output.text())
}

/// Plays the scenario to its end, at which nothing is lost; returns what it printed.
async fn ends_well(scenario: Scenario) -> String {
    let (outcome, text) = played_scenario(scenario).await;
    assert!(outcome.is_ok(), "{}\n{text}", outcome.unwrap_err());
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("Nothing is lost: "), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_any_scenario() {
    join_all(scenarios::all().unwrap().into_iter().skip(1).map(ends_well)).await;
}

#[tokio::test]
async fn a_claims_life_is_seen_from_everywhere() {
    let text = ends_well(scenario("demo")).await;
    for source in ["demo", "class", "secret", "claim", "event", "driver", "disk", "volume"] {
        let output = |line: &str| line.split_whitespace().nth(2) == Some(source);
        assert!(text.lines().any(output), "no {source} in:\n{text}");
    }
}

#[test]
fn the_page_describes_each_scenario_and_no_other() {
    let page = include_str!("../../docs/demo.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let all = scenarios::all().unwrap();
    assert!(rows.eq(all.iter().skip(1).map(|scenario| scenario.name.as_str())));
}

/// The driver makes a volume, and the scenario ends before its PersistentVolume is saved.
#[tokio::test]
async fn a_volume_without_a_persistent_volume_is_named() {
    let mut lost = scenario("slow-driver");
    lost.parts.truncate(3);
    let (outcome, text) = played_scenario(lost).await;
    let lost = outcome.unwrap_err().to_string();
    assert!(lost.contains("without a PersistentVolume: vol-pvc-"), "{lost}\n{text}");
}
