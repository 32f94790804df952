//! A user who makes claims as large as the API server takes them, against the real binary: it keeps its
//! memory, its log and its events small, and serves others meanwhile.

// What tests share fails like a test does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[allow(dead_code)] // other tests share it
#[path = "walk/process.rs"]
mod process;

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use process::{Directory, Provisioner};
use serde_json::{Value, json};
use testkit::{
    apiserver::serve::manifests,
    control_plane::ControlPlane,
    driver::{Host, Script, Scripted},
};
use tokio::time::{Instant, sleep};

const DRIVER: &str = "disk.example.com";
const NAMESPACE: &str = "huge";

/// How many claims the user makes.
const CLAIMS: usize = 60;

/// How much he writes into one field of each, which the API server keeps twice, in bytes.
const LONG: usize = 450_000;

/// How much more memory they may take at most, in KiB, than the program takes without them.
const MOST_MEMORY: usize = 28 << 10;

/// How much may be logged, in bytes.
const MOST_LOG: u64 = 2 << 20;

/// How long the claim of another may take meanwhile.
const MEANWHILE: Duration = Duration::from_secs(5);

/// What is wrong with a claim, or how much it says.
fn fields() -> [Value; 4] {
    let many: Vec<String> = (0..20_000).map(|number| format!("example.com/{number}")).collect();
    [
        json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x".repeat(LONG)}}}),
        json!({"spec": {"dataSource": {"apiGroup": "example.com", "kind": "\u{1b}".repeat(LONG / 2), "name": "x"}}}),
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}, "metadata": {"annotations": {"a": "x".repeat(200_000)}}}),
        json!({"metadata": {"finalizers": many}}),
    ]
}

fn claim(name: &str, change: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": NAMESPACE,
                     "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge(&mut claim, change);
    serde_json::from_value(claim).unwrap()
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

/// A cluster, a driver and the program.
struct House {
    admin: Client,
    program: Provisioner,
    log: PathBuf,
    _driver: Host<Scripted>,
    _control: ControlPlane,
    _directory: Directory,
}

impl House {
    async fn start() -> Self {
        let directory = Directory::new();
        let control = ControlPlane::start().await.unwrap();
        let admin = control.client("admin").await.unwrap();
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": DRIVER}),
        ];
        manifests::apply(&admin, &objects).await.unwrap();
        let driver =
            Host::new(Scripted::new(Script { name: Some(DRIVER.into()), ..Script::default() }));
        let socket = directory.0.join("csi.sock");
        driver.listen(&socket).unwrap();
        let kubeconfig = control.layout().kubeconfig("admin");
        let log = directory.0.join("log");
        let arguments = [
            format!("--csi-address={}", socket.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let program = Provisioner::start(&arguments, log.clone());
        Self { admin, program, log, _driver: driver, _control: control, _directory: directory }
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Makes an ordinary claim; how long its volume takes.
    async fn is_served(&self, name: &str) -> Duration {
        let start = Instant::now();
        let made = self.claims().create(&PostParams::default(), &claim(name, &json!({}))).await;
        let uid = made.unwrap().metadata.uid.unwrap();
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        while volumes.get_opt(&format!("pvc-{uid}")).await.unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "{name} has no volume");
            sleep(Duration::from_millis(20)).await;
        }
        start.elapsed()
    }

    /// The most memory that the program has taken so far, in KiB.
    fn peak(&self) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.program.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_claims_take_little_and_hinder_nobody() {
    let house = House::start().await;
    house.is_served("first").await;
    let before = house.peak();
    let changes = fields();
    for number in 0..CLAIMS {
        let huge = claim(&format!("huge-{number}"), &changes[number % changes.len()]);
        house.claims().create(&PostParams::default(), &huge).await.unwrap();
        if number == CLAIMS / 2 {
            let took = house.is_served("meanwhile").await;
            println!("another claim meanwhile: {took:?}");
            assert!(took < MEANWHILE, "{took:?}");
        }
    }
    sleep(Duration::from_secs(10)).await;
    let took = house.is_served("afterwards").await;
    assert!(took < MEANWHILE, "{took:?}");

    let more = house.peak() - before;
    println!("{CLAIMS} huge claims: {more} KiB more than {before} KiB");
    assert!(more <= MOST_MEMORY, "{more} KiB more than {before} KiB");
    let logged = std::fs::metadata(&house.log).unwrap().len();
    println!("{logged} bytes are logged");
    assert!(logged <= MOST_LOG, "{logged} bytes are logged");
    let events: Api<Event> = Api::namespaced(house.admin.clone(), NAMESPACE);
    for event in events.list(&ListParams::default()).await.unwrap() {
        let message = event.message.unwrap_or_default();
        assert!(message.len() <= 2048, "{} bytes: {:.80}", message.len(), message);
    }
}
