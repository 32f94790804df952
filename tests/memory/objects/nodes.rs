//! Nodes as large clusters have them, much of which is nobody's business here.

use serde_json::{Value, json};

/// The topology keys that the driver registers.
pub(crate) const KEYS: [&str; 2] = [ZONE, HOST];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "rbd.csi.ceph.com/host";

/// A Node in one of three zones; with `host`, at a place of its own.
pub(crate) fn node(number: usize, host: bool) -> Value {
    let name = name(number);
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "m6i.4xlarge", "failure-domain.example.com/rack": "r7",
        "topology.kubernetes.io/region": "eu-central-1", ZONE: format!("eu-central-1{}", number % 3),
    });
    if let (true, Some(labels)) = (host, labels.as_object_mut()) {
        labels.insert(HOST.to_owned(), json!(name));
    }
    let images: Vec<Value> = (0..50)
        .map(|image| json!({"names": [format!("example.com/team/image-{image}@sha256:{image:064}")], "sizeBytes": 12_345_678}))
        .collect();
    let conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|kind| json!({"type": kind, "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}))
        .into();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("node-{number}"), "resourceVersion": "7", "labels": labels,
            "annotations": {"csi.volume.kubernetes.io/nodeid": format!("{{\"rbd.csi.ceph.com\":\"{name}\"}}")},
        },
        "spec": {"providerID": format!("aws:///eu-central-1a/i-{number:017}")},
        "status": {"images": images, "conditions": conditions},
    })
}

/// The CSINode of a node with the driver and two others.
pub(crate) fn csi_node(number: usize) -> Value {
    let (name, uid) = (name(number), format!("csi-{number}"));
    let driver = |driver: &str, keys: &[&str]| json!({"name": driver, "nodeID": name, "topologyKeys": keys, "allocatable": {"count": 39}});
    let drivers = [
        driver("ebs.csi.aws.com", &["topology.ebs.csi.aws.com/zone"]),
        driver("rbd.csi.ceph.com", &KEYS),
        json!({"name": "nfs.csi.k8s.io", "nodeID": name, "topologyKeys": null}),
    ];
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": name, "uid": uid, "resourceVersion": "7"},
        "spec": {"drivers": drivers},
    })
}

fn name(number: usize) -> String {
    format!("ip-10-0-{number:06}.eu-central-1.compute.internal")
}
