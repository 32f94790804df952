//! `kubectl csi-provisioner release-claims`, the real binary over HTTPS: what it lists, what it lets go, and
//! what it leaves alone.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::PathBuf, process::Command};

use serde_json::{Value, json};
use support::process::{Provisioner, Surroundings, beside};
use testkit::apiserver::{ApiServer, serve::manifests};

use crate::ran::{self, Ran};

const DRIVER: &str = "disk.example.com";
const OTHER_DRIVER: &str = "other.example.com";
const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";
const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";
const HEADINGS: &str = "NAMESPACE  CLAIM";
/// Where the Leases are: outside a pod nothing else says so.
const LEASES: &str = "--leader-election-namespace=default";

/// Runs `kubectl csi-provisioner release-claims`.
fn run(arguments: &[impl AsRef<OsStr>]) -> Ran {
    let arguments = arguments.iter().map(AsRef::as_ref);
    ran::run(&[OsStr::new("release-claims")].into_iter().chain(arguments).collect::<Vec<_>>(), "")
}

/// An API server, and a driver that goes on saying Aborted.
struct Cluster(Surroundings);

impl Cluster {
    async fn start() -> Self {
        let script = json!({"name": DRIVER, "create_volume": [{"error": {"code": "ABORTED"}}]});
        Self(Surroundings::start(script).await)
    }

    fn api(&self) -> &ApiServer {
        self.0.served.api()
    }

    /// Runs the subcommand beside the server, as the provisioner's user.
    async fn run(&self, arguments: &[&str]) -> Ran {
        let kubeconfig = self.0.served.layout().kubeconfig("sa");
        let all = [format!("--kubeconfig={}", kubeconfig.display())];
        let all: Vec<_> =
            all.into_iter().chain(arguments.iter().map(ToString::to_string)).collect();
        tokio::task::spawn_blocking(move || run(&all)).await.unwrap()
    }

    /// Starts the sidecar.
    fn sidecar(&self, log: &str) -> Provisioner {
        let kubeconfig = self.0.served.layout().kubeconfig("sa");
        let flags = self.0.flags(&kubeconfig, &["--leader-election", "--retry-interval-max=2s"]);
        Provisioner::start(sidecar().to_str().unwrap(), &flags, self.0.file(log))
    }

    /// Nothing was released, and the reason is printed for each claim of our driver.
    fn assert_all_stay(&self, ran: &Ran, why: &str) {
        assert_eq!(ran.code, 1);
        assert!(!ran.stdout.contains("released"), "{}", ran.stdout);
        let printed: Vec<_> = ran.stderr.lines().collect();
        assert_eq!(printed.len(), 2, "{}", ran.stderr);
        for (line, name) in printed.iter().zip(["alive", "deleted"]) {
            assert!(line.starts_with(&format!("default/{name}: ")) && line.contains(why), "{line}");
            assert!(self.is_marked(name));
        }
    }

    fn create(&self, object: &Value) {
        self.api().create(object).unwrap();
    }

    /// Creates the Lease of this name, in this namespace.
    fn create_lease(&self, namespace: &str, name: &str, holder: &str) {
        self.create(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            // Held if it has a holder: it does not say until when.
            "spec": {"holderIdentity": holder},
        }));
    }

    fn claim(&self, name: &str) -> Value {
        self.api().get("PersistentVolumeClaim", "default", name).unwrap()
    }

    fn is_marked(&self, name: &str) -> bool {
        let claim = self.claim(name);
        let has_finalizer = claim["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(FINALIZER)));
        let has_record = claim["metadata"]["annotations"].get(RECORD).is_some();
        assert_eq!(has_finalizer, has_record, "both or none: {claim}");
        has_finalizer
    }

    /// Takes from the service account `csi-provisioner` all rights but these rules.
    fn grant_only(&self, rules: &Value) {
        self.api().delete("ClusterRoleBinding", "", "provisioner-full").unwrap();
        let group = "rbac.authorization.k8s.io";
        let subject = "system:serviceaccount:default:csi-provisioner";
        self.create(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "few"}, "rules": rules,
        }));
        self.create(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "few"},
            "subjects": [{"kind": "User", "name": subject, "apiGroup": group}],
            "roleRef": {"kind": "ClusterRole", "name": "few", "apiGroup": group},
        }));
    }
}

fn claim(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "finalizers": ["kubernetes.io/pvc-protection"],
                     "annotations": {"volume.kubernetes.io/storage-provisioner": driver}},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A claim with the record of an open call of this driver.
fn marked(name: &str, driver: &str) -> Value {
    let mut claim = claim(name, driver);
    let record = json!({"driver": driver, "volume": format!("pvc-{name}")});
    claim["metadata"]["finalizers"] = json!([FINALIZER, "kubernetes.io/pvc-protection"]);
    claim["metadata"]["annotations"][RECORD] = json!(record.to_string());
    claim
}

