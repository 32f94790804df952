//! Claims as large as the API server takes them, and a driver whose answers are too large, against the real
//! binary: it keeps its memory, its log and its events small, and serves others meanwhile.

use std::{env, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use support::process::{MOST_PEAK, Provisioner};
use testkit::{
    apiserver::{
        faults::{self, Effect, StreamFault},
        serve::manifests,
    },
    control_plane::{ControlPlane, TemporaryDirectory},
    driver::{Failure, Host, Match, Rule, Script, Scripted, VolumeSpec},
    merged, until,
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

/// The bytes of a source's name, which the API server keeps twice, each of them as six in JSON.
const FAT: usize = 690_000;

/// The entries of a Secret that is nearly as large as the API server takes.
const SECRET_KEYS: usize = 90_000;

/// How much of its processor time the program may take until the claim of another is served meanwhile. That does not
/// depend on how busy the machine is. JSON is read twenty times as fast in the shipped file.
const MOST_WORK: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 2 });

/// How long an ordinary claim may take at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is wrong with a claim, or how much it says.
fn fields() -> [Value; 4] {
    let many: Vec<String> = (0..20_000).map(|number| format!("example.com/{number}")).collect();
    [
        json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x".repeat(LONG)}}}),
        json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "\u{1b}".repeat(LONG)}}}),
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}, "metadata": {"annotations": {"a": "x".repeat(200_000)}}}),
        json!({"metadata": {"finalizers": many}}),
    ]
}

