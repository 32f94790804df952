//! Volumes made from snapshots and other claims, in simulated time. What guards the sources is
//! tested in `simulation_protection/`.

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    simulation::{DRIVER, Simulation},
    sources,
};
use testkit::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};
use tokio::time::{Instant, sleep};

const MARK: &str = "provisioner.storage.kubernetes.io/provisioning-protection";
const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";
const RESTORE: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
const CROSS_NAMESPACE: &str = "--feature-gates=CrossNamespaceVolumeDataSource=true";

/// A cluster with snapshots and grants.
fn cluster() -> Simulation {
    let simulation = Simulation::new(1);
    sources::install_kinds(&simulation);
    simulation
}

fn snapshot_of(request: &Value) -> &Value {
    &request["volume_content_source"]["snapshot"]["snapshot_id"]
}

/// The claim, while it exists.
fn claim(simulation: &Simulation, name: &str) -> Option<Value> {
    simulation.api.get("PersistentVolumeClaim", sources::NAMESPACE, name)
}

fn is_marked(simulation: &Simulation, name: &str) -> bool {
    claim(simulation, name).is_some_and(|claim| {
        let finalizers = claim["metadata"]["finalizers"].as_array();
        finalizers.into_iter().flatten().any(|finalizer| finalizer == MARK)
    })
}

/// Takes a snapshot away past every finalizer, as an admin may.
fn force_snapshot_away(simulation: &Simulation, name: &str) {
    let bare = json!({"metadata": {"finalizers": null}});
    simulation.api.merge("VolumeSnapshot", sources::NAMESPACE, name, &bare).unwrap();
    if simulation.api.get("VolumeSnapshot", sources::NAMESPACE, name).is_some() {
        simulation.api.delete("VolumeSnapshot", sources::NAMESPACE, name).unwrap();
    }
}

/// It was there when it was looked at, and not any more when it was to be guarded.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_goes_under_a_restore_is_reported_like_any_that_is_missing() {
    let simulation = cluster();
    sources::create_snapshot(&simulation, "snap");
    simulation.start();
    let late = Effect::Delay(Duration::from_secs(2));
    simulation.faults().add(Rule::on("patch", "volumesnapshots", late).times(1));
    sources::create_restore(&simulation, "restored", "snap");
    sleep(Duration::from_secs(1)).await;
    force_snapshot_away(&simulation, "snap");
    simulation.until_failed("restored").await;
    let messages = simulation.api.list("Event", sources::NAMESPACE);
    let missing = "error getting handle for DataSource Type VolumeSnapshot by Name snap: error \
                   getting snapshot snap from api server: volumesnapshots.snapshot.storage.k8s.io \
                   \"snap\" not found";
    let failed = messages.iter().filter(|event| event["reason"] == "ProvisioningFailed");
    assert!(failed.clone().all(|event| event["message"] == missing), "{messages:?}");
    assert_eq!(simulation.calls("CreateVolume"), 0);
}

/// However short the back-off is: an attempt does not see what the one before it has seen.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_ready_by_then_is_restored_by_the_next_attempt() {
    let simulation = cluster();
    sources::create_unready_snapshot(&simulation, sources::NAMESPACE, "snap");
    simulation.start_with(&["--retry-interval-start=100ms"]);
    let restored = sources::create_restore(&simulation, "restored", "snap");
    simulation.until_failed("restored").await;
    sources::make_ready(&simulation, sources::NAMESPACE, "snap");
    let took = simulation.until_saved(&restored).await;
    assert!(took < Duration::from_millis(300), "{took:?}");
}

/// However long it took, and however far the back-off has grown.
#[tokio::test(start_paused = true)]
async fn a_clone_is_made_within_a_second_of_its_source_being_bound_or_made() {
    for (stands, wait) in [(true, 3), (true, 600), (false, 900)] {
        let simulation = cluster();
        let origin = stands.then(|| sources::create_unbound_origin(&simulation, "origin"));
        simulation.start();
        let cloned = sources::create_clone(&simulation, "cloned", "origin");
        sleep(Duration::from_secs(wait)).await;
        assert!(simulation.has_event("cloned", "ProvisioningFailed"));
        match origin {
            Some(uid) => sources::bind_origin(&simulation, "origin", &uid),
            None => sources::create_origin(&simulation, "origin"),
        }
        let took = simulation.until_saved(&cloned).await;
        assert!(took < Duration::from_secs(1), "{took:?} after {wait}");
    }
}

