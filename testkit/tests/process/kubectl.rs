//! Unmodified kubectl binaries against the served API server.
//!
//! Each test is played with every binary that `TESTKIT_KUBECTL` names, against the oldest and the newest release the
//! server plays; one goes through an object's life on a release of each sort.
//!
//! ```text
//! TESTKIT_KUBECTL="$(.ci/kubectl target/kubectl)" cargo test -p testkit --test process kubectl::
//! ```

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::json;
use testkit::apiserver::{
    ApiServer,
    resources::ServerVersion,
    serve::{Served, Settings},
};
use tokio::{io::AsyncWriteExt as _, process::Command};

const PATIENCE: Duration = Duration::from_secs(60);

const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: default, labels: {app: a}}
spec: {accessModes: [ReadWriteOnce], storageClassName: rbd, resources: {requests: {storage: 1Gi}}}
";

const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: rbd}
provisioner: rbd.csi.ceph.com
";

const VOLUME: &str = "
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: rbd
  csi: {driver: rbd.csi.ceph.com, volumeHandle: h}
";

const EVENT: &str = "
apiVersion: v1
kind: Event
metadata: {name: claim.1, namespace: default}
involvedObject: {kind: PersistentVolumeClaim, name: claim, namespace: default, uid: UID}
type: Warning
reason: ProvisioningFailed
message: no space
count: 3
firstTimestamp: 2020-01-01T00:00:00Z
lastTimestamp: 2020-01-01T00:00:00Z
source: {component: test}
";

/// A kubectl binary, and a server of its own.
struct Bench {
    kubectl: PathBuf,
    served: Served,
    home: PathBuf,
}

impl Bench {
    async fn new(kubectl: &Path, minor: u8) -> Self {
        // The tests run side by side in one process: none may find another's server.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home = env::temp_dir().join(format!("testkit-kubectl-{}-{number}", process::id()));
        let settings = Settings { version: ServerVersion::minor(minor), ..Settings::new(&home) };
        let served = Served::start(settings).await.unwrap();
        Self { kubectl: kubectl.to_owned(), served, home }
    }

