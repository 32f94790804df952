//! What a claim costs that waits for what only an administrator or its user can change, in simulated
//! time: every reason with its requests, events and counted failures in an hour. What is watched wakes it;
//! besides, it is tried with back-off for a minute, as external-provisioner does for ever, and then looked at
//! before its event expires. What is not watched is polled: every 15 s for ten minutes, then every five
//! minutes.

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    simulation::{
        DRIVER, Simulation, claim, class, csi_node, foreign_volume, node, secret, with_secret,
    },
    sources,
};
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const GATES: &str = "--feature-gates=Topology=true,CrossNamespaceVolumeDataSource=true";
const ZONE: &str = "topology.example.com/zone";

/// How soon an event says why a claim waits.
const SOON: Duration = Duration::from_secs(2);

/// How often a claim is looked at in an hour, at most.
const LOOKS: usize = 2;

/// How often a claim is tried in an hour that waits for what is polled: its first ten minutes are over soon.
const POLLS: usize = 46;

/// What keeps the claim `data` waiting.
struct Reason {
    what: &'static str,
    /// What there is before the claim.
    begins: fn(&Simulation),
    /// What its user writes besides.
    asks: fn(&mut Value),
    /// What its event says.
    message: &'static str,
    /// Whether external-provisioner counts it as a failure.
    is_failure: bool,
    /// Whether it waits for what no watch shows.
    is_polled: bool,
    /// The requests of one check of it.
    requests: usize,
    passes: fn(&Simulation),
}

impl Reason {
    fn looks(&self) -> usize {
        if self.is_polled { POLLS } else { LOOKS }
    }
}

fn replace_class(simulation: &Simulation, provisioner: &str, parameters: &Value) {
    remove_class(simulation);
    simulation
        .create(&class("fast", &json!({"provisioner": provisioner, "parameters": parameters})));
}

fn remove_class(simulation: &Simulation) {
    if simulation.api.get("StorageClass", "", "fast").is_some() {
        simulation.api.delete("StorageClass", "", "fast").unwrap();
    }
}

/// The driver knows of places, and its plugin is on the node `n0`, which has no zone.
fn places(simulation: &Simulation) {
    simulation.script(json!({
        "plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"],
    }));
    simulation.create(&node("n0", &json!({})));
}

fn register(simulation: &Simulation) {
    simulation.create(&csi_node("n0", &[ZONE]));
}

fn label(simulation: &Simulation) {
    simulation.api.merge("Node", "", "n0", &json!({"metadata": {"labels": {ZONE: "a"}}})).unwrap();
}

fn late_class(simulation: &Simulation) {
    remove_class(simulation);
    simulation.create(&class("fast", &json!({"volumeBindingMode": "WaitForFirstConsumer"})));
}

fn from_snapshot(claim: &mut Value, namespace: Option<&str>) {
    let group = "snapshot.storage.k8s.io";
    let mut source = json!({"apiGroup": group, "kind": "VolumeSnapshot", "name": "snap"});
    source["namespace"] = json!(namespace);
    claim["spec"]["dataSourceRef"] = source;
}

