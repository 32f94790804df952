//! What volumes are made from, in simulated time: guarded exactly while somebody needs it. What users, an ill API
//! server and kills do meanwhile by chance is in `tests/seeds/copiers.rs`.

mod checking_driver;
mod limits;

use std::{sync::Arc, time::Duration};

use checking_driver::CheckingDriver;
use serde_json::{Value, json};
use support::{
    connector::connector,
    simulation::{Simulation, claim, class, with_secret},
    sources,
};
use testkit::{
    apiserver::faults::{Effect, Rule},
    driver::{Around as _, Host},
};
use tokio::time::sleep;

const RESTORE: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
const CLONE: &str = "provisioner.storage.kubernetes.io/cloning-protection";
const NO_SWEEP: &str = "--snapshot-orphan-sweep-interval=0";
const MINUTE: Duration = Duration::from_secs(60);
/// Kinds and names of sources, and the finalizers that guard them.
const COPIED: [(&str, &str, &str); 2] =
    [("VolumeSnapshot", "snap", RESTORE), ("PersistentVolumeClaim", "origin", CLONE)];

/// A cluster with snapshots, and a driver that checks what it copies.
struct Cluster {
    simulation: Simulation,
    driver: Arc<Host<CheckingDriver>>,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        sources::install_kinds(&simulation);
        let driver = CheckingDriver::host(&simulation.api);
        let simulation = simulation.with_driver(connector(&driver));
        Self { simulation, driver }
    }

    fn add_snapshot(&self, name: &str) {
        sources::create_snapshot(&self.simulation, name);
    }

    fn add_origin(&self, name: &str) {
        sources::create_origin(&self.simulation, name);
    }

    /// Makes a claim of a source of this kind; gives its UID.
    fn add_claim(&self, name: &str, kind: &str, source: &str) -> String {
        let mut claim = claim(name);
        claim["spec"]["dataSource"] = match kind {
            "VolumeSnapshot" => {
                json!({"apiGroup": "snapshot.storage.k8s.io", "kind": kind, "name": source})
            }
            _ => json!({"kind": kind, "name": source}),
        };
        self.simulation.create(&claim)
    }

    fn script(&self, script: Value) {
        self.driver.backend().inside().amend(serde_json::from_value(script).unwrap());
    }

    /// Every call ends with this error.
    fn fail(&self, code: &str) {
        self.script(json!({"create_volume": [{"error": {"code": code, "message": "no"}}]}));
    }

    fn succeed(&self) {
        self.script(json!({"create_volume": [{}]}));
    }

    fn calls(&self) -> usize {
        self.driver.journal().count("CreateVolume")
    }

    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.simulation.api.get(kind, "sc", name)
    }

    fn finalizers(&self, kind: &str, name: &str) -> Vec<String> {
        let object = self.get(kind, name).unwrap_or_default();
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Leaves the object these finalizers.
    fn bare(&self, kind: &str, name: &str, finalizers: &Value) {
        let bare = json!({"metadata": {"finalizers": finalizers}});
        self.simulation.api.merge(kind, "sc", name, &bare).unwrap();
    }

    fn is_guarded(&self, snapshot: &str) -> bool {
        self.finalizers("VolumeSnapshot", snapshot).iter().any(|one| one == RESTORE)
    }

    fn delete(&self, kind: &str, name: &str) {
        let _ = self.simulation.api.delete(kind, "sc", name);
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        self.simulation.until(what, |_| holds(self)).await;
    }

    /// Nothing that volumes were made from was ever missing or unguarded.
    #[track_caller]
    fn kept_its_promise(&self) {
        let found = self.driver.backend().found();
        assert!(found.is_empty(), "{found:?}\n{}", self.simulation.trace());
    }
}

/// A cluster with one source of each kind, and a process that never sweeps.
fn one_of_each() -> Cluster {
    let cluster = one_snapshot();
    cluster.add_origin("origin");
    cluster
}

