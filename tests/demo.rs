//! The demo shows what is so: it succeeds with the real program, and without any one of its steps
//! it fails and names that step.
//!
//! It stands here and not in `demo/`, for cargo gives a test the program of its own package only.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use demo::{
    cluster,
    observations::Source,
    play::{Demo, Failure, LIMIT, Settings},
    scenarios::{self, Part, Scenario, Sign, player::Player},
    steps::{Act, Step},
    timeline::Timeline,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::apiserver::{
    faults::{Effect, Match, Rule},
    status::Status,
};
use tokio::{task::JoinSet, time::sleep};

/// How long a step is waited for where one is missing: long enough for all others on a slow
/// machine on which every demo of this file runs at once.
const PATIENCE: Duration = Duration::from_secs(8);

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

/// A program that is none, from `demo/tests/stubs`.
fn stub(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("demo/tests/stubs").join(name)
}

fn settings(limit: Duration, output: &Output) -> Settings {
    Settings {
        program: PathBuf::from(env!("CARGO_BIN_EXE_csi-provisioner")),
        limit,
        size: None,
        timeline: Timeline::plain(output.clone()),
    }
}

/// Plays to the end or to the first failure, with a fault from before an act on.
async fn played(mut demo: Demo, before: Act, fault: impl FnOnce(&Demo)) -> Result<(), Failure> {
    let outcome = async {
        let mut fault = Some(fault);
        for act in [Act::Start, Act::Create, Act::Delete] {
            if let Some(fault) = fault.take_if(|_| act == before) {
                // What the program has read serves it for a second.
                sleep(Duration::from_secs(1)).await;
                fault(&demo);
            }
            demo.play(act).await?;
        }
        demo.close().await
    }
    .await;
    demo.stop().await;
    outcome
}

// === Intact ===

#[tokio::test]
async fn with_the_real_program_all_steps_are_seen_and_nothing_is_left() {
    let output = Output::default();
    let demo = Demo::prepare(settings(LIMIT, &output)).await.unwrap();
    let directory = demo.cluster().volumes_directory().parent().unwrap().to_owned();
    let outcome = played(demo, Act::Start, |_| {}).await;
    let text = output.text();
    assert!(outcome.is_ok(), "{}\n{text}", outcome.unwrap_err());
    assert!(text.trim_end().ends_with("the driver's list is empty."), "{text}");
    for source in ["demo", "class", "secret", "claim", "event", "driver", "disk", "volume"] {
        let output = |line: &str| line.split_whitespace().nth(2) == Some(source);
        assert!(text.lines().any(output), "no {source} in:\n{text}");
    }
    assert!(!directory.exists(), "files are left in {}", directory.display());
}

#[tokio::test]
async fn no_secret_is_shown_logged_or_written() {
    let output = Output::default();
    let mut demo = Demo::prepare(settings(LIMIT, &output)).await.unwrap();
    for act in [Act::Start, Act::Create] {
        demo.play(act).await.unwrap();
    }
    let cluster = demo.cluster();
    let volume = cluster.volumes_directory().join(&cluster.files().unwrap()[0]);
    let record = fs::read_to_string(volume.join("volume.json")).unwrap();
    let log = fs::read_to_string(cluster.log()).unwrap();
    assert!(output.text().contains("with secret password + user"), "{}", output.text());
    for content in cluster::secret_content().unwrap().into_values() {
        for text in [&output.text(), &log, &record] {
            assert!(!text.contains(&content), "{content} in:\n{text}");
        }
    }
    demo.stop().await;
}

// === Scenarios ===

/// Plays a scenario with the real program; returns what it printed.
async fn played_scenario(scenario: &'static Scenario) -> (Result<(), Failure>, String) {
    let output = Output::default();
    let mut player = Player::prepare(scenario, settings(LIMIT, &output)).await.unwrap();
    let directory = player.cluster().volumes_directory().parent().unwrap().to_owned();
    let outcome = player.play().await;
    player.stop().await;
    assert!(!directory.exists(), "files are left in {}", directory.display());
    (outcome, output.text())
}