fn from_claim(claim: &mut Value) {
    claim["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "origin"});
}

/// Another's PersistentVolume has the name that the claim's is to get.
fn take_name(simulation: &Simulation) {
    let claim = simulation.api.get("PersistentVolumeClaim", "sc", "data").unwrap();
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    simulation.api.create(&foreign_volume(uid, "another", "h")).unwrap();
    replace_class(simulation, DRIVER, &json!({}));
}

fn free_name(simulation: &Simulation) {
    let name = simulation.volumes()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    simulation.force_delete(&name);
}

/// What fails at one request that is not watched for.
const POLLED: Reason = Reason {
    what: "",
    begins: |_| {},
    asks: |_| {},
    message: "",
    is_failure: true,
    is_polled: true,
    requests: 1,
    passes: |_| {},
};

const REASONS: [Reason; 15] = [
    Reason {
        what: "its class is missing",
        begins: remove_class,
        message: r#"storageclass.storage.k8s.io "fast" not found"#,
        is_polled: false,
        requests: 0,
        passes: |s| replace_class(s, DRIVER, &json!({})),
        ..POLLED
    },
    Reason {
        what: "its class is another provisioner's",
        begins: |s| replace_class(s, "other.example.com", &json!({})),
        message: r#"storage class "fast" is for the provisioner "other.example.com", but the claim is annotated for "disk.example.com""#,
        is_failure: false,
        is_polled: false,
        requests: 0,
        passes: |s| replace_class(s, DRIVER, &json!({})),
        ..POLLED
    },
    Reason {
        what: "its class has a parameter that nobody knows",
        begins: |s| replace_class(s, DRIVER, &json!({"csi.storage.k8s.io/nonsense": "x"})),
        message: "csi.storage.k8s.io/nonsense",
        is_polled: false,
        passes: |s| replace_class(s, DRIVER, &json!({})),
        ..POLLED
    },
    Reason {
        what: "its PersistentVolume's name is taken",
        begins: remove_class,
        message: "exists already and is for the claim",
        is_failure: false,
        is_polled: false,
        requests: 2,
        passes: free_name,
        ..POLLED
    },
    Reason {
        what: "its secret is missing",
        begins: |s| replace_class(s, DRIVER, &with_secret("s")),
        message: r#"secrets "s" not found"#,
        passes: |s| drop(s.create(&secret("s", "k"))),
        ..POLLED
    },
    Reason {
        what: "its VolumeAttributesClass is missing",
        begins: |s| {
            s.script(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "MODIFY_VOLUME"]}));
        },
        asks: |claim| claim["spec"]["volumeAttributesClassName"] = json!("gold"),
        message: r#""gold" not found"#,
        passes: |s| s.create_attributes_class("gold", DRIVER, &json!({"iops": "1"})),
        ..POLLED
    },
    Reason {
        what: "its VolumeAttributesClass is another driver's",
        begins: |s| {
            s.script(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "MODIFY_VOLUME"]}));
            s.create_attributes_class("gold", "other.example.com", &json!({}));
        },
        asks: |claim| claim["spec"]["volumeAttributesClassName"] = json!("gold"),
        message: "VAC gold referenced in PVC is for driver other.example.com which does not match driver name disk.example.com",
        passes: |s| {
            s.api.delete("VolumeAttributesClass", "", "gold").unwrap();
            s.create_attributes_class("gold", DRIVER, &json!({}));
        },
        ..POLLED
    },
    Reason {
        what: "no node has the driver",
        begins: |s| {
            places(s);
            label(s);
        },
        message: "error generating accessibility requirements: ",
        is_polled: false,
        requests: 0,
        passes: register,
        ..POLLED
    },
    Reason {
        what: "its node lacks a label",
        begins: |s| {
            places(s);
            register(s);
            late_class(s);
        },
        asks: |claim| {
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n0");
        },
        message: "does not match topology keys from CSINode",
        is_polled: false,
        passes: label,
        ..POLLED
    },
    Reason {
        what: "its snapshot is missing",
        begins: sources::install_kinds,
        asks: |claim| from_snapshot(claim, None),
        message: r#"volumesnapshots.snapshot.storage.k8s.io "snap" not found"#,
        passes: |s| sources::create_snapshot(s, "snap"),
        ..POLLED
    },
    Reason {
        what: "its snapshot is not ready",
        begins: |s| {
            sources::install_kinds(s);
            sources::create_unready_snapshot(s, "sc", "snap");
        },
        asks: |claim| from_snapshot(claim, None),
        message: "snapshot snap is not Ready",
        requests: 2,
        passes: |s| sources::make_ready(s, "sc", "snap"),
        ..POLLED
    },
    Reason {
        what: "its snapshot has no handle",
        begins: |s| {
            sources::install_kinds(s);
            sources::create_snapshot(s, "snap");
            let none = json!({"status": {"snapshotHandle": null}});
            s.api.merge("VolumeSnapshotContent", "", "content-snap", &none).unwrap();
        },
        asks: |claim| from_snapshot(claim, None),
        message: "snapshot handle snap is not available",
        requests: 2,
        passes: |s| {
            let handle = json!({"status": {"snapshotHandle": "handle-snap"}});
            s.api.merge("VolumeSnapshotContent", "", "content-snap", &handle).unwrap();
        },
        ..POLLED
    },
    Reason {
        what: "no grant lets it use its source",
        begins: |s| {
            sources::install_kinds(s);
            s.api.namespace("other");
            sources::create_snapshot_in(s, "other", "snap");
        },
        asks: |claim| from_snapshot(claim, Some("other")),
        message: "isn't allowed",
        requests: 2,
        passes: |s| {
            s.create(&sources::grant("sc", "other"));
        },
        ..POLLED
    },
    Reason {
        what: "the claim that it copies is missing",
        begins: |_| {},
        asks: from_claim,
        message: r#"persistentvolumeclaim "origin" not found"#,
        passes: |s| sources::create_origin(s, "origin"),
        ..POLLED
    },
    Reason {
        what: "the claim that it copies is not bound",
        begins: |s| drop(sources::create_unbound_origin(s, "origin")),
        asks: from_claim,
        message: "must have a status of Bound",
        passes: |s| {
            let origin = s.api.get("PersistentVolumeClaim", "sc", "origin").unwrap();
            sources::bind_origin(s, "origin", origin["metadata"]["uid"].as_str().unwrap());
        },
        ..POLLED
    },
];

