//! Reasons, as they are explained from the objects of a scripted cluster. tests/process explains the claims of
//! recorded scenarios.

mod claims;
mod leader;
mod volumes;

use serde_json::{Value, json};

use super::*;
use csi_provisioner::controller::claims::record_status::{FINALIZER, RECORD};
use csi_provisioner::controller::model::overview::Stage;

use crate::{
    subcommand::Command,
    testing::{self, Answer, Asked, Epoch, Server, client},
};

const DRIVER: &str = "d.example.com";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const NODE: &str = "volume.kubernetes.io/selected-node";

/// Where objects of a kind are.
const COLLECTIONS: [(&str, &str); 10] = [
    ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    ("PersistentVolume", "/api/v1/persistentvolumes"),
    ("Event", "/api/v1/events"),
    ("Pod", "/api/v1/pods"),
    ("Node", "/api/v1/nodes"),
    ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    ("CSINode", "/apis/storage.k8s.io/v1/csinodes"),
    ("VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments"),
    ("Lease", "/apis/coordination.k8s.io/v1/leases"),
    ("VolumeSnapshot", "/apis/snapshot.storage.k8s.io/v1/volumesnapshots"),
];

/// A scripted cluster that has only these objects.
#[derive(Clone)]
struct Cluster(Vec<Value>);

impl Cluster {
    /// With its claim changed.
    fn changed(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.0[0]);
        self
    }

    /// A class, the Lease of a leader, and this claim.
    fn with_claim(change: impl FnOnce(&mut Value)) -> Self {
        let mut claim = json!({
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "namespace": "shop", "name": "data", "uid": "u",
                "creationTimestamp": "1969-12-31T23:00:00Z", "annotations": {PROVISIONER: DRIVER},
            },
            "spec": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        });
        change(&mut claim);
        let class =
            json!({"kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": DRIVER});
        Self(vec![claim, class, lease("pod-1_uid", 15)])
    }

    /// The Lease of a leader, and this volume.
    fn with_volume(change: impl FnOnce(&mut Value)) -> Self {
        let mut volume = volume("pv-1", "u");
        volume["metadata"]["uid"] = json!("uid-of-pv");
        volume["metadata"]["finalizers"] =
            json!(["external-provisioner.volume.kubernetes.io/finalizer"]);
        volume["status"] = json!({"phase": "Released"});
        change(&mut volume);
        Self(vec![volume, lease("pod-1_uid", 15)])
    }

    fn and(mut self, object: Value) -> Self {
        self.0.push(object);
        self
    }

    fn without(mut self, kind: &str) -> Self {
        self.0.retain(|object| object["kind"] != kind);
        self
    }

    /// The answer to a GET of an object or of a list.
    fn answer(&self, request: &Asked) -> Answer {
        assert_eq!(request.method, "GET", "it only reads");
        let (path, query) = request.url.split_once('?').unwrap_or((&request.url, ""));
        if query.is_empty() {
            let found = self.0.iter().find(|object| path_of(object) == path);
            return match found {
                Some(object) => Answer::json(200, object),
                None => Answer::refusal(404, "NotFound", &format!("{path} not found")),
            };
        }
        let in_list = |object: &&Value| {
            let path_of_object = path_of(object);
            let (collection, name) = path_of_object.rsplit_once('/').unwrap();
            let is_named = !query.contains("name%3D") || query.contains(&format!("name%3D{name}"));
            let everywhere = collection_of(object);
            (collection == path || everywhere == path) && (is_named || object["kind"] == "Event")
        };
        let items: Vec<&Value> = self.0.iter().filter(in_list).collect();
        Answer::json(200, &json!({"metadata": {}, "items": items}))
    }

    fn server(self) -> Server {
        Server::new(move |request| self.answer(request))
    }
}

fn collection_of(object: &Value) -> &'static str {
    let kind = object["kind"].as_str().unwrap();
    COLLECTIONS.iter().find(|(name, _)| *name == kind).unwrap().1
}

fn path_of(object: &Value) -> String {
    let collection = collection_of(object);
    let name = object["metadata"]["name"].as_str().unwrap();
    match object["metadata"]["namespace"].as_str() {
        None => format!("{collection}/{name}"),
        Some(namespace) => {
            let (group, plural) = collection.rsplit_once('/').unwrap();
            format!("{group}/namespaces/{namespace}/{plural}/{name}")
        }
    }
}

/// The Lease of this holder, of which so many seconds are left.
fn lease(holder: &str, seconds: i64) -> Value {
    let renewed = jiff::Timestamp::from_second(seconds - 15).unwrap();
    json!({
        "kind": "Lease", "metadata": {"namespace": "csi", "name": "d-example-com"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.to_string()},
    })
}

fn claim() -> Cluster {
    Cluster::with_claim(|_| {})
}

fn volume(name: &str, claim_uid: &str) -> Value {
    json!({
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
            "csi": {"driver": DRIVER, "volumeHandle": "h"},
            "claimRef": {"namespace": "shop", "name": "data", "uid": claim_uid},
        },
        "status": {"phase": "Bound"},
    })
}

/// An event about the claim with this reason and message, some seconds ago.
fn event(reason: &str, message: &str, ago: i64) -> Value {
    let time = jiff::Timestamp::from_second(-ago).unwrap().to_string();
    json!({
        "kind": "Event", "metadata": {"namespace": "shop", "name": format!("e{ago}")},
        "involvedObject": {"uid": "u"}, "source": {"component": format!("{DRIVER}_pod_1")},
        "reason": reason, "message": message, "count": 3,
        "lastTimestamp": time,
    })
}

/// An event of kube-controller-manager.
fn by_the_controller(message: &str, ago: i64) -> Value {
    let mut event = event("ProvisioningFailed", message, ago);
    event["source"]["component"] = json!("persistentvolume-controller");
    event
}

fn request(arguments: &[&str]) -> Request {
    let parsed = testing::parse("explain", arguments).unwrap();
    let Command::Explain(request) = parsed else { panic!("{parsed:?}") };
    *request
}

async fn explained(server: &Server, arguments: &[&str]) -> Explanation {
    run(&client(server), &Epoch, &request(arguments), "").await
}

const CLAIM: [&str; 4] = ["pvc", "data", "-n", "shop"];
const VOLUME: [&str; 2] = ["pv", "pv-1"];

/// A reason: the cluster, what the first sentence says, and the row of docs/troubleshooting.md.
type Case = (Cluster, State, &'static str, &'static str);

async fn check(cases: impl IntoIterator<Item = Case>, arguments: &[&str]) {
    for (cluster, state, says, see) in cases {
        let explained = explained(&cluster.server(), arguments).await;
        let first = &explained.sentences[0];
        assert_eq!(explained.state, state, "{says}: {explained:?}");
        assert!(first.text.contains(says), "{says}: {explained:?}");
        let row = first.see.as_deref().unwrap_or_default();
        assert_eq!(row.rsplit('#').next().unwrap(), see, "{says}: {explained:?}");
        let is_over = state == State::Served;
        assert_eq!(explained.what_to_do.is_empty(), is_over, "{says}: {explained:?}");
    }
}

use State::{Served, Unknown, Waiting, Wrong};
