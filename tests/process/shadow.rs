//! Shadow mode as a process, with the role of deploy/kubernetes/shadow.yaml, beside a provisioner that serves
//! and deletes volumes of all kinds. At the end every PersistentVolume and every deletion was compared,
//! everything that can be known is the same, and the audit log has no write of shadow mode.
//!
//! It plays on the API server that the environment offers, kube-apiserver with kube-controller-manager where
//! `KUBEBUILDER_ASSETS` has them. `EXTERNAL_PROVISIONER` names the file of external-provisioner, which then
//! serves the claims instead of this program. `SHADOW_CLAIMS` is the number of claims.

use std::{collections::BTreeMap, env, fs, path::PathBuf, process::Command, time::Duration};

use cli::shadow::{Agreement, ShadowReport, Subject};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch},
};
use serde_json::{Value, json};
use support::{
    process::{Provisioner, beside},
    simulation::{DRIVER, class},
};
use testkit::{
    apiserver::serve::manifests,
    control_plane::{ControlPlane, Controllers, TemporaryDirectory},
    driver::{Backend as _, Description, Host, Script, Scripted},
    ports::free_port,
    until,
};

const MANIFEST: &str = include_str!("../../deploy/kubernetes/shadow.yaml");

const SIDECAR: &str = env!("CARGO_BIN_EXE_csi-provisioner");

const NAMESPACE: &str = "shop";
const ZONE: &str = "disk.example.com/zone";