/// A claim whose labels leave no room for our finalizer, and a thousand clones of it, which wait for each
/// other's slow refusal. A claim of another namespace waits for the next of them at most.
#[tokio::test(start_paused = true)]
async fn clones_of_a_source_that_takes_no_finalizer_do_not_hold_up_others() {
    let simulation = cluster();
    sources::create_origin(&simulation, "origin");
    let refusal = Status::new(422, "Invalid", "too long");
    for verb in ["update", "patch"] {
        for effect in [Effect::Delay(Duration::from_secs(1)), Effect::Answer(refusal.clone())] {
            let rule = Rule::on(verb, "persistentvolumeclaims", effect).named("origin");
            simulation.faults().add(rule);
        }
    }
    simulation.api.namespace("other");
    simulation.start();
    sleep(Duration::from_secs(1)).await;
    for number in 0..1000 {
        sources::create_clone(&simulation, &format!("clone-{number}"), "origin");
    }
    for number in 0..10 {
        sleep(Duration::from_secs(20)).await;
        let mut other = support::simulation::claim(&format!("other-{number}"));
        other["metadata"]["namespace"] = json!("other");
        let (uid, start) = (simulation.create(&other), Instant::now());
        simulation.until("the other is served", |s| s.is_saved(&uid)).await;
        assert!(start.elapsed() <= Duration::from_secs(2), "{number}: {:?}", start.elapsed());
    }
    assert!(simulation.requests("CreateVolume").len() <= 10, "no clone was asked for");
}

/// It was read before it was bound, and bound before anybody waited for that: the next poll sees it.
#[tokio::test(start_paused = true)]
async fn a_source_that_is_bound_while_it_is_read_is_not_missed() {
    let simulation = cluster();
    let origin = sources::create_unbound_origin(&simulation, "origin");
    let late = Effect::DelayAfter(Duration::from_secs(2));
    simulation.start_with(&["--retry-interval-start=100s"]);
    // The clone itself is not read as well.
    sleep(Duration::from_secs(1)).await;
    simulation.faults().add(Rule::on("get", "persistentvolumeclaims", late));
    let cloned = sources::create_clone(&simulation, "cloned", "origin");
    sleep(Duration::from_secs(1)).await;
    simulation.faults().clear();
    sources::bind_origin(&simulation, "origin", &origin);
    let took = simulation.until_saved(&cloned).await;
    assert!(took < Duration::from_secs(17), "{took:?}");
    assert!(simulation.has_event("cloned", "ProvisioningFailed"), "it was not bound when read");
}

/// Snapshots are read when they are needed: no watch of all of them, and lists by the sweep only.
#[tokio::test(start_paused = true)]
async fn snapshots_that_nobody_restores_cost_nothing() {
    let simulation = cluster();
    (0..50).for_each(|number| sources::create_snapshot(&simulation, &format!("snap{number}")));
    simulation.start_with(&["--snapshot-orphan-sweep-interval=0"]);
    let restored = sources::create_restore(&simulation, "restored", "snap7");
    simulation.until("it is restored", |s| s.is_saved(&restored)).await;
    sleep(Duration::from_secs(3600)).await;
    let asked = |verb| simulation.api_requests(verb, "volumesnapshots");
    assert_eq!((asked("list"), asked("watch")), (0, 0));
    assert!(asked("get") <= 4, "{}", asked("get"));
    assert_eq!(simulation.api_requests("get", "volumesnapshotcontents"), 1);
}

/// Without the API a restore waits with an event; nothing else suffers and nothing storms.
#[tokio::test(start_paused = true)]
async fn a_snapshot_api_that_is_installed_later_is_picked_up() {
    let simulation = Simulation::new(1);
    simulation.start_with(&["--snapshot-orphan-sweep-interval=10s"]);
    let restored = sources::create_restore(&simulation, "restored", "snap");
    let plain = simulation.create_claim("plain");
    simulation.until("the other is served", |s| s.is_saved(&plain)).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(
        simulation.event_messages("restored", "ProvisioningFailed"),
        [
            "error getting handle for DataSource Type VolumeSnapshot by Name snap: error getting snapshot snap from api server: the server could not find the requested resource (get volumesnapshots.snapshot.storage.k8s.io snap)"
        ]
    );
    let asked = simulation.api_requests("get", "volumesnapshots");
    assert!(asked < 60, "{asked} requests in ten minutes");
    sources::install_kinds(&simulation);
    sources::create_snapshot(&simulation, "snap");
    let wears = json!({"metadata": {"finalizers": [RESTORE]}});
    simulation.api.merge("VolumeSnapshot", sources::NAMESPACE, "snap", &wears).unwrap();
    let took = simulation.until_saved(&restored).await;
    assert!(took <= Duration::from_secs(301), "{took:?}");
    assert_eq!(snapshot_of(&simulation.requests("CreateVolume")[1]), "handle-snap");
    let is_free = |s: &Simulation| {
        let snapshot = s.api.get("VolumeSnapshot", sources::NAMESPACE, "snap").unwrap();
        !snapshot["metadata"]["finalizers"].to_string().contains(RESTORE)
    };
    simulation.until("its snapshot is free", is_free).await;
}

