//! `kubectl apply -k`: what kustomize makes of the manifests that are shipped.
//!
//! Each test is played with every binary that `TESTKIT_KUBECTL` names. Where `CEPH_CSI` names a checkout of ceph-csi,
//! the overlays are tried on its manifests too.
//!
//! ```text
//! TESTKIT_KUBECTL="$(.ci/kubectl target/kubectl)" cargo test --test docs kustomize::
//! ```

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use testkit::{
    apiserver::serve::{Served, Settings, manifests},
    control_plane::TemporaryDirectory,
    kubectl,
};

use crate::here;

/// The image that the shipped manifests name.
const OURS: &str = concat!("registry.example.com/csi-provisioner:", env!("CARGO_PKG_VERSION"));

/// The image of the manifests in `tests/fixtures/ceph-csi`.
const THEIRS: &str = "registry.k8s.io/sig-storage/csi-provisioner:v5.0.1";

/// What ceph-csi's releases 2.1 to 3.12 call the image.
const NAMES: [&str; 4] = [
    THEIRS,
    "k8s.gcr.io/sig-storage/csi-provisioner:v3.1.0",
    "gcr.io/k8s-staging-sig-storage/csi-provisioner:canary",
    "quay.io/k8scsi/csi-provisioner:v1.6.0",
];

/// What a command prints.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A directory of its own, removed at the end.
struct Directory(TemporaryDirectory);

impl Directory {
    fn new() -> Self {
        Self(TemporaryDirectory::new().unwrap())
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }

    /// What `kubectl kustomize` prints for it.
    fn built(&self, kubectl: &Path) -> String {
        run(Command::new(kubectl).arg("kustomize").arg(self.0.path()))
    }
}

// === The overlays for ceph-csi ===

/// The lines in which two texts of as many lines differ.
fn changes<'a>(before: &'a str, after: &'a str) -> Vec<(&'a str, &'a str)> {
    assert_eq!(before.lines().count(), after.lines().count(), "{before}\n{after}");
    before.lines().zip(after.lines()).filter(|(old, new)| old != new).collect()
}

/// The overlay of `driver`.
fn overlay(driver: &str) -> String {
    fs::read_to_string(here(&format!("deploy/ceph-csi/{driver}/kustomization.yaml"))).unwrap()
}

/// What the overlay of `driver` changes in `manifest`, of what kustomize prints of it anyway.
fn changed_by_overlay(driver: &str, manifest: &str, kubectl: &Path) -> Vec<(String, String)> {
    let file = format!("csi-{driver}plugin-provisioner.yaml");
    let directory = Directory::new();
    directory.write(&file, manifest);
    directory.write("kustomization.yaml", &format!("resources: [{file}]\n"));
    let before = directory.built(kubectl);
    directory.write("kustomization.yaml", &overlay(driver));
    let after = directory.built(kubectl);
    let trimmed = |(old, new): (&str, &str)| (old.trim().to_owned(), new.trim().to_owned());
    changes(&before, &after).into_iter().map(trimmed).collect()
}

/// Manifests of `driver`: the fixture with each name of the image and, where there is a checkout
/// of ceph-csi, its own.
fn manifests_of(driver: &str) -> Vec<String> {
    let file = format!("csi-{driver}plugin-provisioner.yaml");
    let fixture = fs::read_to_string(here("tests/fixtures/ceph-csi").join(&file)).unwrap();
    let mut all: Vec<_> = NAMES.iter().map(|name| fixture.replace(THEIRS, name)).collect();
    if let Some(checkout) = env::var_os("CEPH_CSI").map(PathBuf::from) {
        let path = checkout.join(format!("deploy/{driver}/kubernetes")).join(file);
        all.push(fs::read_to_string(path).unwrap());
    }
    all
}

#[test]
fn an_overlay_changes_the_image_line_and_nothing_else() {
    for kubectl in kubectl::named() {
        for driver in ["rbd", "cephfs"] {
            for manifest in manifests_of(driver) {
                let line = manifest.lines().find(|line| line.contains("/csi-provisioner:"));
                let expected = (line.unwrap().trim().to_owned(), format!("image: {OURS}"));
                let changed = changed_by_overlay(driver, &manifest, &kubectl);
                assert_eq!(changed, [expected], "{driver} with {}", kubectl.display());
            }
        }
    }
}

// === deploy/kubernetes ===

#[test]
fn the_installation_is_all_its_objects_with_the_image_set() {
    for kubectl in kubectl::named() {
        let built = run(Command::new(&kubectl).arg("kustomize").arg(here("deploy/kubernetes")));
        let objects = manifests::parse(&built).unwrap();
        let kinds: BTreeSet<_> = objects.iter().map(|it| it["kind"].as_str().unwrap()).collect();
        let expected = [
            "ClusterRole",
            "ClusterRoleBinding",
            "Deployment",
            "PodDisruptionBudget",
            "Role",
            "RoleBinding",
            "ServiceAccount",
        ];
        assert_eq!((objects.len(), kinds), (expected.len(), expected.into()));
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], OURS);
    }
}

// More threads than one: the server answers while this one waits for kubectl.
#[tokio::test(flavor = "multi_thread")]
async fn the_installation_is_applied_whole_and_again_without_a_change() {
    for kubectl in kubectl::named() {
        let directory = Directory::new();
        let settings = Settings { port: 0, ..Settings::new(directory.0.path()) };
        let served = Served::start(settings).await.unwrap();
        let apply = || {
            let mut command = Command::new(&kubectl);
            let kubeconfig = served.layout().kubeconfig("admin");
            command.env("HOME", directory.0.path()).arg("--kubeconfig").arg(kubeconfig);
            run(command.args(["apply", "-k"]).arg(here("deploy/kubernetes")))
        };
        let (first, second) = (apply(), apply());
        assert_eq!(first.lines().filter(|line| line.ends_with(" created")).count(), 7, "{first}");
        // A kubectl that knows policy/v1 sends a budget's selector each time, since its patch strategy
        // is "replace", and calls that configured.
        let mut others = second.lines().filter(|line| !line.starts_with("poddisruptionbudget."));
        assert!(others.all(|line| line.ends_with(" unchanged")), "{second}");
        let api = served.api();
        let budget = api.get("PodDisruptionBudget", "default", "csi-provisioner").unwrap();
        assert_eq!(budget["metadata"]["generation"], 1);
        served.stop().await;
    }
}
