//! Who leads, and how that ends: SIGTERM, a lost Lease, a hung API server, a suspended machine.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;
use testkit::{
    apiserver::{
        audit::Recorded,
        faults::{Effect, Match, Rule},
        status::Status,
    },
    driver::{Host, Script, Scripted},
};
use tokio::time::{Instant, sleep};

use support::{
    connector::connector,
    simulation::{DRIVER, Process, Simulation},
};

/// A leader and a standby.
async fn two(simulation: &Simulation) -> (Process, Process) {
    let first = simulation.start_elected("a");
    simulation.until("the first leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    let second = simulation.start_elected("b");
    sleep(Duration::from_secs(3)).await;
    (first, second)
}

/// How long it takes until the Lease names `holder`.
async fn until_held_by(simulation: &Simulation, holder: &str) -> Duration {
    simulation.until("the other leads", |s| s.lease_holder().as_deref() == Some(holder)).await
}

/// How many lists and watches of all objects of a kind were asked for, but those of the Lease.
fn lists_and_watches(simulation: &Simulation) -> usize {
    let requests = simulation.api.requests().all();
    let looks = |verb: &str| matches!(verb, "list" | "watch");
    // Whoever leads sweeps snapshots for what a crash left on them.
    let known = |resource: &str| !matches!(resource, "leases" | "volumesnapshots");
    let whole = |r: &Recorded| r.info.namespace.is_empty() && known(&r.info.resource);
    requests.iter().filter(|r| looks(&r.info.verb) && whole(r)).count()
}

fn lease_events(simulation: &Simulation) -> BTreeSet<String> {
    let events = simulation.api.list("Event", "default");
    let about = events.iter().filter(|event| event["reason"] == "LeaderElection");
    about.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_hands_over_in_under_a_second() {
    let simulation = Simulation::new(1);
    let (first, _second) = two(&simulation).await;
    let looks = lists_and_watches(&simulation);
    // Nobody works on it until the leader changes.
    simulation.script(json!({"create_volume": [{"delay_ms": 8000}]}));
    simulation.create_claim("old");
    simulation.until("the driver was asked", |s| s.calls("CreateVolume") == 1).await;
    first.stop();
    simulation.create_claim("new");
    simulation.until("the first ended", |_| first.outcome().is_some()).await;
    assert_eq!(first.outcome(), Some(Ok(())));
    let took = until_held_by(&simulation, "b").await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    simulation.until("the new one is saved", |s| s.volumes().len() == 2).await;
    let each = "classes, claims and volumes are listed and watched by the new leader alone";
    assert_eq!((looks, lists_and_watches(&simulation)), (6, 12), "{each}");
    assert_eq!(
        lease_events(&simulation),
        set(&["a became leader", "a stopped leading", "b became leader"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_asks_for_nobody_before_it_has_listed() {
    let simulation = Simulation::new(1);
    let (first, _second) = two(&simulation).await;
    simulation.faults().add(Rule::on("list", "persistentvolumes", Effect::CutBefore).times(1000));
    simulation.script(json!({"create_volume": [{"delay_ms": 5000}]}));
    let uid = simulation.asked().await;
    first.kill();
    until_held_by(&simulation, "b").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
    simulation.faults().clear();
    simulation.until("its volume is saved", |s| s.is_saved(&uid)).await;
}

/// The leader before saved the volume under a name that this one's look-ups do not try, and the claim is not bound
/// yet (seed 76119).
#[tokio::test(start_paused = true)]
async fn a_volume_that_the_leader_before_has_saved_is_found_whatever_its_name() {
    let simulation = Simulation::new(1);
    let first = simulation.start_elected_with("a", &["--volume-name-prefix=tank"]);
    simulation.until("the first leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    simulation.start_elected("b");
    sleep(Duration::from_secs(3)).await;
    simulation.create_claim("data");
    simulation.until("its volume is saved", |s| s.volumes().len() == 1).await;
    first.stop();
    until_held_by(&simulation, "b").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(simulation.calls("CreateVolume"), 1);
}

/// A volume that can't be saved is kept for as long as `--shutdown-timeout` allows; nothing is in
/// flight then, so the Lease is given back, and the next leader asks for the same again.
#[tokio::test(start_paused = true)]
async fn a_save_that_fails_holds_the_stop_but_not_the_lease() {
    let cut = Rule::on("create", "persistentvolumes", Effect::CutBefore).times(1000);
    assert_eq!(a_stop_while_saving_fails(cut).await.as_secs(), 20);
}

/// What the API server refuses is left to the next leader, who learns of it from the claim: more
/// rights often come with the very rollout that stops this process.
#[tokio::test(start_paused = true)]
async fn a_save_that_is_refused_does_not_hold_the_stop() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let refusal = Effect::Answer(Status::new(code, reason, "no"));
        let refuse = Rule::on("create", "persistentvolumes", refusal).times(1000);
        let took = a_stop_while_saving_fails(refuse).await;
        assert!(took < Duration::from_secs(1), "{reason}: {took:?}");
    }
}

/// Stops a leader while `fault` keeps it from saving a volume; how long that takes.
async fn a_stop_while_saving_fails(fault: Rule) -> Duration {
    let simulation = Simulation::new(1);
    simulation.faults().add(fault);
    let (first, _second) = two(&simulation).await;
    simulation.create_claim("data");
    simulation.until_failed("data").await;
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    simulation.until_stopped(&first).await;
    assert_eq!(first.outcome(), Some(Ok(())));
    let took = start.elapsed();
    assert!(until_held_by(&simulation, "b").await < Duration::from_secs(1));
    simulation.faults().clear();
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
    let requests = simulation.requests("CreateVolume");
    assert!(requests.windows(2).all(|two| two.first() == two.last()), "{requests:?}");
    assert_eq!(simulation.left_at_driver().len(), 1);
    took
}

/// A call that outlasts `--shutdown-timeout` is cut, and the Lease runs out.
#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_is_cut_and_the_lease_runs_out() {
    let simulation =
        Simulation::scripted(json!({"create_volume": [{"delay_ms": 60_000, "times": 1}, {}]}));
    let first = simulation.start_elected_with("a", &["--timeout=2m", "--shutdown-timeout=3s"]);
    simulation.until("the first leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    simulation.asked().await;
    simulation.start_elected("b");
    let start = Instant::now();
    simulation.until_stopped(&first).await;
    assert_eq!(first.outcome(), Some(Ok(())));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(simulation.lease_holder().as_deref(), Some("a"), "with a call in flight");
    let took = until_held_by(&simulation, "b").await;
    assert!(took > Duration::from_secs(8), "not before it ran out: {took:?}");
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
}

/// Renewals go on until the process ends; they no longer open the gate.
#[tokio::test(start_paused = true)]
async fn nothing_starts_after_the_cut() {
    let simulation = Simulation::new(1);
    simulation.refuse("create", "persistentvolumes", 10_000);
    let flags = [
        "--timeout=2m",
        "--shutdown-timeout=1s",
        "--leader-election-lease-duration=3s",
        "--leader-election-renew-deadline=2s",
        "--leader-election-retry-period=100ms",
    ];
    let process = simulation.start_elected_with("a", &flags);
    // Saves that fail and are tried again, at many moments.
    for number in 0..20 {
        simulation.create_claim(&format!("claim-{number}"));
        sleep(Duration::from_millis(50)).await;
    }
    simulation.script(json!({"create_volume": [{"delay_ms": 60_000}]}));
    simulation.create_claim("slow");
    simulation.until("the driver was asked", |s| s.calls_under_way("CreateVolume") == 1).await;
    process.stop();
    sleep(Duration::from_millis(1010)).await;
    let before = simulation.api_requests("create", "persistentvolumes");
    simulation.until("the process ended", |_| process.outcome().is_some()).await;
    assert_eq!(simulation.api_requests("create", "persistentvolumes"), before);
}

/// The Lease is lost in mid-call: what happened is reported before the process ends, and what the driver answers
/// meanwhile is not saved any more.
#[tokio::test(start_paused = true)]
async fn the_last_events_get_out_when_the_lease_is_lost() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 500}]}));
    let process = simulation
        .start_elected_with("a", &["--leader-election-retry-period=100ms", "--timeout=2m"]);
    simulation.asked().await;
    let asked = Instant::now();
    simulation.faults().add(Rule::on("create", "events", Effect::Delay(Duration::from_secs(1))));
    simulation.overwrite_lease_holder("b");
    simulation.until("the process ended", |_| process.outcome().is_some()).await;
    assert!(asked.elapsed() > Duration::from_millis(600), "{:?}", asked.elapsed());
    assert_eq!(lease_events(&simulation), set(&["a became leader", "a stopped leading"]));
    assert!(matches!(process.outcome(), Some(Err(why)) if why.contains("Stopped leading")));
    sleep(Duration::from_secs(60)).await;
    assert!(simulation.volumes().is_empty(), "another leads");
}

