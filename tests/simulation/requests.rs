//! What claims and deletions cost in requests, in simulated time: by verb and resource, whole.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use serde_json::{Value, json};
use support::simulation::{DRIVER, Simulation, claim, class, secret, with_secret};
use testkit::apiserver::faults::{Effect, Rule};
use tokio::time::sleep;

/// Requests by `verb resource`.
type Counts = BTreeMap<String, usize>;

/// A cluster whose driver takes a tenth of a second for each call, and whose class `secret` names
/// a secret.
fn cluster() -> Simulation {
    let simulation = Simulation::scripted(json!({
        "create_volume": [{"delay_ms": 100}],
        "delete_volume": [{"delay_ms": 100}],
    }));
    simulation.create(&secret("login", "admin"));
    let parameters = json!({"reclaimPolicy": "Delete", "parameters": with_secret("login")});
    simulation.create(&class("secret", &parameters));
    simulation
}

fn name(number: usize) -> String {
    format!("data-{number}")
}

/// Makes claims of the class `secret`; gives their UIDs.
fn make(simulation: &Simulation, numbers: Range<usize>) -> Vec<String> {
    let make = |number| {
        let mut claim = claim(&name(number));
        claim["spec"]["storageClassName"] = json!("secret");
        simulation.create(&claim)
    };
    numbers.map(make).collect()
}

/// Makes 500 claims a second, so many in all; gives their UIDs.
async fn make_at_full_rate(simulation: &Simulation, count: usize) -> Vec<String> {
    let mut made = Vec::new();
    for start in (0..count).step_by(10) {
        made.extend(make(simulation, start..start + 10));
        sleep(Duration::from_millis(20)).await;
    }
    made
}

/// Binds the claims to their volumes, as the cluster does.
fn bind(simulation: &Simulation, uids: &[String]) {
    for (number, uid) in uids.iter().enumerate() {
        let (volume, bound) = (format!("pvc-{uid}"), json!({"status": {"phase": "Bound"}}));
        let named = json!({"spec": {"volumeName": volume}});
        for (kind, namespace, name, patch) in [
            ("PersistentVolume", "", &volume, &bound),
            ("PersistentVolumeClaim", "sc", &name(number), &named),
            ("PersistentVolumeClaim", "sc", &name(number), &bound),
        ] {
            simulation.api.merge(kind, namespace, name, patch).unwrap();
        }
    }
}