fn claim(name: &str, change: &Value) -> PersistentVolumeClaim {
    let claim = json!({
        "metadata": {"name": name, "namespace": NAMESPACE,
                     "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    });
    serde_json::from_value(merged(claim, change)).unwrap()
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
    control: ControlPlane,
    _directory: TemporaryDirectory,
}

impl Cluster {
    async fn start() -> Self {
        Self::start_after(async |_| (), &[]).await
    }

    /// Starts the program, with these flags, once `before` has made its objects.
    async fn start_after(before: impl AsyncFnOnce(&Client), flags: &[&str]) -> Self {
        let directory = TemporaryDirectory::new().unwrap();
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
        let socket = directory.path().join("csi.sock");
        driver.listen(&socket).unwrap();
        let kubeconfig = control.layout().kubeconfig("admin");
        let log = directory.path().join("log");
        let mut arguments = vec![
            format!("--csi-address={}", socket.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        before(&admin).await;
        let program =
            Provisioner::start(env!("CARGO_BIN_EXE_csi-provisioner"), &arguments, log.clone());
        Self { admin, program, log, _driver: driver, control, _directory: directory }
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// Makes an ordinary claim; how long the program works until it has its volume.
    async fn is_served(&self, name: &str) -> Duration {
        let (start, before) = (Instant::now(), self.program.processor_time());
        let made = self.claims().create(&PostParams::default(), &claim(name, &json!({}))).await;
        let uid = made.unwrap().metadata.uid.unwrap();
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        while volumes.get_opt(&format!("pvc-{uid}")).await.unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "{name} has no volume");
            sleep(Duration::from_millis(20)).await;
        }
        self.program.processor_time().saturating_sub(before)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_whose_answers_are_too_large_hinders_nobody() {
    let cluster = Cluster::start().await;
    cluster.is_served("first").await;
    let before = cluster.program.peak();
    for class in LARGE {
        let large = claim(class, &json!({"spec": {"storageClassName": class}}));
        cluster.claims().create(&PostParams::default(), &large).await.unwrap();
    }
    let took = cluster.is_served("meanwhile").await;
    println!("another claim meanwhile: after {took:?} of work");
    assert!(took < MOST_WORK, "{took:?}");
    sleep(Duration::from_secs(10)).await;

    let more = cluster.program.peak() - before;
    println!("large answers: {more} KiB more than {before} KiB");
    assert!(more <= MOST_MEMORY, "{more} KiB more than {before} KiB");
    assert!(std::fs::metadata(&cluster.log).unwrap().len() <= MOST_LOG);
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    for class in LARGE {
        let failed = |event: &Event| {
            event.involved_object.name.as_deref() == Some(class)
                && event.reason.as_deref() == Some("ProvisioningFailed")
        };
        let reported = async || {
            events.list(&ListParams::default()).await.unwrap().items.into_iter().find(failed)
        };
        let event = until(PATIENCE, Duration::from_secs(1), reported).await;
        let event = event.unwrap_or_else(|| panic!("no event of {class}"));
        let message = event.message.as_deref().unwrap_or_default();
        println!("{class}: {message:.300}");
        assert!(message.len() <= 2048, "{class}: {} bytes", message.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_claims_take_little_and_hinder_nobody() {
    let cluster = Cluster::start().await;
    cluster.is_served("first").await;
    let before = cluster.program.peak();
    let changes = fields();
    for number in 0..CLAIMS {
        let huge = claim(&format!("huge-{number}"), &changes[number % changes.len()]);
        cluster.claims().create(&PostParams::default(), &huge).await.unwrap();
        if number == CLAIMS / 2 {
            let took = cluster.is_served("meanwhile").await;
            println!("another claim meanwhile: after {took:?} of work");
            assert!(took < MOST_WORK, "{took:?}");
        }
    }
    sleep(Duration::from_secs(10)).await;
    let took = cluster.is_served("afterwards").await;
    assert!(took < MOST_WORK, "{took:?}");

    let more = cluster.program.peak() - before;
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

/// A claim of another class, which is 8 MB of JSON where it is 1.4 MB in the server's store. A real server takes no
/// more than 3 MiB of JSON, and so an attacker sends protobuf; there the claim is as large as JSON can be.
pub(crate) fn fat(name: &str, class: &str) -> PersistentVolumeClaim {
    fat_of(if is_on_real_server() { FAT / 3 * 2 } else { FAT }, name, class)
}

/// The same, but so that a real server takes all of it back in JSON, with one finalizer more.
pub(crate) fn fat_and_writable(name: &str, class: &str) -> PersistentVolumeClaim {
    fat_of(if is_on_real_server() { FAT / 3 } else { FAT }, name, class)
}

fn fat_of(length: usize, name: &str, class: &str) -> PersistentVolumeClaim {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "\u{1b}".repeat(length)});
    claim(name, &json!({"spec": {"storageClassName": class, "dataSource": source}}))
}

fn is_on_real_server() -> bool {
    ["KUBEBUILDER_ASSETS", "KUBECONFIG_E2E"].iter().any(|it| env::var_os(it).is_some())
}

impl Cluster {
    /// Others are served while the program reads what is large, and it takes little memory.
    async fn holds(&self, attack: &str, time: Duration) {
        let end = Instant::now() + time;
        let (mut number, mut longest) = (0, Duration::ZERO);
        while Instant::now() < end {
            number += 1;
            longest = longest.max(self.is_served(&format!("meanwhile-{number}")).await);
            sleep(Duration::from_millis(200)).await;
        }
        let peak = self.program.peak();
        println!(
            "{attack}: {peak} KiB at most, {number} other claims waited for {longest:?} of work at most"
        );
        assert!(peak <= MOST_PEAK, "{attack}: {peak} KiB");
        assert!(longest <= MOST_WORK, "{attack}: {longest:?}");
    }

    /// The program has sent such requests, as far as that is known.
    fn has_asked(&self, verb: &str, resource: &str) {
        let Some(served) = self.control.embedded() else { return };
        assert!(served.api().requests().count(verb, resource) > 0, "{verb} {resource}");
    }
}

/// A clone reads its source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_sources_that_many_claims_name_take_little_and_hinder_nobody() {
    let cluster = Cluster::start().await;
    cluster.is_served("first").await;
    let post = PostParams::default();
    for source in 0..SOURCES {
        let fat = fat(&format!("source-{source}"), "no-such-class");
        cluster.claims().create(&post, &fat).await.unwrap();
    }
    for clone in 0..4 * SOURCES {
        let source = format!("source-{}", clone % SOURCES);
        let source = json!({"kind": "PersistentVolumeClaim", "name": source});
        let clone = claim(&format!("clone-{clone}"), &json!({"spec": {"dataSource": source}}));
        cluster.claims().create(&post, &clone).await.unwrap();
    }
    cluster.holds("sources", Duration::from_secs(20)).await;
    cluster.has_asked("get", "persistentvolumeclaims");
}

/// A class whose secret is in the namespace of each claim: the claims' user writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_secrets_that_many_claims_name_take_little_and_hinder_nobody() {
    let made = async |admin: &Client| {
        let secret = |purpose| format!("csi.storage.k8s.io/provisioner-secret-{purpose}");
        let parameters = json!({secret("name"): "${pvc.annotations['secret']}", secret("namespace"): "${pvc.namespace}"});
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "secret"},
                           "provisioner": DRIVER, "parameters": parameters});
        manifests::apply(admin, &[class]).await.unwrap();
        let many: Value =
            (0..SECRET_KEYS).map(|key| (format!("{key:x}"), Value::from(""))).collect();
        for number in 0..SOURCES {
            let metadata = json!({"namespace": NAMESPACE, "name": format!("secret-{number}")});
            let secret =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": many});
            manifests::apply(admin, &[secret]).await.unwrap();
        }
    };
    let cluster = Cluster::start_after(made, &[]).await;
    cluster.is_served("first").await;
    for number in 0..4 * SOURCES {
        let secret = format!("secret-{}", number % SOURCES);
        let change = json!({"metadata": {"annotations": {"secret": secret}}, "spec": {"storageClassName": "secret"}});
        let named = claim(&format!("named-{number}"), &change);
        cluster.claims().create(&PostParams::default(), &named).await.unwrap();
    }
    cluster.holds("secrets", Duration::from_secs(20)).await;
    cluster.has_asked("get", "secrets");
    let volumes: Api<PersistentVolume> = Api::all(cluster.admin.clone());
    let made = volumes.list(&ListParams::default()).await.unwrap();
    let class =
        |volume: &PersistentVolume| volume.spec.as_ref().unwrap().storage_class_name.clone();
    assert!(made.iter().all(|volume| class(volume).as_deref() == Some("fast")));
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap();
    let mut messages = events.iter().filter_map(|event| event.message.as_deref());
    assert!(messages.any(|it| it.contains("its keys and values take more than 64 KiB")));
}

/// Each claim of a class of ours is read once after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_claims_at_the_start_take_little_and_hinder_nobody() {
    let made = async |admin: &Client| {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), NAMESPACE);
        for number in 0..4 * SOURCES {
            let fat = fat(&format!("fat-{number}"), "fast");
            claims.create(&PostParams::default(), &fat).await.unwrap();
        }
    };
    let cluster = Cluster::start_after(made, &[]).await;
    cluster.is_served("first").await;
    cluster.holds("claims at the start", Duration::from_secs(20)).await;
}

