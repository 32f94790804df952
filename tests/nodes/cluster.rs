//! Many nodes, each with a driver of node-local volumes and a process beside it.

#[allow(dead_code)] // other tests share the world
#[path = "../simulation/world.rs"]
pub(crate) mod world;

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

use self::world::{DRIVER, Process, Simulation, dial};

pub(crate) const SELECTED: &str = "volume.kubernetes.io/selected-node";
pub(crate) const GIB: i64 = 1 << 30;

/// How long a driver takes for a call.
const PACE: Duration = Duration::from_millis(50);

/// Nodes, each with a driver and a process.
pub(crate) struct Cluster {
    pub(crate) simulation: Simulation,
    pub(crate) nodes: BTreeMap<String, Node>,
}

pub(crate) struct Node {
    pub(crate) driver: Arc<Host<LocalDriver>>,
    pub(crate) process: Process,
}

/// A driver with room for so many claims.
pub(crate) fn local(node: &str, room: i64) -> Arc<Host<LocalDriver>> {
    let (name, node, size) = (DRIVER.to_owned(), node.to_owned(), room * GIB);
    Arc::new(Host::new(LocalDriver::new(Settings { name, node, size, pace: PACE })))
}

pub(crate) fn selected(mut claim: Value, node: &str) -> Value {
    claim["metadata"]["annotations"][SELECTED] = json!(node);
    claim
}

impl Cluster {
    /// Nodes `n0`, `n1` and so on with room for so many claims each.
    pub(crate) fn new(seed: u64, rooms: &[i64]) -> Self {
        Self::with(seed, rooms, &[])
    }

    pub(crate) fn with(seed: u64, rooms: &[i64], flags: &[&str]) -> Self {
        let mut cluster = Self { simulation: Simulation::new(seed), nodes: BTreeMap::new() };
        for (number, room) in rooms.iter().enumerate() {
            cluster.add(&format!("n{number}"), *room, flags);
        }
        cluster
    }

    pub(crate) fn add(&mut self, name: &str, room: i64, flags: &[&str]) {
        let driver = local(name, room);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.simulation.api.create(&node).unwrap();
        let process = self.simulation.start_on(name, dial(&driver), flags);
        self.nodes.insert(name.to_owned(), Node { driver, process });
    }

    /// Kills the process on the node and starts it again beside the same driver.
    pub(crate) fn restart(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).unwrap();
        node.process.kill();
        node.process = self.simulation.start_on(name, dial(&node.driver), &[]);
    }

    /// How often the driver's method was called, by node.
    pub(crate) fn calls(&self, method: &str) -> BTreeMap<&str, usize> {
        let calls = |node: &Node| node.driver.journal().count(method);
        self.nodes.iter().map(|(name, node)| (name.as_str(), calls(node))).collect()
    }

    pub(crate) fn all_calls(&self, method: &str) -> usize {
        self.calls(method).values().sum()
    }

    /// Every volume at any driver.
    pub(crate) fn left_at_drivers(&self) -> Vec<String> {
        let volumes = self.nodes.values().flat_map(|node| node.driver.backend().volumes());
        let mut volumes: Vec<String> = volumes.collect();
        volumes.sort();
        volumes
    }

    /// The handles of all PersistentVolumes.
    pub(crate) fn handles(&self) -> Vec<String> {
        let handle =
            |volume: &Value| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned();
        let mut handles: Vec<String> = self.simulation.volumes().iter().map(handle).collect();
        handles.sort();
        handles
    }

    /// The node that was chosen for the claim.
    pub(crate) fn owner(&self, claim: &str) -> Option<String> {
        let claim = self.simulation.api.get("PersistentVolumeClaim", "sc", claim).unwrap();
        claim["metadata"]["annotations"][SELECTED].as_str().map(str::to_owned)
    }

    /// Every claim has one volume, on the node that was chosen for it, and there are no others.
    pub(crate) fn check_volumes(&self, claims: usize) {
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

    pub(crate) async fn until_saved(&self, volumes: usize) {
        let what = format!("{volumes} volumes are saved");
        self.simulation.until(&what, |s| s.volumes().len() == volumes).await;
    }
}

/// What sharing so many claims among so many nodes costs.
pub(crate) struct Cost {
    pub(crate) gets: usize,
    pub(crate) puts: usize,
    pub(crate) conflicts: usize,
    pub(crate) questions: usize,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gets, puts, conflicts, questions } = self;
        write!(
            f,
            "{gets} GETs and {puts} PUTs of claims, {conflicts} conflicts; {questions} GetCapacity"
        )
    }
}

/// Lets so many nodes share so many claims that come at once, on a network that takes its time.
pub(crate) async fn share(seed: u64, nodes: usize, claims: usize) -> Cost {
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
        questions: cluster.all_calls("GetCapacity"),
    }
}