/// How long results may take: kube-controller-manager makes 20 changes a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// A claim of each of these kinds in turn.
const KINDS: [fn() -> Value; 14] = [
    || json!({}),
    || json!({"storageClassName": "full"}),
    || json!({"storageClassName": "full", "volumeMode": "Block"}),
    || json!({"storageClassName": "kept"}),
    || json!({"storageClassName": "zones"}),
    || json!({"resources": {"requests": {"storage": "1500M"}}}),
    || json!({"resources": {"requests": {"storage": "1"}}}),
    || json!({"resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "3Gi"}}}),
    || json!({"accessModes": ["ReadOnlyMany", "ReadWriteMany"]}),
    || json!({"accessModes": ["ReadWriteOncePod"]}),
    || json!({"volumeAttributesClassName": "gold"}),
    || json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "origin"}}),
    || {
        json!({"dataSource": {
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"}})
    },
    || json!({"dataSourceRef": {"apiGroup": "example.com", "kind": "Book", "name": "b"}}),
];

/// The kinds that no provisioner serves: the last of [`KINDS`].
const UNSERVED_KINDS: usize = 1;

/// How many claims are created.
fn number_of_claims() -> usize {
    env::var("SHADOW_CLAIMS").map_or(3 * KINDS.len(), |text| text.parse().unwrap())
}

/// What claims refer to.
fn surroundings() -> Vec<Value> {
    let snapshots = "snapshot.storage.k8s.io/v1";
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {ZONE: "a"}}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "n", "topologyKeys": [ZONE]}]}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "s", "namespace": NAMESPACE}, "stringData": {"key": "password"}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": "gold"}, "driverName": DRIVER, "parameters": {"tier": "gold"}}),
        class("plain", &json!({})),
        class("kept", &json!({"reclaimPolicy": "Retain"})),
        class(
            "zones",
            &json!({"allowedTopologies": [
                {"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]}),
        ),
        class(
            "full",
            &json!({
                "mountOptions": ["noatime"],
                "parameters": {
                    "csi.storage.k8s.io/fstype": "xfs",
                    "csi.storage.k8s.io/provisioner-secret-name": "s",
                    "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
                    "csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}",
                    "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
                    "csi.storage.k8s.io/controller-expand-secret-name": "s",
                    "csi.storage.k8s.io/controller-expand-secret-namespace": NAMESPACE,
                    "pool": "p",
                },
            }),
        ),
        json!({"apiVersion": snapshots, "kind": "VolumeSnapshot",
            "metadata": {"name": "snap", "namespace": NAMESPACE},
            "spec": {"source": {"persistentVolumeClaimName": "origin"}}}),
    ]
}

fn script() -> Script {
    let volume = json!({"volume_context": {"a": "b"}, "accessible_topology": [{ZONE: "a"}]});
    let script = json!({
        "name": DRIVER,
        "plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"],
        "controller_capabilities": [
            "CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT", "CLONE_VOLUME", "MODIFY_VOLUME",
            "SINGLE_NODE_MULTI_WRITER"],
        "create_volume": [{"volume": volume}],
    });
    serde_json::from_value(script).unwrap()
}

/// A cluster with a provisioner, and shadow mode beside it.
struct Cluster {
    client: Client,
    provisioner: Provisioner,
    shadow: Provisioner,
    /// `--status-endpoint` of shadow mode.
    status: String,
    control: ControlPlane,
    _driver: Host<Scripted>,
    _controllers: Controllers,
    _directory: TemporaryDirectory,
}

impl Cluster {
    async fn start() -> Self {
        let (directory, control) =
            (TemporaryDirectory::new().unwrap(), ControlPlane::start().await.unwrap());
        let client = control.client("admin").await.unwrap();
        let role = manifests::parse(MANIFEST).unwrap();
        let role = role.into_iter().filter(|it| it["apiVersion"] != "apps/v1");
        let objects: Vec<Value> = surroundings().into_iter().chain(role).collect();
        manifests::apply(&client, &objects).await.unwrap();
        let controllers = control.controllers().await.unwrap();
        let driver = Host::new(Scripted::new(script()));
        let socket = directory.path().join("csi.sock");
        driver.listen(&socket).unwrap();

        // Its kubeconfig is written with the account.
        control.account("default", "csi-provisioner-shadow").await.unwrap();
        let flags = |user: &str| {
            let kubeconfig = control.layout().kubeconfig(user);
            vec![format!("--kubeconfig={}", kubeconfig.display()), "--extra-create-metadata".into()]
        };
        let status = format!("127.0.0.1:{}", free_port().unwrap());
        let Description { plugin, controller, .. } = driver.backend().description();
        let shadow = [
            "shadow".to_owned(),
            format!("--driver={DRIVER}"),
            format!("--capabilities={}", [plugin, controller].concat().join(",")),
            format!("--status-endpoint={status}"),
        ];
        let mut program = Command::new(cli());
        program.args(shadow).args(flags("default.csi-provisioner-shadow")).env_clear();
        let mut shadow = Provisioner::run(&mut program, directory.path().join("shadow.log"));
        shadow.until("shadow mode is ready", async |_| report(&status).is_some()).await;
        let address = format!("--csi-address={}", socket.display());
        let rate = ["--kube-api-qps=500", "--kube-api-burst=1000"].map(str::to_owned);
        let flags = [flags("sa"), vec![address], rate.to_vec()].concat();
        let program = env::var_os("EXTERNAL_PROVISIONER").unwrap_or_else(|| SIDECAR.into());
        let mut program = Command::new(program);
        program.args(flags).env_clear();
        let provisioner = Provisioner::run(&mut program, directory.path().join("provisioner.log"));
        Self {
            client,
            provisioner,
            shadow,
            status,
            control,
            _driver: driver,
            _controllers: controllers,
            _directory: directory,
        }
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn create_claim(&self, name: &str, spec: &Value) {
        let mut claim = json!({
            "metadata": {"name": name, "labels": {"app": name}, "annotations": {"note": "n"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "plain",
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        for (field, value) in spec.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        let claim = serde_json::from_value(claim).unwrap();
        self.claims().create(&<_>::default(), &claim).await.unwrap();
    }

    /// Makes the snapshot `snap` ready, with its content.
    async fn finish_snapshot(&self) {
        let kind = |kind| GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind);
        let snapshots: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            &ApiResource::from_gvk(&kind("VolumeSnapshot")),
        );
        let contents: Api<DynamicObject> = Api::all_with(
            self.client.clone(),
            &ApiResource::from_gvk(&kind("VolumeSnapshotContent")),
        );
        let snapshot = snapshots.get("snap").await.unwrap();
        let content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": "content"},
            "spec": {"driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandle": "o"},
                "volumeSnapshotRef": {
                    "namespace": NAMESPACE, "name": "snap", "uid": snapshot.metadata.uid}},
        });
        let content = serde_json::from_value(content).unwrap();
        contents.create(&<_>::default(), &content).await.unwrap();
        let patch = |status: Value| Patch::Merge(json!({"status": status}));
        let status = patch(json!({"snapshotHandle": "h", "readyToUse": true}));
        contents.patch_status("content", &<_>::default(), &status).await.unwrap();
        let status = patch(json!({"boundVolumeSnapshotContentName": "content",
            "readyToUse": true, "restoreSize": "1Gi"}));
        snapshots.patch_status("snap", &<_>::default(), &status).await.unwrap();
    }

    /// Waits until shadow mode has so many results about `subject`.
    async fn compared(&self, subject: Subject, count: u64) {
        let report = || report(&self.status).unwrap_or_else(|| panic!("{}", self.shadow.log()));
        let are_all = async || {
            let totals = report().totals;
            let of_subject = totals.iter().filter(|total| total.subject == subject);
            let found: u64 = of_subject.map(|total| total.count).sum();
            (found >= count).then_some(())
        };
        let compared = until(PATIENCE, Duration::from_millis(200), are_all).await;
        let words = subject.words();
        assert!(
            compared.is_some(),
            "{count} {words}:\n{}\n{}",
            report().to_text(),
            self.provisioner.log()
        );
    }

    async fn volumes(&self) -> Vec<PersistentVolume> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.list(&ListParams::default()).await.unwrap().items
    }

    /// The requests of shadow mode by verb.
    fn requests(&self) -> BTreeMap<String, usize> {
        let Some(audit) = self.control.audit() else { return BTreeMap::new() };
        let user = "system:serviceaccount:default:csi-provisioner-shadow";
        let mut verbs = BTreeMap::new();
        for line in fs::read_to_string(audit).unwrap().lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            if line["user"]["username"] == user {
                *verbs.entry(line["verb"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        verbs
    }
}

/// The program with shadow mode and the report.
fn cli() -> PathBuf {
    beside(SIDECAR, "kubectl-csi_provisioner")
}

/// What shadow mode has found, by `kubectl csi-provisioner shadow-report`; `None` while it does not answer.
fn report(status: &str) -> Option<ShadowReport> {
    let mut command = Command::new(cli());
    let output = command
        .args(["shadow-report", "-o", "json", "--status-endpoint", status])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_all_kinds_is_the_same_and_nothing_is_written() {
    let mut cluster = Cluster::start().await;
    cluster.create_claim("origin", &json!({})).await;
    cluster.finish_snapshot().await;
    cluster.compared(Subject::Volume, 1).await;

    let claims = number_of_claims();
    let kinds = KINDS.len();
    for number in 0..claims {
        cluster.create_claim(&format!("claim-{number}"), &KINDS[number % kinds]()).await;
    }
    let unserved = (0..claims).filter(|number| number % kinds >= kinds - UNSERVED_KINDS).count();
    let served = u64::try_from(1 + claims - unserved).unwrap();
    cluster.compared(Subject::Volume, served).await;

    let is_deleted = |volume: &&PersistentVolume| {
        let spec = volume.spec.as_ref().unwrap();
        spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete")
    };
    let deletions = cluster.volumes().await.iter().filter(is_deleted).count();
    let all = ListParams::default();
    cluster.claims().delete_collection(&DeleteParams::default(), &all).await.unwrap();
    cluster.compared(Subject::Deletion, u64::try_from(deletions).unwrap()).await;

    let report = report(&cluster.status).unwrap();
    println!("{}", report.to_text());
    let others = [Agreement::Documented, Agreement::Unexplained, Agreement::Unknown];
    assert_eq!(others.map(|agreement| report.count(agreement)), [0; 3], "{}", report.to_text());
    let requests = cluster.requests();
    println!("requests of shadow mode: {requests:?}");
    let is_read = |verb: &String| ["get", "list", "watch"].contains(&verb.as_str());
    assert!(requests.keys().all(is_read), "{requests:?}");
    assert_eq!(requests.is_empty(), cluster.control.audit().is_none());
    assert!(cluster.provisioner.has_ended().is_none(), "{}", cluster.provisioner.log());
    let ended = cluster.shadow.stop().await;
    let log = cluster.shadow.log();
    assert!(ended.success() && log.contains("Shadow mode: nothing is written"), "{log}");
}