/// A claim that names a source of another namespace reads the grants there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_grants_take_little_and_hinder_nobody() {
    let made = async |admin: &Client| {
        let text = "x".repeat(100_000);
        let grants: Vec<Value> = (0..300)
            .map(|number| {
                json!({
                    "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
                    "metadata": {"namespace": NAMESPACE, "name": format!("grant-{number}"), "annotations": {"a": text}},
                    "spec": {"from": [], "to": []},
                })
            })
            .collect();
        manifests::apply(admin, &grants).await.unwrap();
    };
    let gate = "--feature-gates=CrossNamespaceVolumeDataSource=true";
    let cluster = Cluster::start_after(made, &[gate]).await;
    cluster.is_served("first").await;
    for number in 0..4 * SOURCES {
        let source =
            json!({"kind": "PersistentVolumeClaim", "name": "none", "namespace": NAMESPACE});
        let mut copy =
            claim(&format!("copy-{number}"), &json!({"spec": {"dataSourceRef": source}}));
        copy.metadata.namespace = Some("default".into());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.admin.clone(), "default");
        claims.create(&PostParams::default(), &copy).await.unwrap();
    }
    cluster.holds("grants", Duration::from_secs(20)).await;
    cluster.has_asked("list", "referencegrants");
}

/// No server does that, but whoever pretends to be one can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_line_has_no_end_takes_little_and_is_given_up() {
    let cluster = Cluster::start().await;
    let Some(served) = cluster.control.embedded() else { return };
    cluster.is_served("first").await;
    let endless = Effect::Stream(StreamFault::Endless { after: 0 });
    let rule = faults::Rule::on("watch", "persistentvolumeclaims", endless);
    served.api().faults().add(rule.times(1));
    served.api().watches().cut(Some("persistentvolumeclaims"));
    cluster.is_served("afterwards").await;
    let peak = cluster.program.peak();
    println!("an endless line: {peak} KiB at most");
    assert!(peak <= MOST_PEAK, "{peak} KiB");
}