/// Plays the scenario of this name to its end, at which nothing is lost.
async fn nothing_is_lost(name: &str) {
    let (outcome, text) = played_scenario(scenarios::find(name).unwrap()).await;
    assert!(outcome.is_ok(), "{}\n{text}", outcome.unwrap_err());
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("Nothing is lost: "), "{text}");
}

#[tokio::test]
async fn with_a_slow_driver_nothing_is_lost() {
    nothing_is_lost("slow-driver").await;
}

#[tokio::test]
async fn with_a_driver_that_is_killed_in_mid_call_nothing_is_lost() {
    nothing_is_lost("driver-killed").await;
}

#[tokio::test]
async fn with_a_provisioner_that_is_killed_in_mid_call_nothing_is_lost() {
    nothing_is_lost("provisioner-killed").await;
}

#[tokio::test]
async fn with_a_claim_that_is_deleted_meanwhile_nothing_is_lost() {
    nothing_is_lost("claim-deleted").await;
}

#[tokio::test]
async fn with_a_snapshot_that_is_deleted_during_its_restore_nothing_is_lost() {
    nothing_is_lost("restore").await;
}

#[tokio::test]
async fn with_a_zone_that_is_full_nothing_is_lost() {
    nothing_is_lost("zones").await;
}

#[test]
fn the_page_describes_each_scenario_and_no_other() {
    let page = include_str!("../docs/demo.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let names = scenarios::ALL.iter().map(|scenario| scenario.name);
    assert!(rows.eq(names));
}

/// The driver makes a volume, and the scenario ends before its PersistentVolume is saved.
static LOST: Scenario = Scenario {
    name: "lost",
    parts: &[
        Part { act: scenarios::Act::StartProgram, signs: &[] },
        Part { act: scenarios::Act::Silence, signs: &[] },
        Part { act: scenarios::Act::Create, signs: &[Sign(Source::Disk, ": holds")] },
    ],
    ..scenarios::ALL[0]
};

#[tokio::test]
async fn a_volume_without_a_persistent_volume_is_named() {
    let (outcome, text) = played_scenario(&LOST).await;
    match outcome {
        Err(Failure::Lost(balance)) => {
            assert!(balance.to_string().contains("without a PersistentVolume: vol-pvc-"));
        }
        other => panic!("{other:?}\n{text}"),
    }
}

#[tokio::test]
async fn a_scenario_without_one_of_its_signs_fails_and_names_it() {
    let mut settings = settings(Duration::from_secs(1), &Output::default());
    settings.program = stub("idle");
    let mut player = Player::prepare(&scenarios::ALL[0], settings).await.unwrap();
    let outcome = player.play().await.unwrap_err().to_string();
    player.stop().await;
    assert!(outcome.contains("no line of Driver says \"GetPluginInfo\""), "{outcome}");
}

// === Without one step ===

/// What takes a step out.
enum Fault {
    /// The demo is set up so.
    Setting(fn(&mut Settings)),
    /// This is done to the running demo before an act.
    Before(Act, Box<dyn FnOnce(&Demo) + Send>),
}

/// From before an act on, the API server answers some requests wrongly.
fn requests(act: Act, rule: Rule) -> Fault {
    Fault::Before(act, Box::new(|demo| demo.cluster().api().faults().add(rule)))
}

/// What keeps just this step, and what it causes, from happening.
fn fault_of(step: Step) -> Fault {
    use Act::{Create, Delete};
    match step {
        Step::DriverNamed => Fault::Setting(|settings| settings.program = stub("idle")),
        Step::ClaimPending => requests(Create, swallowed("create", "persistentvolumeclaims")),
        Step::ClaimHandedOver => requests(Create, refused("patch", "persistentvolumeclaims", "")),
        Step::BeginningTold => requests(Create, refused("create", "events", "").times(1)),
        Step::CreateCalled => requests(Create, refused("get", "secrets", "")),
        Step::SecretPassed => requests(Create, without_content()),
        Step::DirectoryMade => Fault::Setting(|settings| settings.size = Some(0)),
        Step::VolumeSaved => requests(Create, refused("create", "persistentvolumes", "")),
        Step::SuccessTold => requests(Create, refused("create", "events", "").skip(1)),
        Step::VolumeBound => requests(Create, refused("patch", "persistentvolumes", "status")),
        Step::ClaimBound => requests(Create, refused("patch", "persistentvolumeclaims", "status")),
        Step::ClaimGone => requests(Delete, swallowed("delete", "persistentvolumeclaims")),
        Step::VolumeReleased => requests(Delete, refused("patch", "persistentvolumes", "status")),
        // Without the right to it, the driver would be called without the secret.
        Step::DeleteCalled => {
            requests(Delete, answered("get", "secrets", "", Status::internal("out of order")))
        }
        Step::DirectoryGone => Fault::Before(Delete, Box::new(obstruct)),
        Step::VolumeDeleting => requests(Delete, refused("delete", "persistentvolumes", "")),
        Step::VolumeGone => requests(Delete, swallowed("patch", "persistentvolumes")),
    }
}

/// Requests that are answered so, and not carried out.
fn answered(verb: &str, resource: &str, subresource: &str, status: Status) -> Rule {
    let mut rule = Rule::on(verb, resource, Effect::Answer(status));
    rule.when = Match { subresource: Some(subresource.to_owned()), ..Match::on(verb, resource) };
    rule
}

fn refused(verb: &str, resource: &str, subresource: &str) -> Rule {
    answered(verb, resource, subresource, Status::new(403, "Forbidden", "not in this test"))
}

/// Requests that do nothing, while their sender believes that all is well.
fn swallowed(verb: &str, resource: &str) -> Rule {
    answered(verb, resource, "", lie(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}})))
}

