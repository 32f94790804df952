//! With nothing to do, next to nothing is asked for.

// What tests share fails like a test does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[allow(dead_code)] // other tests share the world
#[path = "simulation/world.rs"]
mod world;

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use serde_json::json;
use testkit::apiserver::{ApiServer, Options, User, resources::ServerVersion};
use tokio::time::sleep;
use world::Simulation;

/// A watch is renewed every four minutes, after a moment's wait.
const RENEWALS: RangeInclusive<usize> = 14..=15;

/// The Lease is renewed every five seconds.
const LEASE_RENEWALS: RangeInclusive<usize> = 700..=721;

/// Every five minutes is looked for what a crash left on snapshots.
const SWEEPS: RangeInclusive<usize> = 10..=13;

/// The requests of one hour, as how many of each `verb resource`.
async fn one_hour(simulation: &Simulation) -> BTreeMap<String, usize> {
    simulation.api.requests().clear();
    let calls = simulation.driver.journal().calls().len();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(simulation.driver.journal().calls().len(), calls, "the driver is left in peace");
    let mut counts = BTreeMap::new();
    for request in simulation.api.requests().all() {
        let lists = request.info.verb == "list" || request.info.uri.contains("sendInitialEvents");
        // The sweep for what a crash left on snapshots is the one list that comes again.
        let lists = lists && request.info.resource != "volumesnapshots";
        assert!(!lists, "{}", request.info.uri);
        *counts.entry(request.what()).or_default() += 1;
    }
    counts
}

/// A cluster whose claim has its volume, and whose archive of another one is kept.
async fn settled(minor: u8) -> Simulation {
    let version = ServerVersion::minor(minor);
    let api = ApiServer::new(Options { version, ..Options::default() });
    let simulation = Simulation::on(api, 1, User::new("provisioner"));
    simulation.start_elected("leader");
    let uid = simulation.create_claim("data");
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
    let merge = |kind, namespace, name: &str, patch| {
        simulation.api.merge(kind, namespace, name, &patch).expect("the object is there");
    };
    let volume = format!("pvc-{uid}");
    merge("PersistentVolumeClaim", "sc", "data", json!({"spec": {"volumeName": volume}}));
    merge("PersistentVolume", "", &volume, json!({"status": {"phase": "Bound"}}));
    let old = simulation.create_claim("old");
    simulation.until("the second is saved", |s| s.volumes().len() == 2).await;
    let old_volume = format!("pvc-{old}");
    let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    merge("PersistentVolume", "", &old_volume, retain);
    simulation.delete_claim("old");
    simulation.release(&old);
    sleep(Duration::from_secs(300)).await;
    simulation
}

#[tokio::test(start_paused = true)]
async fn an_idle_leader_renews_its_watches_and_its_lease() {
    for minor in [33, 36] {
        let simulation = settled(minor).await;
        let mut counts = one_hour(&simulation).await;
        let renewals = counts.remove("update leases").unwrap_or_default();
        assert!(LEASE_RENEWALS.contains(&renewals), "1.{minor}: {renewals}");
        for kind in ["storageclasses", "persistentvolumeclaims", "persistentvolumes"] {
            let watches = counts.remove(&format!("watch {kind}")).unwrap_or_default();
            assert!(RENEWALS.contains(&watches), "1.{minor}: {watches} watches of {kind}");
        }
        let sweeps = counts.remove("list volumesnapshots").unwrap_or_default();
        assert!(SWEEPS.contains(&sweeps), "1.{minor}: {sweeps}");
        assert_eq!(counts, BTreeMap::new(), "1.{minor}");
    }
}

/// A standby sees what the leader sees, and watches the Lease in place of writing it. Its watch ends
/// every five minutes or so, and is begun anew after a look.
#[tokio::test(start_paused = true)]
async fn an_idle_standby_writes_nothing() {
    let simulation = settled(36).await;
    simulation.start_elected("standby");
    sleep(Duration::from_secs(300)).await;
    let mut counts = one_hour(&simulation).await;
    for what in ["get leases", "watch leases"] {
        let looks = counts.remove(what).unwrap_or_default();
        assert!((11..=15).contains(&looks), "{looks} {what}");
    }
    let renewals = counts.remove("update leases").unwrap_or_default();
    assert!(LEASE_RENEWALS.contains(&renewals), "only the leader's: {renewals}");
    let sweeps = counts.remove("list volumesnapshots").unwrap_or_default();
    assert!(SWEEPS.contains(&sweeps), "only the leader's: {sweeps}");
    let total: usize = counts.values().sum();
    assert!(total <= 2 * 3 * RENEWALS.end(), "{counts:?}");
}