/// A cluster with one snapshot, and a process that never sweeps.
fn one_snapshot() -> Cluster {
    let cluster = Cluster::new(1);
    cluster.add_snapshot("snap");
    cluster.simulation.start_with(&[NO_SWEEP]);
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_guarded_during_the_call_and_free_once_the_volume_is_saved() {
    let cluster = one_snapshot();
    cluster.driver.backend().takes(Duration::from_secs(5));
    let uid = cluster.add_claim("data", "VolumeSnapshot", "snap");
    cluster.until("the call began", |c| c.calls() == 1).await;
    assert!(cluster.is_guarded("snap"));
    cluster.until("the volume is saved", |c| c.simulation.is_saved(&uid)).await;
    sleep(Duration::from_secs(1)).await;
    assert!(!cluster.is_guarded("snap"));
    let verbs = ["get", "patch", "update", "list"];
    let count = verbs.map(|verb| cluster.simulation.api_requests(verb, "volumesnapshots"));
    assert_eq!(count, [3, 2, 0, 0], "one read for the checks, and an edit each way");
    cluster.kept_its_promise();
}

/// The write that frees the snapshot is carried out, and its answer lost: the next restore begins
/// before it is tried again, and guards the snapshot anew.
#[tokio::test(start_paused = true)]
async fn a_restore_after_a_freeing_that_was_not_answered_is_guarded() {
    let cluster = Cluster::new(1);
    cluster.add_snapshot("snap");
    cluster.simulation.start_with(&[NO_SWEEP, "--retry-interval-start=1m"]);
    cluster.driver.backend().takes(Duration::from_secs(5));
    cluster.add_claim("first", "VolumeSnapshot", "snap");
    cluster.until("the call began", |c| c.calls() == 1).await;
    let lost = Rule::on("patch", "volumesnapshots", Effect::CutAfter).times(1);
    cluster.simulation.faults().add(lost);
    cluster.until("the snapshot is free", |c| !c.is_guarded("snap")).await;
    let second = cluster.add_claim("second", "VolumeSnapshot", "snap");
    cluster.until("the second is saved", |c| c.simulation.is_saved(&second)).await;
    sleep(2 * MINUTE).await;
    assert!(!cluster.is_guarded("snap"));
    cluster.kept_its_promise();
}

/// Somebody takes the finalizer off while a call is open: a provisioner whose view is old or which sweeps what is
/// another driver's, or a user who replaces the object.
#[tokio::test(start_paused = true)]
async fn a_source_that_somebody_has_bared_is_guarded_again() {
    for (kind, name, finalizer) in COPIED {
        let cluster = one_of_each();
        cluster.fail("ABORTED");
        cluster.add_claim("data", kind, name);
        cluster.until("the call is open", |c| c.calls() > 1).await;
        cluster.bare(kind, name, &json!(null));
        sleep(MINUTE).await;
        assert_eq!(cluster.finalizers(kind, name), [finalizer]);
    }
}

/// It cannot be guarded any more, and the driver may have the volume.
#[tokio::test(start_paused = true)]
async fn a_call_goes_on_when_its_source_is_bared_and_deleted() {
    for (kind, name, _) in COPIED {
        for others in [json!(null), json!(["example.com/other"])] {
            let cluster = one_of_each();
            cluster.fail("ABORTED");
            let uid = cluster.add_claim("data", kind, name);
            cluster.until("the call is open", |c| c.calls() > 1).await;
            cluster.bare(kind, name, &others);
            cluster.delete(kind, name);
            sleep(2 * MINUTE).await;
            let calls = cluster.calls();
            sleep(MINUTE).await;
            assert!(cluster.calls() > calls, "{name}: {others}");
            cluster.succeed();
            cluster.until("the volume is saved", |c| c.simulation.is_saved(&uid)).await;
        }
    }
}

/// What a checked claim waits for holds no source: nothing was asked.
#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_its_secret_holds_no_snapshot() {
    let cluster = one_snapshot();
    let class = class("secret", &json!({"parameters": with_secret("missing")}));
    cluster.simulation.create(&class);
    let mut waits = claim("data");
    waits["spec"]["storageClassName"] = json!("secret");
    waits["spec"]["dataSource"] =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"});
    cluster.simulation.api.create(&waits).unwrap();
    cluster.until("it is reported", |c| c.simulation.has_event("data", "ProvisioningFailed")).await;
    assert!(!cluster.is_guarded("snap"));
    assert_eq!(cluster.simulation.api_requests("patch", "volumesnapshots"), 0);
}

