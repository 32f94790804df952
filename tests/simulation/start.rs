//! The first moments, in simulated time: what is served while everything that stands in the cluster
//! is still being listed, and what waits for the lists.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{DRIVER, Process, Simulation, claim, foreign_volume};
use testkit::apiserver::{
    Options,
    faults::{Effect, Rule, StreamFault},
};
use tokio::time::sleep;

/// How long a new claim may wait for its call, whatever stands in the cluster.
const AT_ONCE: Duration = Duration::from_millis(300);

/// How long each of the slow answers takes.
const SLOW: Duration = Duration::from_secs(10);

/// What the server gives on a page of a list.
const PAGE: usize = 100;

/// More than that.
const VOLUMES: usize = 101;

/// A cluster full of others' claims and volumes, more than fit on a first page: what does not of the claims
/// takes its time, and of the volumes twice as long.
fn slow_cluster() -> Simulation {
    let simulation = slow_claims();
    for number in 0..VOLUMES {
        let owner = format!("owner-{number}");
        simulation.api.create(&volume_named(&format!("m-{number:03}"), &owner)).unwrap();
    }
    slow_rest(&simulation, "persistentvolumes", 2 * SLOW);
    simulation
}

/// The same without the volumes.
fn slow_claims() -> Simulation {
    let options = Options { page: PAGE, ..Options::default() };
    let simulation = Simulation::with_options(options);
    for number in 0..VOLUMES {
        let mut claim = claim(&format!("m-{number:03}"));
        claim["metadata"]["annotations"] = json!({});
        claim["spec"]["volumeName"] = json!(format!("m-{number:03}"));
        simulation.api.create(&claim).unwrap();
    }
    slow_rest(&simulation, "persistentvolumeclaims", SLOW);
    simulation
}

/// What does not fit on the next list's first page takes so long.
fn slow_rest(simulation: &Simulation, plural: &str, time: Duration) {
    let slow = Rule::on("list", plural, Effect::Delay(time)).times(1);
    simulation.faults().add(Rule { skip: 1, ..slow });
}

/// Without and with an election.
const STARTS: [fn(&Simulation) -> Process; 2] =
    [Simulation::start, |simulation| simulation.start_elected("a")];

/// Makes a claim as its user does, and annotates it as kube-controller-manager does.
async fn claim_in_two_steps(simulation: &Simulation, name: &str) -> String {
    let mut bare = claim(name);
    let annotated = json!({"metadata": {"annotations": bare["metadata"]["annotations"].take()}});
    bare["metadata"]["annotations"] = json!({});
    let uid = simulation.create(&bare);
    sleep(Duration::from_millis(30)).await;
    simulation.api.merge("PersistentVolumeClaim", "sc", name, &annotated).unwrap();
    uid
}

async fn asked(simulation: &Simulation, calls: usize) -> Duration {
    simulation.until("the driver was asked", |s| s.calls("CreateVolume") == calls).await
}

fn touch(simulation: &Simulation, claim: &str) {
    let label = json!({"metadata": {"labels": {"touched": "yes"}}});
    simulation.api.merge("PersistentVolumeClaim", "sc", claim, &label).unwrap();
}

fn volume_named(name: &str, owner: &str) -> Value {
    let mut volume = foreign_volume(owner, owner, owner);
    volume["metadata"]["name"] = json!(name);
    volume
}

/// Claims are listed whole, then PersistentVolumes, and then work begins (safety rule 6).
#[tokio::test(start_paused = true)]
async fn a_claim_born_while_the_first_lists_run_waits_for_them_like_all_others() {
    for start in STARTS {
        let simulation = slow_cluster();
        start(&simulation);
        sleep(Duration::from_secs(2)).await;
        let uid = claim_in_two_steps(&simulation, "z-new").await;
        // A claim that is gone before the lists are whole is not asked for.
        simulation.create_claim("z-short");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(simulation.api_requests("list", "persistentvolumes"), 0, "claims come first");
        simulation.delete_claim("z-short");
        assert!(asked(&simulation, 1).await < 3 * SLOW);
        simulation.until("its volume is saved", |s| s.is_saved(&uid)).await;
        sleep(3 * SLOW).await;
        simulation.create_claim("z-later");
        assert!(asked(&simulation, 2).await < AT_ONCE);
        let looks = simulation.api_requests("get", "persistentvolumes");
        assert_eq!(looks, 1, "created after the list");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(simulation.calls("CreateVolume"), 2, "and nobody twice");
        assert_eq!(simulation.volumes().len(), VOLUMES + 2);
    }
}

