//! `kubectl csi-provisioner check`, the real binary: manifests as operators and charts make them, first by
//! themselves, then with a cluster that has them.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::{Value, json};
use testkit::{apiserver::serve::manifests, control_plane::ControlPlane};

use crate::ran::{self, Ran};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check").join(name)
}

/// Runs `kubectl csi-provisioner check` with this on stdin.
fn run(arguments: &[&str], stdin: &str) -> Ran {
    ran::run(&[&["check"], arguments].concat(), stdin)
}

/// Runs the check of a fixture, with the other arguments.
fn check(name: &str, arguments: &[&str]) -> Ran {
    let file = fixture(name);
    run(&[&["-f", file.to_str().unwrap()], arguments].concat(), "")
}

/// The findings of all workloads in JSON, without what is only a note or in order.
fn urgent(ran: &Ran) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["exitCode"], ran.code);
    let workloads = report["workloads"].as_array().unwrap();
    let findings = workloads.iter().flat_map(|it| it["findings"].as_array().unwrap());
    let urgent = findings.filter(|it| !["ok", "note"].contains(&it["severity"].as_str().unwrap()));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    urgent.map(|it| (text(&it["severity"]), text(&it["subject"]))).collect()
}

const NO_SNAPSHOT_PATCH: (&str, &str) = ("to do", "lacks patch on volumesnapshots");

/// The severity and the subject of each urgent finding.
type Urgent = &'static [(&'static str, &'static str)];

/// Each fixture with its exit code, its Lease, and what there is to do.
const FIXTURES: [(&str, i32, Option<&str>, Urgent); 7] = [
    ("rook.yaml", 1, Some("rook-ceph/rook-ceph-rbd-csi-ceph-com"), &[NO_SNAPSHOT_PATCH]),
    ("csi-operator.yaml", 1, Some("rook-ceph/rook-ceph-cephfs-csi-ceph-com"), &[NO_SNAPSHOT_PATCH]),
    ("ceph-csi-helm.yaml", 0, Some("ceph-csi/rbd-csi-ceph-com"), &[]),
    (
        "ceph-csi-helm-3.11.yaml",
        1,
        Some("ceph-csi/rbd-csi-ceph-com"),
        &[("to do", "--feature-gates=Topology")],
    ),
    ("csi-driver-nfs.yaml", 1, Some("kube-system/nfs-csi-k8s-io"), &[NO_SNAPSHOT_PATCH]),
    ("csi-driver-host-path.yaml", 0, None, &[]),
    (
        "broken.yaml",
        2,
        None,
        &[
            ("to do", "--default-fstype"),
            ("to do", "--prevent-volume-mode-conversion"),
            ("to do", "--feature-gates=HonorPVReclaimPolicy"),
            ("fatal", "lacks get, create, update on leases"),
            ("fatal", "lacks list, watch on storageclasses"),
            ("to do", "lacks patch on persistentvolumes"),
            ("to do", "lacks watch on leases"),
            ("to do", "lock"),
            ("to do", "terminationGracePeriodSeconds: 10"),
        ],
    ),
];

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn manifests_of_operators_and_charts_by_their_own_roles() {
    for (name, code, lease, expected) in FIXTURES {
        let ran = check(name, &["-o", "json"]);
        assert_eq!((ran.code, urgent(&ran)), (code, owned(expected)), "{name}: {}", ran.stdout);
        let text = check(name, &[]);
        assert_eq!(text.code, code, "{name}");
        if let Some(lease) = lease {
            let line = format!("\nlease\n  ok         {lease}: ");
            assert!(text.stdout.contains(&line), "{name}: {}", text.stdout);
        }
    }
}