fn failures(metrics: &str) -> f64 {
    let series = "controller_persistentvolumeclaim_provision_failed_total";
    let lines = metrics.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// What was asked of the API server, but for events, and for watches, which begin anew now and then.
fn requests(simulation: &Simulation) -> usize {
    let requests = simulation.api.requests().all();
    let counted = requests.iter().filter(|request| request.info.verb != "watch");
    counted.filter(|request| request.info.resource != "events").count()
}

/// What the program asks for in an hour without the claim.
async fn requests_without_it(reason: &Reason) -> usize {
    let simulation = Simulation::new(1);
    (reason.begins)(&simulation);
    simulation.start_with(&[GATES]);
    sleep(2 * MINUTE).await;
    let asked = requests(&simulation);
    sleep(HOUR).await;
    requests(&simulation) - asked
}

/// How often an event with this message was emitted.
fn count_events(simulation: &Simulation, message: &str) -> u64 {
    let events = simulation.api.list("Event", "sc");
    let of_it = events.iter().filter(|it| it["message"].as_str().unwrap().contains(message));
    of_it.map(|event| event["count"].as_u64().unwrap_or(1)).sum()
}

async fn costs_little(reason: &Reason) {
    let what = reason.what;
    let without = requests_without_it(reason).await;
    let simulation = Simulation::new(1);
    (reason.begins)(&simulation);
    let process = simulation.start_with(&[GATES]);
    let mut claim = claim("data");
    (reason.asks)(&mut claim);
    let uid = simulation.create(&claim);
    if what.contains("name is taken") {
        take_name(&simulation);
    }
    sleep(SOON).await;
    let events = count_events(&simulation, reason.message);
    assert!(events >= 1, "{what}: {}", simulation.trace());
    assert_eq!(simulation.calls("CreateVolume"), 0, "{what}");
    sleep(2 * MINUTE).await;
    let (asked, counted) = (requests(&simulation), failures(&process.metrics()));
    let events = count_events(&simulation, reason.message);

    sleep(HOUR).await;
    let more = (requests(&simulation) - asked).saturating_sub(without);
    assert!(
        more <= reason.looks() * reason.requests,
        "{what}: {more} requests: {}",
        simulation.trace()
    );
    let more = failures(&process.metrics()) - counted;
    let most = if reason.is_failure { reason.looks() } else { 0 };
    assert!(more <= f64::from(u32::try_from(most).unwrap()), "{what}: counted {more} times");
    let events = count_events(&simulation, reason.message) - events;
    let most = u64::try_from(reason.looks()).unwrap();
    assert!((1..=most).contains(&events), "{what}: {events} events");

    (reason.passes)(&simulation);
    let start = Instant::now();
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    let waited = start.elapsed();
    let most = if reason.is_polled { 301 } else { 2 };
    assert!(waited < Duration::from_secs(most), "{what}: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn they_cost_a_look_in_three_quarters_of_an_hour_and_go_on_when_it_passes() {
    for reason in &REASONS {
        costs_little(reason).await;
    }
}

// === What is polled ===

/// After how many seconds the reason passes, and within how many the next poll must see that: soon at first, then
/// every 15 s for ten minutes, and in the end every five minutes.
const WAITS: [(u64, u64); 4] = [(3, 5), (50, 16), (500, 16), (1000, 301)];

/// Roles have no `watch` for what is polled.
#[tokio::test(start_paused = true)]
async fn what_is_polled_is_seen_soon_however_long_it_took() {
    for reason in REASONS.iter().filter(|reason| reason.is_polled) {
        for (after, soon) in WAITS {
            let what = format!("{} for {after} s", reason.what);
            let simulation = Simulation::new(1);
            (reason.begins)(&simulation);
            simulation.start_with(&[GATES]);
            let mut claim = claim("data");
            (reason.asks)(&mut claim);
            let uid = simulation.create(&claim);
            sleep(Duration::from_secs(after)).await;
            assert!(count_events(&simulation, reason.message) >= 1, "{what}");
            (reason.passes)(&simulation);
            let took = simulation.until_saved(&uid).await;
            assert!(took <= Duration::from_secs(soon), "{what}: {took:?}");
            for kind in ["secrets", "volumeattributesclasses", "volumesnapshots", "referencegrants"]
            {
                assert_eq!(simulation.api_requests("watch", kind), 0, "{what}: {kind}");
            }
        }
    }
}

// === Many claims ===

/// How many events may be written about a claim in an hour: that an attempt begins, and why it failed, before
/// the last ones expire.
const EVENTS: usize = 4;

/// Claims that wait for one object.
struct Crowd {
    /// The reason.
    what: &'static str,
    claims: usize,
    /// How many requests a claim may cost in an hour besides events: the attempt reads what is missing.
    reads: usize,
    /// How soon all must be served, in seconds, with a driver that takes no time: at once where a watch shows
    /// the object, else with the next poll.
    soon: u64,
}

const CROWDS: [Crowd; 3] = [
    Crowd { what: "its class is missing", claims: 400, reads: 2, soon: 5 },
    Crowd { what: "its secret is missing", claims: 100, reads: 13, soon: 301 },
    Crowd { what: "its node lacks a label", claims: 100, reads: 2, soon: 5 },
];

#[tokio::test(start_paused = true)]
async fn claims_that_wait_cost_little_and_are_served_soon() {
    for Crowd { what, claims, reads, soon } in CROWDS {
        let reason = REASONS.iter().find(|reason| reason.what == what).unwrap();
        let idle = requests_without_it(reason).await;
        let simulation = Simulation::new(1);
        (reason.begins)(&simulation);
        for number in 0..claims {
            let mut claim = claim(&format!("data-{number}"));
            (reason.asks)(&mut claim);
            simulation.create(&claim);
        }
        simulation.start_with(&[GATES]);
        sleep(10 * MINUTE).await;
        simulation.api.requests().clear();
        sleep(HOUR).await;
        let others = requests(&simulation);
        let recorded = simulation.api.requests().all();
        let events = recorded.iter().filter(|it| it.info.resource == "events").count();
        assert!(
            events <= EVENTS * claims && others <= idle + reads * claims,
            "{what}, for {claims}: {events} events, {others} other requests, {idle} without claims"
        );
        (reason.passes)(&simulation);
        let took =
            simulation.until("all are saved", |s| s.api.count("PersistentVolume") == claims).await;
        assert!(took <= Duration::from_secs(soon), "{what}, for {claims}: {took:?}");
    }
}