/// What is for it may have any name, which no look-up finds.
#[tokio::test(start_paused = true)]
async fn a_claim_that_stood_waits_for_the_list_of_volumes() {
    for page in ["a-first", "z-second"] {
        let simulation = slow_cluster();
        let uid = simulation.create_claim(page);
        simulation.start();
        sleep(Duration::from_secs(2)).await;
        // An event before or after its page does not make it a new claim.
        touch(&simulation, page);
        sleep((2 * SLOW).saturating_sub(Duration::from_secs(3))).await;
        assert_eq!(simulation.calls("CreateVolume"), 0, "{page}");
        simulation.until("its volume is saved", |s| s.is_saved(&uid)).await;
        assert_eq!(simulation.calls("CreateVolume"), 1, "{page}");
    }
}

/// Its PersistentVolume was deleted by hand between the lists, and no watch has delivered its binding yet
/// (seed 74066).
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_bound_since_it_was_listed_is_not_asked_for() {
    let simulation = slow_cluster();
    let held = Effect::Stream(StreamFault::Stall { after: 0 });
    simulation.faults().add(Rule::on("watch", "persistentvolumeclaims", held).times(1));
    let uid = simulation.create_claim("a-first");
    simulation.start();
    sleep(SLOW + Duration::from_secs(2)).await;
    simulation.bind("a-first", &format!("pvc-{uid}"));
    sleep(6 * SLOW).await;
    assert_eq!(simulation.calls("CreateVolume"), 0);
    assert_eq!(simulation.api_requests("get", "persistentvolumeclaims"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_is_listed_late_is_not_asked_for_again() {
    for name in ["old-name", "pvc"] {
        let simulation = slow_cluster();
        let uid = simulation.create_claim("z-stood");
        let name = if name == "pvc" { format!("pvc-{uid}") } else { name.to_owned() };
        simulation.api.create(&volume_named(&name, &uid)).unwrap();
        simulation.start();
        sleep(Duration::from_secs(2)).await;
        touch(&simulation, "z-stood");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(simulation.calls("CreateVolume"), 0, "{name}");
    }
}

/// Nothing is deleted before all is known that could speak against it.
#[tokio::test(start_paused = true)]
async fn deletions_wait_for_the_lists() {
    let simulation = slow_cluster();
    let mut volume = volume_named("released", "nobody");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
    simulation.api.create(&volume).unwrap();
    simulation.phase("released", "Released");
    simulation.start();
    sleep((2 * SLOW).saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    simulation.until("it is gone", |s| s.volumes().len() == VOLUMES).await;
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_lists() {
    let simulation = slow_cluster();
    let process = simulation.start();
    sleep(Duration::from_secs(2)).await;
    process.stop();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(process.outcome(), Some(Ok(())));
}

/// How many claims stand before a start; more than are served at once.
const BACKLOG: usize = 400;

/// Claims that stood before the start, and a driver that takes so long.
fn backlog(takes: Duration) -> (Simulation, Vec<String>) {
    let simulation = Simulation::new(1);
    let takes = u64::try_from(takes.as_millis()).unwrap();
    simulation.script(json!({"create_volume": [{"delay_ms": takes}]}));
    let uids = (0..BACKLOG).map(|number| simulation.create_claim(&format!("b-{number:03}")));
    let uids = uids.collect();
    (simulation, uids)
}

async fn all_saved(simulation: &Simulation) {
    simulation.until("all are saved", |s| s.volumes().len() == BACKLOG).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("CreateVolume"), BACKLOG);
}

/// What was listed may be old by the time a claim's turn comes: claim and PersistentVolume are read.
#[tokio::test(start_paused = true)]
async fn each_claim_of_a_backlog_costs_two_reads() {
    let (simulation, _) = backlog(Duration::from_millis(50));
    simulation.start();
    all_saved(&simulation).await;
    for kind in ["persistentvolumeclaims", "persistentvolumes"] {
        assert_eq!(simulation.api_requests("get", kind), BACKLOG, "{kind}");
    }
}

/// A process before this one has saved it in the meantime.
#[tokio::test(start_paused = true)]
async fn a_volume_that_the_watch_does_not_show_is_found_before_the_call() {
    let (simulation, uids) = backlog(Duration::from_millis(500));
    let held = Effect::Stream(StreamFault::Stall { after: 0 });
    simulation.faults().add(Rule::on("watch", "persistentvolumes", held));
    simulation.start();
    sleep(Duration::from_millis(200)).await;
    let last = uids.last().unwrap();
    simulation.api.create(&volume_named(&format!("pvc-{last}"), last)).unwrap();
    simulation.until("all are saved", |s| s.volumes().len() == BACKLOG).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("CreateVolume"), BACKLOG - 1);
}