#[tokio::test(start_paused = true)]
async fn twenty_restores_at_once_write_the_snapshot_twice_and_fail_never() {
    let cluster = one_snapshot();
    cluster.driver.backend().takes(Duration::from_secs(2));
    let uids: Vec<String> =
        (0..20).map(|n| cluster.add_claim(&format!("c{n}"), "VolumeSnapshot", "snap")).collect();
    cluster.until("all are saved", |c| uids.iter().all(|uid| c.simulation.is_saved(uid))).await;
    sleep(Duration::from_secs(1)).await;
    assert!(!cluster.is_guarded("snap"));
    assert_eq!(cluster.simulation.api_requests("patch", "volumesnapshots"), 2);
    assert!((0..20).all(|n| !cluster.simulation.has_event(&format!("c{n}"), "ProvisioningFailed")));
    cluster.kept_its_promise();
}

/// Its claim goes during the first call, before there is a record, and nothing that the call needs comes
/// back: the source and its namespace do not wait for ever.
#[tokio::test(start_paused = true)]
async fn the_source_of_a_call_that_cannot_be_ended_goes_after_the_time_out() {
    let cluster = Cluster::new(1);
    cluster.add_origin("origin");
    cluster.driver.backend().takes(Duration::from_secs(5));
    cluster.simulation.start();
    let mut clone = claim("clone");
    clone["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    clone["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "origin"});
    cluster.simulation.api.create(&clone).unwrap();
    cluster.until("the call began", |c| c.calls() == 1).await;
    for name in ["clone", "origin"] {
        cluster.delete("PersistentVolumeClaim", name);
    }
    let bare = json!({"metadata": {"finalizers": null}});
    cluster.simulation.api.merge("PersistentVolumeClaim", "sc", "clone", &bare).unwrap();
    cluster.fail("ABORTED");
    sleep(50 * MINUTE).await;
    assert_eq!(cluster.finalizers("PersistentVolumeClaim", "origin"), [CLONE]);
    sleep(20 * MINUTE).await;
    assert_eq!(cluster.get("PersistentVolumeClaim", "origin"), None);
}

/// The source is deleted between two tries: the clone and its source do not wait for each other.
#[tokio::test(start_paused = true)]
async fn a_clone_whose_source_was_deleted_between_two_tries_is_made() {
    let cluster = Cluster::new(1);
    cluster.add_origin("origin");
    cluster.fail("UNAVAILABLE");
    let first = cluster.simulation.start();
    let uid = cluster.add_claim("clone", "PersistentVolumeClaim", "origin");
    cluster.until("it is open", |c| c.calls() == 2).await;
    sleep(Duration::from_secs(2)).await;
    cluster.delete("PersistentVolumeClaim", "origin");
    first.kill();
    cluster.succeed();
    cluster.simulation.start();
    cluster.until("the volume is saved", |c| c.simulation.is_saved(&uid)).await;
    cluster.kept_its_promise();
}

/// A claim's user may write anything into the record of an open call.
#[tokio::test(start_paused = true)]
async fn a_forged_record_puts_no_finalizer_on_what_it_names() {
    let cluster = Cluster::new(1);
    cluster.add_snapshot("snap");
    cluster.add_snapshot("victim");
    cluster.fail("ABORTED");
    let first = cluster.simulation.start_with(&[NO_SWEEP]);
    cluster.add_claim("data", "VolumeSnapshot", "snap");
    let mark = "provisioner.storage.kubernetes.io/open-request";
    let record = |c: &Cluster| {
        c.get("PersistentVolumeClaim", "data").unwrap()["metadata"]["annotations"][mark].clone()
    };
    cluster.until("it is recorded", |c| record(c).is_string()).await;
    first.kill();
    let victim = cluster.get("VolumeSnapshot", "victim").unwrap()["metadata"]["uid"].clone();
    let mut forged: Value = serde_json::from_str(record(&cluster).as_str().unwrap()).unwrap();
    forged["source"]["name"] = json!("victim");
    forged["source"]["uid"] = victim;
    let forged = json!({"metadata": {"annotations": {mark: forged.to_string()}}});
    cluster.simulation.api.merge("PersistentVolumeClaim", "sc", "data", &forged).unwrap();
    cluster.delete("PersistentVolumeClaim", "data");
    let before = cluster.calls();
    cluster.simulation.start_with(&[NO_SWEEP]);
    cluster.until("the call is followed", |c| c.calls() > before).await;
    assert!(!cluster.is_guarded("victim"));
}
