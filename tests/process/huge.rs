//! Claims as large as the API server takes them, and a driver whose answers are too large, against the real
//! binary: it keeps its memory, its log and its events small, and serves others meanwhile.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use support::process::{Directory, Provisioner};
use testkit::{
    apiserver::serve::manifests,
    control_plane::ControlPlane,
    driver::{Failure, Host, Match, Rule, Script, Scripted, VolumeSpec},
};
use tokio::time::{Instant, sleep};
use tonic::Code;

const DRIVER: &str = "disk.example.com";
const NAMESPACE: &str = "huge";

/// How many claims the user makes.
const CLAIMS: usize = 60;

/// How many claims he makes that others name as their source.
const SOURCES: usize = 30;

/// How much he writes into one field of each, which the API server keeps twice, in bytes.
const LONG: usize = 450_000;

/// How much more memory they may take at most, in KiB, than the program takes without them.
const MOST_MEMORY: usize = 28 << 10;

/// How much may be logged, in bytes.
const MOST_LOG: u64 = 2 << 20;

/// How long the claim of another may take meanwhile where one alone takes so long, which on a busy machine is long.
fn meanwhile(alone: Duration) -> Duration {
    Duration::from_secs(5).max(10 * alone)
}

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

/// What the driver answers to claims of the class that has this parameter; to all others as it should.
fn answers() -> Vec<Rule> {
    let context = |size| [("context".to_owned(), "x".repeat(size))].into();
    let entries = (0..400_000).map(|number| (number.to_string(), String::new())).collect();
    let error = Failure::new(Code::Internal, &"\u{1b}".repeat(16 << 20));
    let volume = |volume| Rule { volume, ..Rule::default() };
    let rules = [
        (
            "id",
            volume(VolumeSpec { volume_id: Some("x".repeat(100_000)), ..VolumeSpec::default() }),
        ),
        (
            "context",
            volume(VolumeSpec { volume_context: context(1 << 20), ..VolumeSpec::default() }),
        ),
        (
            "message",
            volume(VolumeSpec { volume_context: context(5 << 20), ..VolumeSpec::default() }),
        ),
        ("entries", volume(VolumeSpec { volume_context: entries, ..VolumeSpec::default() })),
        ("headers", Rule { error: Some(error), ..Rule::default() }),
    ];
    let answers = rules.map(|(name, rule)| {
        let parameters = Some([("large".to_owned(), name.to_owned())].into());
        Rule { matching: Match { parameters, ..Match::default() }, ..rule }
    });
    answers.into_iter().chain([Rule::default()]).collect()
}

/// The names of the classes whose volumes the driver answers so, each with its own kind of answer.
const LARGE: [&str; 5] = ["id", "context", "message", "entries", "headers"];

/// A cluster, a driver and the program.
struct Cluster {
    admin: Client,
    program: Provisioner,
    log: PathBuf,
    _driver: Host<Scripted>,
    _control: ControlPlane,
    _directory: Directory,
}

