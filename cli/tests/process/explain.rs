//! `kubectl csi-provisioner explain`, and the status that it reads, the real binary over HTTPS: where a claim
//! stands before, while and after it is served, and what only the leader knows. Where `KUBEBUILDER_ASSETS` is
//! set, on a real kube-apiserver.

use std::path::Path;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PostParams},
};
use serde_json::{Value, json};
use support::process::{Provisioner, beside};
use testkit::{
    control_plane::{ControlPlane, TemporaryDirectory},
    driver::{Host, Script, Scripted},
    ports::free_port,
    web::page,
};

use crate::ran::{Ran, run};

const DRIVER: &str = "disk.example.com";
const NAMESPACE: &str = "default";

impl Ran {
    /// Checks the exit code, and that all of `parts` were printed.
    fn says(&self, code: i32, parts: &[&str]) {
        let printed = [&*self.stdout, &self.stderr].concat();
        assert_eq!(self.code, code, "{printed}");
        for part in parts {
            assert!(printed.contains(part), "{part:?} is missing in {printed}");
        }
    }
}

/// The sidecar's binary.
fn sidecar() -> String {
    let path = beside(env!("CARGO_BIN_EXE_kubectl-csi_provisioner"), "csi-provisioner");
    path.into_os_string().into_string().unwrap()
}

/// An API server with a driver beside it.
struct Cluster {
    plane: ControlPlane,
    admin: Client,
    driver: Host<Scripted>,
    directory: TemporaryDirectory,
    /// The port of the status.
    status: u16,
}