/// Restarted while a call is open, its claim deleted and its snapshot gone: what the call asked for
/// can't be found by the checks of a new claim, so it is waited for, and then reported.
#[tokio::test(start_paused = true)]
async fn the_recorded_call_of_a_deleted_claim_ends_with_a_warning_without_its_snapshot() {
    for made_meanwhile in [false, true] {
        let simulation = cluster();
        sources::create_snapshot(&simulation, "snap");
        let aborted =
            json!({"error": {"code": "ABORTED", "message": "busy"}, "creates": made_meanwhile});
        simulation.script(json!({"create_volume": [aborted]}));
        let process = simulation.start();
        sources::create_restore(&simulation, "restored", "snap");
        simulation.until("the call is recorded", |s| is_marked(s, "restored")).await;
        process.kill();
        simulation.delete_claim("restored");
        force_snapshot_away(&simulation, "snap");
        let calls = simulation.calls("CreateVolume");
        simulation.script(json!({"create_volume": [{}]}));
        simulation.start();
        sleep(Duration::from_secs(59 * 60)).await;
        assert!(is_marked(&simulation, "restored"), "the snapshot may come back");
        simulation.until("the claim is gone", |s| claim(s, "restored").is_none()).await;
        assert_eq!(simulation.calls("CreateVolume"), calls);
        let messages = simulation.event_messages("restored", "ProvisioningFailed");
        assert!(
            messages.iter().any(|text| text.contains("may be left at the driver")),
            "{messages:?}"
        );
    }
}

/// The record of an open call stands on the claim, where its user can write: no handle is taken from
/// there.
#[tokio::test(start_paused = true)]
async fn a_forged_record_gives_nobody_the_data_of_another() {
    for deleted in [false, true] {
        let simulation = cluster();
        sources::create_snapshot(&simulation, "snap");
        let uid = sources::create_restore(&simulation, "restored", "snap");
        let source = json!({
            "kind": "snapshot", "namespace": sources::NAMESPACE, "name": "snap",
            "uid": "of-somebody-else", "handle": "of-somebody-else",
        });
        let record = json!({"driver": DRIVER, "volume": format!("pvc-{uid}"), "source": source});
        let forged = json!({"metadata": {"finalizers": [MARK], "annotations": {RECORD: record.to_string()}}});
        simulation
            .api
            .merge("PersistentVolumeClaim", sources::NAMESPACE, "restored", &forged)
            .unwrap();
        if deleted {
            simulation.delete_claim("restored");
        }
        simulation.start();
        simulation.until("it is saved", |s| s.is_saved(&uid)).await;
        let asked = simulation.requests("CreateVolume");
        let own = |request: &Value| snapshot_of(request) == "handle-snap";
        assert!(asked.iter().all(own), "{asked:?}");
    }
}

/// A permission that was taken back counts at once; once the claim is deleted the call that was begun
/// with it is followed to its end, and what it brings is removed and never saved.
#[tokio::test(start_paused = true)]
async fn a_lost_grant_stops_a_claim_and_loses_no_volume() {
    let simulation = cluster();
    simulation.api.namespace("other");
    sources::create_snapshot_in(&simulation, "other", "snap");
    simulation.api.create(&sources::grant(sources::NAMESPACE, "other")).unwrap();
    simulation.script(json!({"create_volume": [{"error": {"code": "ABORTED"}, "creates": true}]}));
    simulation.start_with(&[CROSS_NAMESPACE]);
    let reference = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap", "namespace": "other"});
    let uid =
        sources::create_claim_from(&simulation, "restored", &json!({"dataSourceRef": reference}));
    simulation.until("the call is open", |s| is_marked(s, "restored")).await;
    simulation.api.delete("ReferenceGrant", "other", "grant").unwrap();
    simulation.script(json!({"create_volume": [{}]}));
    sleep(Duration::from_secs(60)).await;
    let messages = simulation.event_messages("restored", "ProvisioningFailed");
    assert!(messages.iter().any(|messages| messages.ends_with("isn't allowed")), "{messages:?}");
    assert!(!simulation.is_saved(&uid));
    simulation.delete_claim("restored");
    simulation.until("the claim is gone", |s| claim(s, "restored").is_none()).await;
    assert!(simulation.left_at_driver().is_empty() && simulation.volumes().is_empty());
    assert_eq!(simulation.calls("DeleteVolume"), 1);
}