impl Cluster {
    async fn start() -> Self {
        let directory = Directory::new();
        let control = ControlPlane::start().await.unwrap();
        let admin = control.client("admin").await.unwrap();
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": DRIVER}),
        ];
        manifests::apply(&admin, &objects).await.unwrap();
        let large = LARGE.map(|name| {
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                   "provisioner": DRIVER, "parameters": {"large": name}})
        });
        manifests::apply(&admin, &large).await.unwrap();
        let script = Script {
            name: Some(DRIVER.into()),
            create_volume: Some(answers()),
            ..Script::default()
        };
        let driver = Host::new(Scripted::new(script));
        let socket = directory.0.join("csi.sock");
        driver.listen(&socket).unwrap();
        let kubeconfig = control.layout().kubeconfig("admin");
        let log = directory.0.join("log");
        let arguments = [
            format!("--csi-address={}", socket.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let program =
            Provisioner::start(env!("CARGO_BIN_EXE_csi-provisioner"), &arguments, log.clone());
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
async fn a_driver_whose_answers_are_too_large_hinders_nobody() {
    let cluster = Cluster::start().await;
    let alone = cluster.is_served("first").await;
    let before = cluster.peak();
    for class in LARGE {
        let large = claim(class, &json!({"spec": {"storageClassName": class}}));
        cluster.claims().create(&PostParams::default(), &large).await.unwrap();
    }
    let took = cluster.is_served("meanwhile").await;
    println!("another claim meanwhile: {took:?}");
    assert!(took < meanwhile(alone), "{took:?}, alone {alone:?}");
    sleep(Duration::from_secs(10)).await;

    let more = cluster.peak() - before;
    println!("large answers: {more} KiB more than {before} KiB");
    assert!(more <= MOST_MEMORY, "{more} KiB more than {before} KiB");
    assert!(std::fs::metadata(&cluster.log).unwrap().len() <= MOST_LOG);
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    for class in LARGE {
        let failed = |event: &&Event| {
            event.involved_object.name.as_deref() == Some(class)
                && event.reason.as_deref() == Some("ProvisioningFailed")
        };
        let event = events.iter().find(failed).unwrap_or_else(|| panic!("no event of {class}"));
        let message = event.message.as_deref().unwrap_or_default();
        println!("{class}: {message:.300}");
        assert!(message.len() <= 2048, "{class}: {} bytes", message.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_claims_take_little_and_hinder_nobody() {
    let cluster = Cluster::start().await;
    let alone = cluster.is_served("first").await;
    let before = cluster.peak();
    let changes = fields();
    for number in 0..CLAIMS {
        let huge = claim(&format!("huge-{number}"), &changes[number % changes.len()]);
        cluster.claims().create(&PostParams::default(), &huge).await.unwrap();
        if number == CLAIMS / 2 {
            let took = cluster.is_served("meanwhile").await;
            println!("another claim meanwhile: {took:?}");
            assert!(took < meanwhile(alone), "{took:?}, alone {alone:?}");
        }
    }
    sleep(Duration::from_secs(10)).await;
    let took = cluster.is_served("afterwards").await;
    assert!(took < meanwhile(alone), "{took:?}, alone {alone:?}");

    let more = cluster.peak() - before;
    println!("{CLAIMS} huge claims: {more} KiB more than {before} KiB");
    assert!(more <= MOST_MEMORY, "{more} KiB more than {before} KiB");
    let logged = std::fs::metadata(&cluster.log).unwrap().len();
    println!("{logged} bytes are logged");
    assert!(logged <= MOST_LOG, "{logged} bytes are logged");
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    for event in events.list(&ListParams::default()).await.unwrap() {
        let message = event.message.unwrap_or_default();
        assert!(message.len() <= 2048, "{} bytes: {:.80}", message.len(), message);
    }
}

/// A clone reads its source. Sources of megabytes in JSON, each named by several claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_sources_that_many_claims_name_take_little_and_hinder_nobody() {
    let cluster = Cluster::start().await;
    let alone = cluster.is_served("first").await;
    let fat = json!({"spec": {
        "storageClassName": "no-such-class",
        "dataSource": {"apiGroup": "example.com", "kind": "\u{1b}".repeat(LONG / 2), "name": "x"},
    }});
    let post = PostParams::default();
    for source in 0..SOURCES {
        let fat = claim(&format!("source-{source}"), &fat);
        cluster.claims().create(&post, &fat).await.unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    let before = cluster.peak();
    for clone in 0..4 * SOURCES {
        let source = format!("source-{}", clone % SOURCES);
        let source = json!({"kind": "PersistentVolumeClaim", "name": source});
        let clone = claim(&format!("clone-{clone}"), &json!({"spec": {"dataSource": source}}));
        cluster.claims().create(&post, &clone).await.unwrap();
    }
    let took = cluster.is_served("meanwhile").await;
    println!("another claim meanwhile: {took:?}");
    assert!(took < meanwhile(alone), "{took:?}, alone {alone:?}");
    sleep(Duration::from_secs(10)).await;

    let after = cluster.peak();
    println!("{SOURCES} huge sources: {after} KiB instead of {before} KiB");
    assert!(after - before.min(after) <= MOST_MEMORY, "{after} KiB instead of {before} KiB");
}
