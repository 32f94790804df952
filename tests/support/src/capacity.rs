//! A simulated cluster whose driver reports capacity, and the CSIStorageCapacity objects in it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::simulation::{DRIVER, Process, Simulation, claim, class, csi_node, node};

/// The driver's topology key.
pub const ZONE: &str = "disk.example.com/zone";

/// Flags that publish objects without a limit on requests.
pub const FAST: [&str; 4] = [
    "--enable-capacity",
    "--capacity-ownerref-level=-1",
    "--kube-api-capacity-qps=1000",
    "--kube-api-capacity-burst=1000",
];

/// The sizes of all objects by class and zone; an empty zone means everywhere.
pub type Published = BTreeMap<(String, String), Vec<String>>;

/// A cluster without nodes and StorageClasses.
pub fn cluster(seed: u64) -> Simulation {
    prepared(Simulation::new(seed))
}

/// This cluster, with a driver that reports capacity and without StorageClasses.
pub fn prepared(simulation: Simulation) -> Simulation {
    simulation.api.delete("StorageClass", "", "fast").unwrap();
    let capabilities = ["CREATE_DELETE_VOLUME", "GET_CAPACITY"];
    simulation.script(json!({"controller_capabilities": capabilities}));
    set_capacity(&simulation, 1);
    simulation
}

/// Sets the driver's capacity, everywhere.
pub fn set_capacity(simulation: &Simulation, gib: u64) {
    simulation.script(json!({"get_capacity": [{"available_capacity": gib << 30}]}));
}

/// Starts the program with [`FAST`].
pub fn start(simulation: &Simulation) -> Process {
    simulation.start_with(&FAST)
}

/// Creates a StorageClass of the driver, with late binding.
pub fn add_class(simulation: &Simulation, name: &str) {
    simulation.create(&class(name, &json!({"volumeBindingMode": "WaitForFirstConsumer"})));
}

/// Creates a Node in the zone, with the driver on it.
pub fn add_node(simulation: &Simulation, name: &str, zone: &str) {
    simulation.create(&node(name, &json!({ZONE: zone})));
    simulation.create(&csi_node(name, &[ZONE]));
}

/// Deletes a Node and its CSINode.
pub fn remove_node(simulation: &Simulation, name: &str) {
    simulation.api.delete("Node", "", name).unwrap();
    simulation.api.delete("CSINode", "", name).unwrap();
}

/// Moves a Node to the zone.
pub fn move_node(simulation: &Simulation, name: &str, zone: &str) {
    let labels = json!({"metadata": {"labels": {ZONE: zone}}});
    simulation.api.merge("Node", "", name, &labels).unwrap();
}

/// Creates a claim of the class `fast`, for which the scheduler has selected the node; returns its
/// UID.
pub fn add_claim(simulation: &Simulation, name: &str, node: &str) -> String {
    let mut claim = claim(name);
    claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!(node);
    simulation.create(&claim)
}

/// An object of this driver, as another process of the program might have created it.
pub fn object(name: &str, class: &str, zone: &str) -> Value {
    object_of(name, class, zone, "external-provisioner")
}

/// An object of this driver whose label names this manager.
pub fn object_of(name: &str, class: &str, zone: &str, manager: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default",
                     "labels": {"csi.storage.k8s.io/drivername": DRIVER, "csi.storage.k8s.io/managed-by": manager}},
        "storageClassName": class, "nodeTopology": {"matchLabels": {ZONE: zone}}, "capacity": "5Gi"})
}

/// All objects.
pub fn objects(simulation: &Simulation) -> Vec<Value> {
    simulation.api.list("CSIStorageCapacity", "default")
}

/// The sizes of all objects.
pub fn published(simulation: &Simulation) -> Published {
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
pub fn all(classes: &[&str], zones: &[&str], size: &str) -> Published {
    let pairs = classes.iter().flat_map(|class| zones.iter().map(move |zone| (*class, *zone)));
    pairs
        .map(|(class, zone)| ((class.to_owned(), zone.to_owned()), vec![size.to_owned()]))
        .collect()
}

/// Waits until exactly `expected` is published.
pub async fn until_published(simulation: &Simulation, expected: Published) {
    simulation.until(&format!("{expected:?}"), |s| published(s) == expected).await;
}

/// How many requests to create, patch and delete objects were made so far, including refused ones.
pub fn writes(simulation: &Simulation) -> [usize; 3] {
    ["create", "patch", "delete"].map(|verb| simulation.api_requests(verb, "csistoragecapacities"))
}
