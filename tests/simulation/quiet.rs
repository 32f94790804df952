//! With nothing to do, next to nothing is asked for.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use serde_json::json;
use support::{
    simulation::{Simulation, claim, csi_node, node},
    sources,
};
use testkit::apiserver::{ApiServer, Options, User, resources::ServerVersion};
use tokio::time::sleep;

/// A watch is renewed every four minutes, after a moment's wait.
const RENEWALS: RangeInclusive<usize> = 14..=15;

/// The Lease is renewed every five seconds.
const LEASE_RENEWALS: RangeInclusive<usize> = 700..=721;

/// Every five minutes is looked for what a crash left on snapshots.
const SWEEPS: RangeInclusive<usize> = 10..=13;

/// The requests of one hour, as how many of each `verb resource`, in which the driver is left in
/// peace.
async fn one_hour(simulation: &Simulation) -> BTreeMap<String, usize> {
    let calls = simulation.driver.journal().calls().len();
    let counts = requests_of_one_hour(simulation).await;
    assert_eq!(simulation.driver.journal().calls().len(), calls);
    counts
}

async fn requests_of_one_hour(simulation: &Simulation) -> BTreeMap<String, usize> {
    simulation.api.requests().clear();
    sleep(Duration::from_secs(3600)).await;
    let mut counts = BTreeMap::new();
    for request in simulation.api.requests().all() {
        // The sweep for what a crash left on snapshots is the one list that is repeated.
        let lists = request.info.verb == "list" && request.info.resource != "volumesnapshots";
        assert!(!lists, "{}", request.info.uri);
        *counts.entry(request.what()).or_default() += 1;
    }
    counts
}

/// A cluster whose claim has its volume, and whose archive of another one is kept.
async fn settled(minor: u8) -> Simulation {
    let version = ServerVersion::minor(minor);
    let api = ApiServer::new(Options { version, ..Options::default() });
    let simulation = Simulation::with_api_server(api, 1, User::new("provisioner"));
    simulation.start_elected("leader");
    let uid = simulation.served().await;
    let volume = format!("pvc-{uid}");
    simulation.bind("data", &volume);
    simulation.phase(&volume, "Bound");
    let old = simulation.create_claim("old");
    simulation.until("the second is saved", |s| s.volumes().len() == 2).await;
    simulation.retain(&format!("pvc-{old}"));
    simulation.delete_claim("old");
    simulation.release(&old);
    sleep(Duration::from_secs(300)).await;
    simulation
}

/// Takes away what processes ask of their rights, every ten minutes.
fn without_rights(counts: &mut BTreeMap<String, usize>, processes: usize) {
    for what in ["create selfsubjectrulesreviews", "get /apis/snapshot.storage.k8s.io/v1"] {
        let asked = counts.remove(what).unwrap_or_default();
        assert!(asked <= 6 * processes, "{asked} {what}");
    }
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
        without_rights(&mut counts, 1);
        assert_eq!(counts, BTreeMap::new(), "1.{minor}");
    }
}

/// A standby watches the Lease and nothing else. Its watch ends every five minutes or so, and is begun anew after a
/// request.
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
    without_rights(&mut counts, 1);
    let total: usize = counts.values().sum();
    assert!(total <= 3 * RENEWALS.end(), "{counts:?}");
}

/// What a driver can do and is asked for, and what is watched because of it, beside classes, claims
/// and volumes.
struct Features {
    what: &'static str,
    plugin: &'static [&'static str],
    controller: &'static [&'static str],
    flags: &'static [&'static str],
    watched: &'static [&'static str],
}

const TOPOLOGY: &str = "VOLUME_ACCESSIBILITY_CONSTRAINTS";
const ZONE: &str = "disk.example.com/zone";

const NONE: Features =
    Features { what: "none", plugin: &[], controller: &[], flags: &[], watched: &[] };

const FEATURES: [Features; 6] = [
    NONE,
    Features { what: "topology", plugin: &[TOPOLOGY], watched: &["csinodes", "nodes"], ..NONE },
    Features {
        what: "capacity",
        plugin: &[TOPOLOGY],
        controller: &["GET_CAPACITY"],
        flags: &[
            "--enable-capacity",
            "--capacity-ownerref-level=-1",
            "--capacity-for-immediate-binding",
            "--capacity-poll-interval=2h",
        ],
        watched: &["csinodes", "nodes", "csistoragecapacities"],
    },
    Features {
        what: "attachments and attributes",
        controller: &["PUBLISH_UNPUBLISH_VOLUME", "MODIFY_VOLUME"],
        watched: &["volumeattachments"],
        ..NONE
    },
    Features { what: "sources", controller: &["CREATE_DELETE_SNAPSHOT", "CLONE_VOLUME"], ..NONE },
    Features {
        what: "node deployment",
        plugin: &[TOPOLOGY],
        flags: &["--node-deployment"],
        ..NONE
    },
];

/// A cluster with a node, where a driver with these features has served a claim; with snapshots,
/// where there are any.
async fn served(features: &Features, snapshots: bool) -> Simulation {
    let simulation = Simulation::new(1);
    let plugin = [&["CONTROLLER_SERVICE"], features.plugin].concat();
    let controller = [&["CREATE_DELETE_VOLUME"], features.controller].concat();
    simulation.script(json!({
        "plugin_capabilities": plugin,
        "controller_capabilities": controller,
        "node": {"node_id": "host", "topology": {ZONE: "a"}},
        "get_capacity": [{"available_capacity": (1 << 30)}],
    }));
    simulation.create(&node("host", &json!({ZONE: "a"})));
    simulation.create(&csi_node("host", &[ZONE]));
    if snapshots {
        sources::install_kinds(&simulation);
    }
    simulation.start_with(features.flags);
    let mut claim = claim("data");
    claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("host");
    simulation.api.create(&claim).unwrap();
    simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
    sleep(Duration::from_secs(300)).await;
    simulation
}

/// Whatever a driver can do: what is watched is watched on, and nothing is listed or read again.
#[tokio::test(start_paused = true)]
async fn nothing_is_listed_again_whatever_a_driver_can_do() {
    for features in &FEATURES {
        for snapshots in [false, true] {
            let simulation = served(features, snapshots).await;
            let mut counts = requests_of_one_hour(&simulation).await;
            let what = format!("{}, snapshots: {snapshots}", features.what);
            let always = ["storageclasses", "persistentvolumeclaims", "persistentvolumes"];
            for kind in always.iter().chain(features.watched) {
                let watches = counts.remove(&format!("watch {kind}")).unwrap_or_default();
                assert!(RENEWALS.contains(&watches), "{what}: {watches} watches of {kind}");
            }
            let sweeps = counts.remove("list volumesnapshots").unwrap_or_default();
            assert!(sweeps <= *SWEEPS.end(), "{what}: {sweeps} sweeps");
            without_rights(&mut counts, 1);
            assert_eq!(counts, BTreeMap::new(), "{what}");
        }
    }
}