/// Two marked claims of our driver, of which one is deleted, one of another, and one unmarked.
async fn some_claims() -> Cluster {
    let cluster = Cluster::start().await;
    for name in ["alive", "deleted"] {
        cluster.create(&marked(name, DRIVER));
    }
    cluster.create(&marked("foreign", OTHER_DRIVER));
    cluster.create(&claim("plain", DRIVER));
    cluster.api().delete("PersistentVolumeClaim", "default", "deleted").unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_marked_is_listed_and_nothing_is_written() {
    let cluster = some_claims().await;
    let before = cluster.api().revision();
    let ran = cluster.run(&[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let rows: Vec<Vec<_>> =
        ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(ran.stdout.starts_with(HEADINGS), "{}", ran.stdout);
    assert_eq!(rows[1], ["default", "alive", DRIVER, "pvc-alive", "-"]);
    assert_eq!(rows[2][..4], ["default", "deleted", DRIVER, "pvc-deleted"]);
    assert_ne!(rows[2][4], "-", "since when it is deleted");
    assert_eq!(rows[3][..3], ["default", "foreign", OTHER_DRIVER]);
    assert_eq!(
        ran.stdout.lines().nth(4),
        Some("Nothing was changed; --release takes finalizer and record off.")
    );
    assert_eq!(cluster.api().revision(), before);
    cluster.0.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_drivers_claims_are_released_and_nothing_else_is_touched() {
    let cluster = some_claims().await;
    let others = ["foreign", "plain"].map(|name| cluster.claim(name));
    let alive = cluster.claim("alive");
    cluster.create_lease("default", "disk-example-com", "");
    let ran = cluster.run(&["--release", "--driver", DRIVER, LEASES]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(
        ran.stdout.ends_with("default/alive released\ndefault/deleted released\n"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("foreign"), "{}", ran.stdout);
    for name in ["alive", "deleted"] {
        assert!(!cluster.is_marked(name));
        assert_eq!(
            cluster.claim(name)["metadata"]["finalizers"],
            json!(["kubernetes.io/pvc-protection"])
        );
    }
    assert_eq!(cluster.claim("alive")["spec"], alive["spec"]);
    assert_eq!(["foreign", "plain"].map(|name| cluster.claim(name)), others);

    let ran = cluster.run(&["--driver", DRIVER]).await;
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "No claim carries the record of an open call.\n")
    );
    cluster.0.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_it_says_which_are_missing_and_fails() {
    let cluster = some_claims().await;
    cluster.grant_only(&json!([]));
    let ran = cluster.run(&["--release"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("cannot list claims: "), "{}", ran.stderr);
    assert!(
        ran.stderr.contains(r#"cannot list resource "persistentvolumeclaims""#),
        "{}",
        ran.stderr
    );
    assert!(cluster.is_marked("alive"));
    cluster.0.stop().await;
}

/// What the Job in deploy/kubernetes may do.
fn rules_of_the_job() -> Value {
    let manifest = include_str!("../../../deploy/kubernetes/release-claims-job.yaml");
    let objects = manifests::parse(manifest).unwrap();
    let roles = objects.iter().filter_map(|object| object["rules"].as_array());
    Value::Array(roles.flatten().cloned().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_the_job_are_enough_and_each_is_needed() {
    let rules = rules_of_the_job();
    let release = ["--release", "--driver", DRIVER, LEASES];
    let verbs = [(0, "get"), (0, "list"), (0, "update"), (1, "get")];
    for (rule, verb) in verbs {
        let cluster = some_claims().await;
        let mut fewer = rules.clone();
        fewer[rule]["verbs"].as_array_mut().unwrap().retain(|it| it != verb);
        cluster.grant_only(&fewer);
        cluster.create_lease("default", "disk-example-com", "");
        assert_eq!(cluster.run(&release).await.code, 1, "without {verb} of {rule}");
        cluster.0.stop().await;
    }
    let granted = rules.as_array().unwrap().iter().map(|rule| rule["verbs"].as_array().unwrap());
    assert_eq!(granted.map(Vec::len).sum::<usize>(), verbs.len());
    let cluster = some_claims().await;
    cluster.grant_only(&rules);
    cluster.create_lease("default", "disk-example-com", "");
    let ran = cluster.run(&release).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(!cluster.is_marked("alive") && !cluster.is_marked("deleted"));
    cluster.0.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_right_to_list_alone_each_claim_is_reported_and_stays() {
    let cluster = some_claims().await;
    cluster.grant_only(&json!([{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list", "get"]}]));
    let leases = cluster.run(&["--release", "--driver", DRIVER, LEASES]).await;
    cluster.assert_all_stay(&leases, "cannot tell whether a replica leads");
    let writes = cluster.run(&["--release", "--force", "--driver", DRIVER]).await;
    cluster.assert_all_stay(&writes, r#"cannot update resource "persistentvolumeclaims""#);
    cluster.0.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_in_a_namespace_that_was_not_named_is_not_overlooked() {
    let cluster = some_claims().await;
    cluster.create_lease("kube-system", "disk-example-com", "pod-1");
    cluster.create_lease("default", "other-example-com", "");
    let release = ["--release", "--driver", DRIVER];
    let refused = cluster.run(&release).await;
    cluster.assert_all_stay(
        &refused,
        "cannot tell whether a replica leads (nothing says in which namespace its Lease is: give --leader-election-namespace); --force releases all the same",
    );
    // The other driver has its Lease there, and ours has none.
    let elsewhere = cluster.run(&[&release[..], &[LEASES]].concat()).await;
    let why = "cannot tell whether a replica leads (there is no Lease default/disk-example-com)";
    cluster.assert_all_stay(&elsewhere, why);
    let there = "--leader-election-namespace=kube-system";
    let printed = cluster.run(&[&release[..], &[there]].concat()).await;
    cluster.assert_all_stay(&printed, "pod-1 leads by the Lease kube-system/disk-example-com");

    let forced = cluster.run(&[&release[..], &["--force"]].concat()).await;
    assert_eq!((forced.code, forced.stderr.as_str()), (0, ""));
    assert!(!cluster.is_marked("alive") && !cluster.is_marked("deleted"));
    cluster.0.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_driver_nothing_names_is_released_by_force_alone() {
    let cluster = Cluster::start().await;
    cluster.create(&marked("nameless", ""));
    let refused = cluster.run(&["--release", LEASES]).await;
    assert_eq!(refused.code, 1);
    let why = "default/nameless: cannot tell whether a replica leads (neither the record nor the claim names a driver); --force releases all the same\n";
    assert_eq!(refused.stderr, why);
    assert!(cluster.is_marked("nameless"));

    let forced = cluster.run(&["--release", "--force"]).await;
    assert_eq!((forced.code, forced.stderr.as_str()), (0, ""));
    assert!(!cluster.is_marked("nameless"));
    cluster.0.stop().await;
}

/// The sidecar's binary.
fn sidecar() -> PathBuf {
    beside(env!("CARGO_BIN_EXE_kubectl-csi_provisioner"), "csi-provisioner")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaders_open_calls_stay_unless_forced_and_are_released_once_it_has_ended() {
    let cluster = Cluster::start().await;
    cluster.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": DRIVER,
    }));
    cluster.create(&claim("data", DRIVER));
    let mut leader = cluster.sidecar("leader.log");
    leader.until("the open call is marked", async |_| cluster.is_marked("data")).await;
    let lease = cluster.api().get("Lease", "default", "disk-example-com").unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();

    let refused = cluster.run(&["--release", LEASES]).await;
    assert_eq!(refused.code, 1);
    let why = format!(
        "default/data: {holder} leads by the Lease default/disk-example-com: scale the provisioner to 0 first, or use --force\n"
    );
    assert_eq!(refused.stderr, why);
    assert!(cluster.is_marked("data"));

    let forced = cluster.run(&["--release", "--force"]).await;
    assert_eq!((forced.code, forced.stderr.as_str()), (0, ""));
    leader.until("the leader marks its call anew", async |_| cluster.is_marked("data")).await;

    assert!(leader.stop().await.success());
    assert!(cluster.is_marked("data"), "the call is still open");
    let released = cluster.run(&["--release", LEASES]).await;
    assert_eq!((released.code, released.stderr.as_str()), (0, ""));
    assert!(!cluster.is_marked("data"));

    // Nothing is lost: the next process asks for the same volume.
    let driver = cluster.0.driver.backend();
    driver.amend(serde_json::from_value(json!({"create_volume": [{}]})).unwrap());
    let mut next = cluster.sidecar("next.log");
    let saved = async |_: &mut Provisioner| cluster.api().count("PersistentVolume") == 1;
    next.until("the volume is saved", saved).await;
    assert_eq!(driver.volumes().len(), 1);
    assert!(next.stop().await.success());
    cluster.0.stop().await;
}

#[test]
fn arguments_that_are_no_text_are_refused_as_others_are() {
    let wrong = run(&[OsStr::from_bytes(b"--driver=\xff")]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
    assert!(wrong.stderr.starts_with("error: "), "{}", wrong.stderr);
    // The first argument is looked at before it is known what is to be done.
    for (program, says) in [
        (sidecar(), "unknown flag: --nosuch"),
        (env!("CARGO_BIN_EXE_kubectl-csi_provisioner").into(), "unexpected argument '--nosuch"),
    ] {
        let mut program = Command::new(program);
        let first = program.env_clear().arg(OsStr::from_bytes(b"--nosuch\xff")).output().unwrap();
        let stderr = String::from_utf8(first.stderr).unwrap();
        assert_eq!(first.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
}