/// Deletes the claims, and releases their volumes, so many every 20 ms.
async fn delete(simulation: &Simulation, uids: &[String], at_once: usize) {
    for (number, uid) in uids.iter().enumerate() {
        simulation.delete_claim(&name(number));
        simulation.release(uid);
        if number % at_once == at_once - 1 {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn until_saved(simulation: &Simulation, count: usize) {
    simulation.until("all are saved", |s| s.api.count("PersistentVolume") == count).await;
}

async fn until_gone(simulation: &Simulation) {
    simulation.until("all are gone", |s| s.api.count("PersistentVolume") == 0).await;
}

/// Everything that was requested since the record was cleared, but for watches that are opened again.
fn counts(simulation: &Simulation) -> Counts {
    let mut counts = Counts::new();
    for request in simulation.api.requests().all() {
        if request.info.verb != "watch" {
            *counts.entry(request.what()).or_default() += 1;
        }
    }
    counts
}

fn expected(counts: &[(&str, usize)]) -> Counts {
    counts.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}

/// A program with these flags that has nothing to do.
async fn running(flags: &[&str]) -> Simulation {
    let simulation = cluster();
    simulation.start_with(flags);
    sleep(Duration::from_secs(60)).await;
    simulation.api.requests().clear();
    simulation
}

#[tokio::test(start_paused = true)]
async fn a_claim_costs_one_volume_and_two_events_and_many_share_a_read_of_their_secret() {
    const CLAIMS: usize = 1000;
    let simulation = running(&[]).await;
    let uids = make_at_full_rate(&simulation, CLAIMS).await;
    until_saved(&simulation, CLAIMS).await;
    bind(&simulation, &uids);
    sleep(Duration::from_secs(60)).await;
    let mut counts = counts(&simulation);
    // Ten a second, for as long as claims came.
    let secrets = counts.remove("get secrets").unwrap();
    assert!(secrets <= CLAIMS / 50 + 1, "{secrets} reads of the secret");
    let ordinary = [("create persistentvolumes", CLAIMS), ("create events", 2 * CLAIMS)];
    assert_eq!(counts, expected(&ordinary));
    assert_eq!(simulation.calls("CreateVolume"), CLAIMS);
}

/// Each volume is read live right before its deletion, as no view of a watch is believed (safety rule 10), however
/// many are deleted at once.
#[tokio::test(start_paused = true)]
async fn a_deletion_costs_one_call_one_get_one_delete_and_one_patch() {
    for (claims, at_once) in [(1, 1), (1000, 10), (500, 500)] {
        let simulation = running(&[]).await;
        let uids = make(&simulation, 0..claims);
        until_saved(&simulation, claims).await;
        bind(&simulation, &uids);
        sleep(Duration::from_secs(60)).await;
        simulation.api.requests().clear();
        delete(&simulation, &uids, at_once).await;
        until_gone(&simulation).await;
        sleep(Duration::from_secs(60)).await;
        let mut counts = counts(&simulation);
        let secrets = counts.remove("get secrets").unwrap();
        assert!(secrets <= claims / 50 + 1, "{secrets} reads of the secret");
        let ordinary = [
            ("get persistentvolumes", claims),
            ("delete persistentvolumes", claims),
            ("patch persistentvolumes", claims),
        ];
        assert_eq!(counts, expected(&ordinary));
        assert_eq!(simulation.calls("DeleteVolume"), claims);
    }
}

/// The finalizer with its record before the call, and both away after it; each is an edit of the
/// claim as it then stands.
#[tokio::test(start_paused = true)]
async fn claims_that_are_always_protected_cost_two_writes_more() {
    const CLAIMS: usize = 300;
    let simulation = running(&["--claim-protection=always"]).await;
    let uids = make(&simulation, 0..CLAIMS);
    until_saved(&simulation, CLAIMS).await;
    bind(&simulation, &uids);
    sleep(Duration::from_secs(60)).await;
    let mut counts = counts(&simulation);
    counts.remove("get secrets");
    let ordinary = [("create persistentvolumes", CLAIMS), ("create events", 2 * CLAIMS)];
    let protection =
        [("get persistentvolumeclaims", 2 * CLAIMS), ("update persistentvolumeclaims", 2 * CLAIMS)];
    assert_eq!(counts, expected(&[&ordinary[..], &protection].concat()));
}

/// A claim's VolumeAttributesClass is shared as its secret is.
#[tokio::test(start_paused = true)]
async fn claims_share_a_read_of_their_attributes_class() {
    const CLAIMS: usize = 300;
    let simulation = cluster();
    simulation.script(json!({
        "controller_capabilities": ["CREATE_DELETE_VOLUME", "MODIFY_VOLUME"],
    }));
    simulation.create_attributes_class("gold", DRIVER, &json!({"iops": "9"}));
    simulation.start();
    sleep(Duration::from_secs(60)).await;
    for number in 0..CLAIMS {
        simulation.create_claim_of(&name(number), "gold");
    }
    until_saved(&simulation, CLAIMS).await;
    let reads = simulation.api_requests("get", "volumeattributesclasses");
    assert!(reads <= CLAIMS / 50 + 1, "{reads}");
    let reasons = |call: &Value| call["mutable_parameters"]["iops"] == "9";
    assert!(simulation.requests("CreateVolume").iter().all(reasons));
}

/// The events of each claim, by reason.
fn event_reasons(simulation: &Simulation) -> BTreeMap<String, Vec<String>> {
    let mut reasons = BTreeMap::<String, Vec<String>>::new();
    for event in simulation.api.objects("Event") {
        let text =
            |pointer: &str| event.value().pointer(pointer).unwrap().as_str().unwrap().to_owned();
        reasons.entry(text("/involvedObject/name")).or_default().push(text("/reason"));
    }
    for reasons in reasons.values_mut() {
        reasons.sort();
    }
    reasons
}

/// Each of so many claims has its two events.
fn each_has_its_events(simulation: &Simulation, claims: usize) {
    let mut reasons = event_reasons(simulation);
    reasons.retain(|about, _| about.starts_with("data-"));
    assert_eq!(reasons.len(), claims);
    let both = ["Provisioning", "ProvisioningSucceeded"];
    reasons.retain(|_, reasons| *reasons != both);
    assert_eq!(reasons, BTreeMap::new());
}

/// While writes of objects wait in line, the Lease is renewed as ever and events go out at their
/// own pace.
#[tokio::test(start_paused = true)]
async fn a_backlog_starves_neither_the_lease_nor_events() {
    const CLAIMS: usize = 5_000;
    let simulation = cluster();
    let delay = |verb, plural, time| {
        simulation.faults().add(Rule::on(verb, plural, Effect::Delay(time)));
    };
    // 32 at once: 200 a second. Events, were they to go one by one: 500 a second.
    delay("create", "persistentvolumes", Duration::from_millis(160));
    delay("create", "events", Duration::from_millis(2));
    simulation.start_elected("leader");
    sleep(Duration::from_secs(60)).await;
    simulation.api.requests().clear();
    make(&simulation, 0..CLAIMS);
    let start = simulation.api.now();
    sleep(Duration::from_secs(20)).await;
    let saved = simulation.api.count("PersistentVolume");
    assert!((3000..CLAIMS).contains(&saved), "{saved} saved");
    let events = simulation.api_requests("create", "events");
    // Those of the volumes saved by now, but for the last moment's.
    assert!(events + 100 >= 2 * saved, "{events} events, {saved} saved");
    until_saved(&simulation, CLAIMS).await;
    let took = simulation.api.now().duration_since(start).as_secs();
    assert!(took < 60, "{took} s");
    let renewals = simulation.api.requests().matching("update", "leases");
    let times: Vec<_> = renewals.iter().map(|renewal| renewal.received).collect();
    let longest = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64());
    assert!(times.len() >= 4 && longest.fold(0.0, f64::max) < 6.0, "{times:?}");
    sleep(Duration::from_secs(60)).await;
    each_has_its_events(&simulation, CLAIMS);
}

/// On a server that is far away, where only what is under way at once counts: a client that writes the
/// same for each claim, one after the other, 32 claims at once, would take more than 9 s.
#[tokio::test(start_paused = true)]
async fn a_backlog_and_all_its_events_are_written_as_fast_as_by_a_bare_client() {
    const CLAIMS: usize = 2_000;
    let simulation = cluster();
    for plural in ["persistentvolumes", "events"] {
        let far = Effect::Delay(Duration::from_millis(50));
        simulation.faults().add(Rule::on("create", plural, far));
    }
    make(&simulation, 0..CLAIMS);
    let start = simulation.api.now();
    simulation.start();
    until_saved(&simulation, CLAIMS).await;
    while simulation.api.count("Event") < 2 * CLAIMS {
        sleep(Duration::from_millis(100)).await;
        let took = simulation.api.now().duration_since(start).as_secs();
        assert!(took < 9, "{} events after {took} s", simulation.api.count("Event"));
    }
    each_has_its_events(&simulation, CLAIMS);
}
