//! A simulated cluster with many nodes, each with a driver of node-local volumes and a process.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde_json::{Value, json};
use testkit::{
    apiserver::faults::{Effect, Rule},
    driver::{
        Host,
        local::{LocalDriver, Settings},
    },
};
use tokio::time::sleep;

use crate::{
    connector::connector,
    simulation::{DRIVER, Process, Simulation, node},
};

/// The annotation by which a claim's node is selected.
pub const SELECTED: &str = "volume.kubernetes.io/selected-node";
/// Bytes in a GiB, the size of each claim.
pub const GIB: i64 = 1 << 30;

/// The duration of a driver's call.
const CALL: Duration = Duration::from_millis(50);

/// A simulated cluster and its nodes.
pub struct Cluster {
    /// The API server and what it records.
    pub simulation: Simulation,
    /// The nodes by name.
    pub nodes: BTreeMap<String, Node>,
}

/// One node.
pub struct Node {
    /// Its driver.
    pub driver: Arc<Host<LocalDriver>>,
    /// The process that serves the driver.
    pub process: Process,
}

/// A driver with capacity for so many claims.
pub fn local(node: &str, capacity: i64) -> Arc<Host<LocalDriver>> {
    let (name, node, size) = (DRIVER.to_owned(), node.to_owned(), capacity * GIB);
    Arc::new(Host::new(LocalDriver::new(Settings { name, node, size, pace: CALL })))
}

/// The claim with this node selected.
pub fn selected(mut claim: Value, node: &str) -> Value {
    claim["metadata"]["annotations"][SELECTED] = json!(node);
    claim
}

impl Cluster {
    /// A cluster of nodes `n0`, `n1` and so on, with capacity for so many claims each.
    pub fn new(seed: u64, capacities: &[i64]) -> Self {
        Self::with(seed, capacities, &[])
    }

    /// Like [`Self::new`], with these flags.
    pub fn with(seed: u64, capacities: &[i64], flags: &[&str]) -> Self {
        let mut cluster = Self { simulation: Simulation::new(seed), nodes: BTreeMap::new() };
        for (number, capacity) in capacities.iter().enumerate() {
            cluster.add(&format!("n{number}"), *capacity, flags);
        }
        cluster
    }

    /// Adds a node with capacity for so many claims, and starts its process.
    pub fn add(&mut self, name: &str, capacity: i64, flags: &[&str]) {
        let driver = local(name, capacity);
        self.simulation.create(&node(name, &json!({})));
        let process = self.simulation.start_on(name, connector(&driver), flags);
        self.nodes.insert(name.to_owned(), Node { driver, process });
    }

    /// Kills the process on the node and starts it again with the same driver.
    pub fn restart(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).unwrap();
        node.process.kill();
        node.process = self.simulation.start_on(name, connector(&node.driver), &[]);
    }

    /// How often the driver's method was called, by node.
    pub fn calls(&self, method: &str) -> BTreeMap<&str, usize> {
        let calls = |node: &Node| node.driver.journal().count(method);
        self.nodes.iter().map(|(name, node)| (name.as_str(), calls(node))).collect()
    }

    /// How often the method was called at all drivers.
    pub fn all_calls(&self, method: &str) -> usize {
        self.calls(method).values().sum()
    }

    /// The IDs of all volumes of all drivers.
    pub fn left_at_drivers(&self) -> Vec<String> {
        let volumes = self.nodes.values().flat_map(|node| node.driver.backend().volumes());
        let mut volumes: Vec<String> = volumes.collect();
        volumes.sort();
        volumes
    }

    /// The handles of all PersistentVolumes.
    pub fn handles(&self) -> Vec<String> {
        let handle =
            |volume: &Value| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned();
        let mut handles: Vec<String> = self.simulation.volumes().iter().map(handle).collect();
        handles.sort();
        handles
    }

    /// The node that is selected for the claim.
    pub fn owner(&self, claim: &str) -> Option<String> {
        let claim = self.simulation.api.get("PersistentVolumeClaim", "sc", claim).unwrap();
        claim["metadata"]["annotations"][SELECTED].as_str().map(str::to_owned)
    }

    /// Checks that each claim has one volume, on its selected node, and that there are no others.
    pub fn check_volumes(&self, claims: usize) {
        assert_eq!(self.left_at_drivers(), self.handles());
        let volumes = self.simulation.volumes();
        let mut served: Vec<&str> =
            volumes.iter().map(|it| it["spec"]["claimRef"]["name"].as_str().unwrap()).collect();
        served.sort_unstable();
        served.dedup();
        assert_eq!((served.len(), volumes.len()), (claims, claims), "one volume a claim");
        for volume in &volumes {
            let owner = self.owner(volume["spec"]["claimRef"]["name"].as_str().unwrap());
            let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
            assert_eq!(handle.rsplit_once('@').map(|(_, node)| node), owner.as_deref());
        }
    }

    /// Waits until there are so many PersistentVolumes.
    pub async fn until_saved(&self, volumes: usize) {
        let what = format!("{volumes} volumes are saved");
        self.simulation.until(&what, |s| s.volumes().len() == volumes).await;
    }
}

/// The cost of sharing claims among nodes.
pub struct Cost {
    /// GETs of claims.
    pub gets: usize,
    /// PUTs of claims.
    pub puts: usize,
    /// PUTs that were answered with 409.
    pub conflicts: usize,
    /// `GetCapacity` calls.
    pub capacity_calls: usize,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gets, puts, conflicts, capacity_calls } = self;
        write!(
            f,
            "{gets} GETs and {puts} PUTs of claims, {conflicts} conflicts; {capacity_calls} GetCapacity"
        )
    }
}

/// Creates so many claims at once and lets so many nodes share them, on a slow network.
pub async fn share(seed: u64, nodes: usize, claims: usize) -> Cost {
    let cluster = Cluster::new(seed, &vec![i64::try_from(claims).unwrap(); nodes]);
    let faults = cluster.simulation.faults();
    let milliseconds = |n| Effect::Delay(Duration::from_millis(n));
    faults.add(Rule::on("get", "persistentvolumeclaims", milliseconds(5)));
    faults.add(Rule::on("update", "persistentvolumeclaims", milliseconds(10)));
    sleep(Duration::from_secs(1)).await;
    for number in 0..claims {
        cluster.simulation.create_claim(&format!("data-{number}"));
    }
    for _ in 0..120 {
        sleep(Duration::from_secs(1)).await;
        if cluster.simulation.api_requests("create", "persistentvolumes") >= claims {
            break;
        }
    }
    sleep(Duration::from_secs(60)).await;
    cluster.check_volumes(claims);
    assert_eq!(cluster.all_calls("CreateVolume"), claims);
    let requests = &cluster.simulation.api.requests();
    let puts = requests.matching("update", "persistentvolumeclaims");
    Cost {
        gets: requests.count("get", "persistentvolumeclaims"),
        conflicts: puts.iter().filter(|put| put.code == 409).count(),
        puts: puts.len(),
        capacity_calls: cluster.all_calls("GetCapacity"),
    }
}
