//! A simulated cluster whose driver tells how much room it has.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::world::{DRIVER, Process, Simulation, claim};

/// The label that the driver's nodes are told apart by.
pub(crate) const ZONE: &str = "disk.example.com/zone";

/// Flags with which objects come as fast as they can.
pub(crate) const FAST: [&str; 4] = [
    "--enable-capacity",
    "--capacity-ownerref-level=-1",
    "--kube-api-capacity-qps=1000",
    "--kube-api-capacity-burst=1000",
];

/// What objects say: by class and zone (empty: everywhere) the size, each time it is said.
pub(crate) type Published = BTreeMap<(String, String), Vec<String>>;

/// A cluster without nodes and classes.
pub(crate) fn cluster(seed: u64) -> Simulation {
    prepared(Simulation::new(seed))
}

pub(crate) fn prepared(simulation: Simulation) -> Simulation {
    simulation.api.delete("StorageClass", "", "fast").unwrap();
    let capabilities = ["CREATE_DELETE_VOLUME", "GET_CAPACITY"];
    simulation.script(json!({"controller_capabilities": capabilities}));
    room(&simulation, 1);
    simulation
}

/// The driver has so many GiB left, everywhere.
pub(crate) fn room(simulation: &Simulation, gib: u64) {
    simulation.script(json!({"get_capacity": [{"available_capacity": gib << 30}]}));
}

pub(crate) fn start(simulation: &Simulation) -> Process {
    simulation.start_with(&FAST)
}

/// Starts with these flags, too.
pub(crate) fn start_with(simulation: &Simulation, flags: &[&str]) -> Process {
    simulation.start_with(&[&FAST, flags].concat())
}

pub(crate) fn add_class(simulation: &Simulation, name: &str) {
    add_class_of(simulation, name, DRIVER, "WaitForFirstConsumer");
}

pub(crate) fn add_class_of(simulation: &Simulation, name: &str, driver: &str, mode: &str) {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name}, "provisioner": driver, "volumeBindingMode": mode});
    simulation.api.create(&class).unwrap();
}

/// A Node in the zone, with the driver on it.
pub(crate) fn add_node(simulation: &Simulation, name: &str, zone: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone}}});
    simulation.api.create(&node).unwrap();
    simulation.api.create(&csi_node(name, &[ZONE])).unwrap();
}

pub(crate) fn csi_node(name: &str, keys: &[&str]) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
           "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": keys}]}})
}

pub(crate) fn remove_node(simulation: &Simulation, name: &str) {
    simulation.api.delete("Node", "", name).unwrap();
    simulation.api.delete("CSINode", "", name).unwrap();
}

pub(crate) fn move_node(simulation: &Simulation, name: &str, zone: &str) {
    let labels = json!({"metadata": {"labels": {ZONE: zone}}});
    simulation.api.merge("Node", "", name, &labels).unwrap();
}

/// Makes a claim of the class `fast`, for which the scheduler has chosen the node; gives its UID.
pub(crate) fn add_claim(simulation: &Simulation, name: &str, node: &str) -> String {
    let mut claim = claim(name);
    claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!(node);
    let made = simulation.api.create(&claim).unwrap();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// An object of ours, as another process might have made it.
pub(crate) fn object(name: &str, class: &str, zone: &str) -> Value {
    object_of(name, class, zone, "external-provisioner")
}

pub(crate) fn object_of(name: &str, class: &str, zone: &str, manager: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default",
                     "labels": {"csi.storage.k8s.io/drivername": DRIVER, "csi.storage.k8s.io/managed-by": manager}},
        "storageClassName": class, "nodeTopology": {"matchLabels": {ZONE: zone}}, "capacity": "5Gi"})
}

/// All objects.
pub(crate) fn objects(simulation: &Simulation) -> Vec<Value> {
    simulation.api.list("CSIStorageCapacity", "default")
}

/// What all objects say.
pub(crate) fn published(simulation: &Simulation) -> Published {
    let mut published = Published::new();
    for object in objects(simulation) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let zone = text(&object["nodeTopology"]["matchLabels"][ZONE]);
        let about = (text(&object["storageClassName"]), zone);
        published.entry(about).or_default().push(text(&object["capacity"]));
    }
    published
}

/// One object for each class and zone, all with this size.
pub(crate) fn all(classes: &[&str], zones: &[&str], size: &str) -> Published {
    let pairs = classes.iter().flat_map(|class| zones.iter().map(move |zone| (*class, *zone)));
    pairs
        .map(|(class, zone)| ((class.to_owned(), zone.to_owned()), vec![size.to_owned()]))
        .collect()
}

/// Waits until exactly that is published.
pub(crate) async fn comes(simulation: &Simulation, expected: Published) {
    simulation.until(&format!("{expected:?}"), |s| published(s) == expected).await;
}

/// How many objects were created, corrected and deleted so far, refusals counted too.
pub(crate) fn writes(simulation: &Simulation) -> [usize; 3] {
    ["create", "patch", "delete"].map(|verb| simulation.api_requests(verb, "csistoragecapacities"))
}