#[test]
fn a_missing_right_comes_with_the_rule_and_a_gate_with_its_releases() {
    let text = check("rook.yaml", &[]).stdout;
    for line in [
        "  note       --feature-gates=HonorPVReclaimPolicy=true: accepted with a warning: the reclaim policy is always honoured; external-provisioner knows it from v3.1 to v6.1, later releases end",
        "  to do      lacks patch on volumesnapshots: add to the ClusterRole\n             - {apiGroups: [\"snapshot.storage.k8s.io\"], resources: [\"volumesnapshots\"], verbs: [\"patch\"]}",
        "  note       client-side rate limit",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
}

#[test]
fn a_manifest_comes_from_stdin_too() {
    let manifest = std::fs::read_to_string(fixture("rook.yaml")).unwrap();
    assert_eq!(run(&["-f", "-"], &manifest).code, 1);
    // Only the Deployment: its roles are elsewhere.
    let deployment = manifest.split("\n---\n").last().unwrap();
    let ran = run(&["-f", "-", "-o", "json"], deployment);
    let account = "ServiceAccount rook-ceph/rook-csi-rbd-provisioner-sa";
    assert_eq!((ran.code, urgent(&ran)), (3, owned(&[("unchecked", account)])));
}

#[test]
fn what_cannot_be_read_is_exit_code_3() {
    for (arguments, stdin, why) in [
        (&["-f", "/nonexistent"][..], "", "cannot read /nonexistent"),
        (&["-f", "-"], "a: [", "not valid YAML at line 2"),
        (&["-f", "-"], "kind: ConfigMap", "no container in the manifest runs the provisioner"),
        (&[], "", "--filename"),
    ] {
        let ran = run(arguments, stdin);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{arguments:?}");
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

/// A cluster: kube-apiserver where the environment names one, else the one in memory.
struct Cluster {
    plane: ControlPlane,
    kubeconfig: String,
}

impl Cluster {
    async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let kubeconfig = plane.layout().kubeconfig("admin");
        Self { kubeconfig: format!("--kubeconfig={}", kubeconfig.display()), plane }
    }

    async fn apply(&self, objects: &[Value]) {
        let client = self.plane.client("admin").await.unwrap();
        manifests::apply(&client, objects).await.unwrap();
    }

    async fn apply_fixture(&self, name: &str) {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        self.apply(&manifests::parse(&text).unwrap()).await;
    }

    /// A warning about a claim.
    async fn warn(&self, claim: &str, message: &str) {
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.plane.client("admin").await.unwrap(), "default");
        let uid = claims.get(claim).await.unwrap().metadata.uid;
        let event = json!({"apiVersion": "v1", "kind": "Event", "type": "Warning",
            "metadata": {"name": "warning", "namespace": "default"}, "message": message,
            "reason": "ProvisioningFailed", "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "PersistentVolumeClaim", "namespace": "default",
                "name": claim, "uid": uid}});
        self.apply(&[event]).await;
    }

    async fn check(&self, name: &'static str, user: Option<&str>) -> Ran {
        let kubeconfig = match user {
            None => self.kubeconfig.clone(),
            Some(user) => {
                format!("--kubeconfig={}", self.plane.layout().kubeconfig(user).display())
            }
        };
        // The server answers while this thread waits for the process.
        tokio::task::spawn_blocking(move || check(name, &["-o", "json", &kubeconfig]))
            .await
            .unwrap()
    }
}

/// The cluster's authorizer and the roles of the manifest agree.
#[tokio::test(flavor = "multi_thread")]
async fn manifests_applied_to_a_cluster_by_its_authorizer() {
    let cluster = Cluster::start().await;
    for (name, code, _, expected) in FIXTURES {
        cluster.apply_fixture(name).await;
        let ran = cluster.check(name, None).await;
        assert_eq!((ran.code, urgent(&ran)), (code, owned(expected)), "{name}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_are_counted_by_reason() {
    let cluster = Cluster::start().await;
    let class = |name: &str, mode: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "nfs.csi.k8s.io", "volumeBindingMode": mode})
    };
    let claim = |name: &str, class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let objects = [
        class("now", "Immediate"),
        class("late", "WaitForFirstConsumer"),
        claim("a", "now"),
        claim("b", "now"),
        claim("c", "late"),
        claim("d", "another"),
    ];
    cluster.apply(&objects).await;
    cluster.apply_fixture("csi-driver-nfs.yaml").await;
    cluster.warn("b", "the export is full").await;
    let ran = cluster.check("csi-driver-nfs.yaml", None).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = report["workloads"][0]["findings"].as_array().unwrap();
    let claims = findings.iter().filter(|it| it["section"] == "claims");
    let claims: Vec<&Value> = claims.collect();
    let subjects: Vec<&str> = claims.iter().map(|it| it["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["1 in all", "2 in all", "default/c", "default/a", "default/b"]);
    assert_eq!(claims[3]["text"], "is being provisioned, or fails");
    assert_eq!(claims[4]["text"], "the export is full");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_ask_for_others_is_reported() {
    let cluster = Cluster::start().await;
    let ran = cluster.check("rook.yaml", Some("sa")).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stdout.contains("a user who may create subjectaccessreviews"), "{}", ran.stdout);
}