/// The secret is read as an empty one.
fn without_content() -> Rule {
    let metadata = json!({"name": "data-credentials", "namespace": "default"});
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata});
    answered("get", "secrets", "", lie(secret))
}

fn lie(body: Value) -> Status {
    Status { code: 200, body, retry_after: None }
}

/// Puts something where the driver puts what it deletes.
fn obstruct(demo: &Demo) {
    let cluster = demo.cluster();
    for volume in cluster.files().unwrap() {
        let obstacle = cluster.volumes_directory().join(format!(".gone-{volume}")).join("x");
        fs::create_dir_all(obstacle).unwrap();
    }
}

async fn played_without(step: Step) -> (Step, Result<(), Failure>) {
    let mut settings = settings(PATIENCE, &Output::default());
    let outcome = match fault_of(step) {
        Fault::Setting(set) => {
            set(&mut settings);
            played(Demo::prepare(settings).await.unwrap(), Act::Start, |_| {}).await
        }
        Fault::Before(act, fault) => {
            played(Demo::prepare(settings).await.unwrap(), act, fault).await
        }
    };
    (step, outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_one_step_the_demo_fails_and_names_it() {
    let mut demos: JoinSet<_> = Step::ALL.into_iter().map(played_without).collect();
    while let Some(played) = demos.join_next().await {
        let (step, outcome) = played.unwrap();
        match outcome {
            Err(Failure::Missing { step: missing, .. }) => assert_eq!(missing, step),
            other => panic!("without {step:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_volume_that_does_not_wait_for_its_finalizer_is_noticed() {
    let demo = Demo::prepare(settings(PATIENCE, &Output::default())).await.unwrap();
    let outcome = played(demo, Act::Delete, |demo| {
        let api = demo.cluster().api();
        api.faults().add(refused("patch", "persistentvolumes", ""));
        let volume = api.list("PersistentVolume", "").remove(0);
        let name = volume["metadata"]["name"].as_str().unwrap();
        let bare = json!({"metadata": {"finalizers": null}});
        api.merge("PersistentVolume", "", name, &bare).unwrap();
    })
    .await;
    let expected = (Step::VolumeGone, Step::VolumeDeleting);
    match outcome {
        Err(Failure::Causeless { step, cause }) => assert_eq!((step, cause), expected),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_left_at_the_end_is_named() {
    let demo = Demo::prepare(settings(LIMIT, &Output::default())).await.unwrap();
    let outcome = played(demo, Act::Delete, |demo| {
        fs::create_dir(demo.cluster().volumes_directory().join("vol-stray")).unwrap();
    })
    .await;
    match outcome {
        Err(Failure::LeftBehind(left)) => assert_eq!(left.files, ["vol-stray"]),
        other => panic!("{other:?}"),
    }
}