impl Cluster {
    /// Starts both; the driver answers CreateVolume as `create` says.
    async fn start(create: Value) -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let admin = plane.client("admin").await.unwrap();
        let directory = TemporaryDirectory::new().unwrap();
        let script = json!({"name": DRIVER, "create_volume": create});
        let driver = Host::new(Scripted::new(serde_json::from_value::<Script>(script).unwrap()));
        driver.listen(&directory.path().join("csi.sock")).unwrap();
        Self { plane, admin, driver, directory, status: free_port().unwrap() }
    }

    /// Explains as this user.
    async fn explain(&self, user: &str, arguments: &[&str]) -> Ran {
        self.run(user, &[&["explain"], arguments].concat()).await
    }

    /// Runs a command as this user.
    async fn run(&self, user: &str, arguments: &[&str]) -> Ran {
        let kubeconfig = format!("--kubeconfig={}", self.plane.layout().kubeconfig(user).display());
        let all: Vec<String> =
            arguments.iter().map(ToString::to_string).chain([kubeconfig]).collect();
        tokio::task::spawn_blocking(move || run(&all, "")).await.unwrap()
    }

    async fn explain_claim(&self) -> Ran {
        self.explain("admin", &["pvc", "data"]).await
    }

    /// Starts the provisioner with a status.
    fn provisioner(&self) -> Provisioner {
        let file = |name: &str| self.directory.path().join(name);
        let arguments = [
            format!("--kubeconfig={}", self.plane.layout().kubeconfig("sa").display()),
            format!("--csi-address={}", file("csi.sock").display()),
            "--leader-election".to_owned(),
            "--leader-election-namespace=default".to_owned(),
            "--retry-interval-start=1h".to_owned(),
            "--retry-interval-max=1h".to_owned(),
            format!("--status-endpoint=:{}", self.status),
        ];
        Provisioner::start(&sidecar(), &arguments, file("log"))
    }

    async fn create(&self, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let kind = object.types.clone().unwrap().kind;
        api(&self.admin, &kind).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn create_class(&self) {
        self.create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "fast"}, "provisioner": DRIVER,
        }))
        .await;
    }

    async fn create_claim(&self) {
        self.create(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data",
                "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER},
            },
            "spec": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
    }

    async fn claim(&self) -> Value {
        let claim = api(&self.admin, "PersistentVolumeClaim").get("data").await.unwrap();
        serde_json::to_value(claim).unwrap()
    }

    /// Binds the claim to its PersistentVolume, as kube-controller-manager does.
    async fn bind(&self) {
        let uid = self.claim().await["metadata"]["uid"].as_str().unwrap().to_owned();
        let spec = json!({"spec": {"volumeName": format!("pvc-{uid}")}});
        let bound = json!({"status": {"phase": "Bound"}});
        let claims = api(&self.admin, "PersistentVolumeClaim");
        let merge = <_>::default();
        claims.patch("data", &merge, &Patch::Merge(spec)).await.unwrap();
        claims.patch_status("data", &merge, &Patch::Merge(bound)).await.unwrap();
    }

    /// The status.
    async fn status(&self) -> Value {
        serde_json::from_str(&page(self.status, "/status.json").await).unwrap_or_default()
    }

    /// The status lists the claim with this gRPC code.
    async fn has_failed_with(&self, code: &str) -> bool {
        self.status().await["claims"]["listed"][0]["lastFailure"]["code"] == code
    }

    fn stop(self) {
        self.driver.stop();
    }
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let group = if kind == "StorageClass" { "storage.k8s.io" } else { "" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    if kind == "PersistentVolumeClaim" {
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_explained_from_its_creation_to_its_volume() {
    let cluster = Cluster::start(json!([{}])).await;
    cluster.explain_claim().await.says(3, &["It does not exist."]);
    cluster.create_claim().await;
    let missing = ["storageclass.storage.k8s.io \"fast\" not found", "#class-missing", "Create it"];
    cluster.explain_claim().await.says(2, &missing);
    cluster.create_class().await;
    cluster
        .explain_claim()
        .await
        .says(1, &["All that can be checked", "There is no Lease disk-example-com"]);

    let mut provisioner = cluster.provisioner();
    let volumes = api(&cluster.admin, "PersistentVolume");
    provisioner
        .until("the volume is saved", async |_| {
            !volumes.list(&<_>::default()).await.unwrap().items.is_empty()
        })
        .await;
    cluster
        .explain_claim()
        .await
        .says(1, &["has not bound the two yet", "leads, by the Lease default/"]);
    cluster.bind().await;
    let served = cluster.explain_claim().await;
    served.says(0, &["PersistentVolumeClaim default/data is served."]);
    let json = cluster.explain("admin", &["pvc", "data", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["state"], &json["details"]["driver"]), (&json!("served"), &json!(DRIVER)));
    assert!(provisioner.stop().await.success());
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_leader_knows_is_asked_of_it() {
    let refuses = json!([{"error": {"code": "RESOURCE_EXHAUSTED", "message": "no <b>space</b>"}}]);
    let cluster = Cluster::start(refuses).await;
    cluster.create_class().await;
    cluster.create_claim().await;
    let mut provisioner = cluster.provisioner();
    let wait = async |_: &mut Provisioner| cluster.has_failed_with("ResourceExhausted").await;
    provisioner.until("the first attempt has failed", wait).await;

    let address = format!("--status-endpoint=127.0.0.1:{}", cluster.status);
    let asked = ["pvc", "data", &address, "--leader-election-namespace=default"];
    let parts = [
        "The last attempt failed",
        "code = ResourceExhausted desc = no <b>space</b>",
        "docs/troubleshooting.md#code-resourceexhausted",
        "Attempts of the leader so far: 1. The next one comes in ",
    ];
    // In a pod the provisioner's own service account asks.
    for user in ["admin", "sa"] {
        cluster.explain(user, &asked).await.says(1, &parts);
    }
    cluster.explain_claim().await.says(1, &["code = ResourceExhausted", "Only the leader knows"]);

    let status = cluster.status().await;
    assert_eq!(status["leader"]["leads"], true, "{status}");
    assert_eq!(status["claims"]["byStage"], json!({"waiting": 1}), "{status}");
    let last = &status["driver"]["lastCalls"]["failure"];
    assert_eq!(last["code"], "ResourceExhausted", "{status}");
    let shown = cluster.run("admin", &["status", &address]).await;
    shown.says(
        0,
        &["leads by the Lease default/disk-example-com", "default/data", "no <b>space</b>"],
    );
    assert!(provisioner.stop().await.success());
    let gone = cluster.explain("admin", &["pvc", "data"]).await;
    gone.says(2, &["No replica leads", "docs/troubleshooting.md#no-leader"]);
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written() {
    let cluster = Cluster::start(json!([{}])).await;
    cluster.create_class().await;
    cluster.create_claim().await;
    let Some(audit) = cluster.plane.audit().map(Path::to_owned) else { return };
    let requests = || std::fs::read_to_string(&audit).unwrap().lines().count();
    let before = requests();
    cluster.explain("sa", &["pvc", "data"]).await.says(1, &["All that can be checked"]);
    let log = std::fs::read_to_string(&audit).unwrap();
    let writes = log.lines().skip(before).filter(|line| {
        line.contains("csi-provisioner")
            && ["create", "update", "patch", "delete"]
                .iter()
                .any(|verb| line.contains(&format!("\"verb\":\"{verb}\"")))
    });
    assert_eq!(writes.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(requests() > before, "the requests are in the audit log");
    cluster.stop();
}