/// An API server that answers nothing any more: the running call is cut at the renew deadline,
/// nothing is begun after it, and the process ends.
#[tokio::test(start_paused = true)]
async fn a_hung_api_server_ends_the_term_at_its_deadline() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 60_000}]}));
    let process = simulation.start_elected_with("a", &["--timeout=2m"]);
    simulation.until("it leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    simulation.asked().await;
    let hang = Rule { when: Match::default(), skip: 0, times: None, effect: Effect::Hang };
    simulation.faults().add(hang);
    let start = Instant::now();
    simulation.until("the call is cut", |s| s.calls_under_way("CreateVolume") == 0).await;
    assert!(start.elapsed() <= Duration::from_millis(10_100), "{:?}", start.elapsed());
    simulation.until("the process ended", |_| process.outcome().is_some()).await;
    assert!(start.elapsed() <= Duration::from_millis(12_200), "{:?}", start.elapsed());
    let why = "Stopped leading: the Lease could not be renewed within the renew deadline";
    assert_eq!(process.outcome(), Some(Err(why.to_owned())));
    assert_eq!(simulation.calls("CreateVolume"), 1);
}

/// A machine that was suspended past the term's end: its calls are cut as soon as it is back.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_does_not_go_on() {
    let simulation = Simulation::scripted(json!({"create_volume": [{"delay_ms": 60_000}]}));
    let process = simulation.start_elected_with("a", &["--timeout=2m"]);
    simulation.until("it leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    simulation.asked().await;
    process.suspend(Duration::from_secs(3600));
    let start = Instant::now();
    simulation.create_claim("more");
    simulation.until("the process ended", |_| process.outcome().is_some()).await;
    assert!(start.elapsed() <= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(simulation.calls_under_way("CreateVolume"), 0);
    assert_eq!(simulation.calls("CreateVolume"), 1, "nothing is begun any more");
    assert!(matches!(process.outcome(), Some(Err(why)) if why.starts_with("Stopped leading")));
}

/// A driver as the simulation's, for one process alone.
fn driver_of_its_own() -> Arc<Host<Scripted>> {
    Arc::new(Host::new(Scripted::new(Script { name: Some(DRIVER.into()), ..Script::default() })))
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_driver_stays_away_makes_room_for_another() {
    let simulation = Simulation::new(1);
    let driver = driver_of_its_own();
    let first = simulation.start_elected_beside("a", connector(&driver));
    simulation.until("the first leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    let _second = simulation.start_elected("b");
    sleep(Duration::from_secs(3)).await;

    driver.stop();
    sleep(Duration::from_secs(20)).await;
    driver.start();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(simulation.lease_holder().as_deref(), Some("a"), "a restart is waited for");

    driver.stop();
    let uid = simulation.create_claim("data");
    let took = until_held_by(&simulation, "b").await;
    assert!(took < Duration::from_secs(32), "{took:?}");
    simulation.until_saved(&uid).await;
    let outcome = format!("{:?}", first.outcome());
    let expected =
        "Some(Err(\"Lost connection to CSI driver, exiting: CSI driver disk.example.com at ";
    assert!(outcome.starts_with(expected), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn a_standby_without_a_driver_is_no_candidate() {
    let simulation = Simulation::new(1);
    let driver = driver_of_its_own();
    let first = simulation.start_elected("a");
    simulation.until("the first leads", |s| s.lease_holder().as_deref() == Some("a")).await;
    let second = simulation.start_elected_beside("b", connector(&driver));
    sleep(Duration::from_secs(3)).await;
    driver.stop();
    simulation.until("the standby ended", |_| second.outcome().is_some()).await;
    first.kill();
    let third = simulation.start_elected("c");
    until_held_by(&simulation, "c").await;
    assert!(third.outcome().is_none());
}