    fn command(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.served.layout().kubeconfig(user))
            .args(arguments)
            .env("HOME", &self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn output(&self, user: &str, arguments: &[&str], input: &str) -> Output {
        let run = async {
            let mut child = self.command(user, arguments).spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
            child.wait_with_output().await.unwrap()
        };
        tokio::time::timeout(PATIENCE, run)
            .await
            .unwrap_or_else(|_| panic!("{} {arguments:?} hangs", self.kubectl.display()))
    }

    /// What kubectl prints as the admin, with `input` on its standard input.
    async fn fed(&self, arguments: &[&str], input: &str) -> String {
        let output = self.output("admin", arguments, input).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {error}", self.kubectl.display());
        assert_eq!(error, "", "{} {arguments:?} warns", self.kubectl.display());
        String::from_utf8(output.stdout).unwrap()
    }

    async fn run(&self, arguments: &[&str]) -> String {
        self.fed(arguments, "").await
    }

    /// Waits until `condition` holds on the server.
    async fn until(&self, what: &str, condition: impl Fn(&ApiServer) -> bool) {
        let holds = async {
            while !condition(self.served.api()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, holds).await.unwrap_or_else(|_| panic!("never {what}"));
    }

    /// Waits until a watch on a resource has been asked for.
    async fn until_watched(&self, resource: &str) {
        self.until("watched", |server| server.requests().count("watch", resource) > 0).await;
    }

    /// What kubectl complains of.
    async fn fails(&self, user: &str, arguments: &[&str], input: &str) -> String {
        let output = self.output(user, arguments, input).await;
        assert!(!output.status.success(), "{arguments:?} should fail");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Every binary with a server of the oldest and the newest release.
async fn benches() -> Vec<Bench> {
    benches_of(&[20, 36]).await
}

/// Every binary with a server of each release.
async fn benches_of(releases: &[u8]) -> Vec<Bench> {
    let mut benches = Vec::new();
    for kubectl in testkit::kubectl::named() {
        for &minor in releases {
            benches.push(Bench::new(&kubectl, minor).await);
        }
    }
    benches
}

#[tokio::test]
async fn an_objects_life_is_the_same_on_every_release() {
    for bench in benches_of(&[20, 27, 31, 33, 36]).await {
        bench.fed(&["create", "-f", "-"], CLASS).await;
        assert_eq!(
            bench.fed(&["apply", "-f", "-"], CLAIM).await,
            "persistentvolumeclaim/claim created\n"
        );
        let patch = r#"{"metadata":{"labels":{"x":"1"}}}"#;
        bench.run(&["patch", "pvc", "claim", "-p", patch]).await;
        let named = bench.run(&["get", "pvc", "-l", "x=1", "-o", "name"]).await;
        assert_eq!(named, "persistentvolumeclaim/claim\n");
        let deleted = bench.run(&["delete", "pvc/claim", "sc/rbd"]).await;
        assert_eq!(deleted.lines().count(), 2, "{deleted}");
        assert_eq!(bench.served.api().count("PersistentVolumeClaim"), 0);
    }
}

#[tokio::test]
async fn describe_shows_an_object_with_its_events() {
    for bench in benches().await {
        bench.fed(&["create", "-f", "-"], &format!("{CLAIM}---{VOLUME}---{CLASS}")).await;
        let uid = bench.run(&["get", "pvc", "claim", "-o", "jsonpath={.metadata.uid}"]).await;
        bench.fed(&["create", "-f", "-"], &EVENT.replace("UID", &uid)).await;
        let claim = bench.run(&["describe", "pvc", "claim"]).await;
        assert!(claim.contains("StorageClass:  rbd"), "{claim}");
        assert!(claim.contains("ProvisioningFailed") && claim.contains("no space"), "{claim}");
        assert!(bench.run(&["describe", "pv", "pv"]).await.contains("VolumeHandle:      h"));
        assert!(bench.run(&["describe", "sc", "rbd"]).await.contains("rbd.csi.ceph.com"));
    }
}

#[tokio::test]
async fn apply_merges_on_the_client_side() {
    for bench in benches().await {
        let apply = ["apply", "-f", "-"];
        assert_eq!(bench.fed(&apply, CLAIM).await, "persistentvolumeclaim/claim created\n");
        assert_eq!(bench.fed(&apply, CLAIM).await, "persistentvolumeclaim/claim unchanged\n");
        let relabelled = CLAIM.replace("{app: a}", "{role: b}");
        assert_eq!(
            bench.fed(&apply, &relabelled).await,
            "persistentvolumeclaim/claim configured\n"
        );
        let labels = bench.run(&["get", "pvc", "claim", "-o", "jsonpath={.metadata.labels}"]).await;
        assert_eq!(labels, r#"{"role":"b"}"#);
        let snapshot = "
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: snap, namespace: default}
spec: {source: {persistentVolumeClaimName: claim}}
";
        assert!(bench.fed(&apply, snapshot).await.ends_with("/snap created\n"));
        assert!(bench.fed(&apply, snapshot).await.ends_with("/snap unchanged\n"));
    }
}

#[tokio::test]
async fn delete_waits_until_the_last_finalizer_is_gone() {
    for bench in benches().await {
        bench.fed(&["create", "-f", "-"], CLAIM).await;
        let finalizer = r#"{"metadata":{"finalizers":["example.com/a"]}}"#;
        bench.run(&["patch", "pvc", "claim", "--type", "merge", "-p", finalizer]).await;
        let mut deleting = bench.command("admin", &["delete", "pvc", "claim"]).spawn().unwrap();
        bench.until_watched("persistentvolumeclaims").await;
        let claim = bench.served.api().get("PersistentVolumeClaim", "default", "claim").unwrap();
        assert!(claim["metadata"]["deletionTimestamp"].is_string());
        assert!(deleting.try_wait().unwrap().is_none(), "did not wait");
        bench
            .run(&[
                "patch",
                "pvc",
                "claim",
                "--type",
                "merge",
                "-p",
                r#"{"metadata":{"finalizers":null}}"#,
            ])
            .await;
        let ended = tokio::time::timeout(PATIENCE, deleting.wait()).await.expect("delete hangs");
        assert!(ended.unwrap().success());
    }
}

#[tokio::test]
async fn wait_ends_when_a_condition_is_met() {
    for bench in benches().await {
        let server = bench.served.api();
        server.create(&json!({"kind": "Node", "metadata": {"name": "n"}})).unwrap();
        let arguments = ["wait", "node/n", "--for=condition=Ready", "--timeout=30s"];
        let mut waiting = bench.command("admin", &arguments).spawn().unwrap();
        bench.until_watched("nodes").await;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        server.merge("Node", "", "n", &ready).unwrap();
        let ended = tokio::time::timeout(PATIENCE, waiting.wait()).await.expect("wait hangs");
        assert!(ended.unwrap().success());
    }
}

#[tokio::test]
async fn what_the_roles_do_not_allow_is_refused_in_the_real_servers_words() {
    for bench in benches().await {
        let refused = bench.fails("ceph", &["get", "pods", "-n", "sc"], "").await;
        assert_eq!(
            refused,
            "Error from server (Forbidden): pods is forbidden: User \
             \"system:serviceaccount:default:ceph-csi-provisioner\" cannot list resource \"pods\" \
             in API group \"\" in the namespace \"sc\"\n"
        );
    }
}
