//! README.md's walk without a cluster, without kubectl: the real binary over TLS and a unix socket,
//! the driver that keeps volumes on disk, the binder, and the example claim. What the README passes
//! to each is taken from its text, so that the text stays true. And a list of all commands that
//! README.md and the pages for admins give, with what tries them; and that it leads to every page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use csi_provisioner::leader::lease_name;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client};
use serde_json::json;
use support::process::Provisioner;
use testkit::{
    apiserver::serve::{Served, Settings, manifests},
    binder,
    control_plane::{TemporaryDirectory, client_of},
    driver::{Host, disk},
};
use tokio::task::JoinSet;

const README: &str = include_str!("../../README.md");
const DEPLOYING: &str = include_str!("../../deploy/README.md");

/// The directory that the README plays in.
const CLUSTER: &str = "/tmp/cluster";

/// The arguments that the README gives `command`, in `directory`.
fn arguments(command: &str, directory: &Path) -> Vec<String> {
    let found = README.lines().find_map(|line| line.strip_prefix("$ ")?.strip_prefix(command));
    let found = found.unwrap_or_else(|| panic!("README.md does not run {command:?}"));
    let here = |word: &str| word.replace(CLUSTER, directory.to_str().unwrap());
    found.trim_end_matches('&').split_whitespace().map(here).collect()
}

/// The word that follows `flag`.
fn value(words: &[String], flag: &str) -> String {
    let mut after = words.iter().skip_while(|word| *word != flag).skip(1);
    after.next().unwrap_or_else(|| panic!("no {flag} in {words:?}")).clone()
}

/// What the program needs, started with what the README says.
struct Setup {
    served: Served,
    driver: Host<disk::DiskDriver>,
    client: Client,
    /// Where the driver keeps its volumes.
    root: PathBuf,
    /// The binder.
    _tasks: JoinSet<()>,
}

impl Setup {
    async fn start(directory: &Path) -> Self {
        let serve = arguments("target/debug/testkit serve", directory);
        let served = Served::start(Settings::new(value(&serve, "--dir"))).await.unwrap();
        let driver = arguments("target/debug/testkit driver", directory);
        let (name, root) = (value(&driver, "--name"), PathBuf::from(value(&driver, "--root")));
        let settings = disk::Settings { name, root: root.clone() };
        let host = Host::new(disk::DiskDriver::open(settings).unwrap());
        host.listen(Path::new(&value(&driver, "--socket"))).unwrap();
        let binder = arguments("target/debug/testkit binder", directory);
        let client = client_of(Path::new(&value(&binder, "--kubeconfig"))).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(binder::run(client.clone(), binder::Settings::default()));
        Self { served, driver: host, client, root, _tasks: tasks }
    }

    /// Applies the file that the README names.
    async fn apply_example(&self, directory: &Path) {
        let example = value(&arguments("kubectl", directory), "-f");
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(example));
        manifests::apply(&self.client, &manifests::parse(&text.unwrap()).unwrap()).await.unwrap();
    }

    /// The volumes on disk.
    fn volumes_on_disk(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    async fn volumes(&self) -> Vec<PersistentVolume> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.list(&<_>::default()).await.unwrap().items
    }

    async fn has_event(&self, reason: &str) -> bool {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let events = events.list(&<_>::default()).await.unwrap().items;
        events.iter().any(|event| event.reason.as_deref() == Some(reason))
    }

    async fn stop(self) {
        self.driver.stop();
        self.served.stop().await;
    }
}

#[tokio::test]
async fn the_walk_of_the_readme_ends_with_nothing_left() {
    let directory = TemporaryDirectory::new().unwrap();
    let setup = Setup::start(directory.path()).await;
    let flags = arguments("target/debug/csi-provisioner", directory.path());
    let mut provisioner = Provisioner::start(
        env!("CARGO_BIN_EXE_csi-provisioner"),
        &flags,
        directory.path().join("provisioner.log"),
    );

    setup.apply_example(directory.path()).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(setup.client.clone());
    provisioner
        .until("the claim is bound", async |_| {
            let claim = claims.get("data").await.unwrap();
            claim.status.and_then(|status| status.phase).as_deref() == Some("Bound")
        })
        .await;
    let volume = setup.volumes().await.remove(0);
    let handle = volume.spec.unwrap().csi.unwrap().volume_handle;
    assert_eq!(setup.volumes_on_disk(), [setup.root.join(handle)]);
    provisioner
        .until("success is reported", async |_| setup.has_event("ProvisioningSucceeded").await)
        .await;

    claims.delete("data", &<_>::default()).await.unwrap();
    provisioner.until("the volume is gone", async |_| setup.volumes().await.is_empty()).await;
    assert_eq!(setup.volumes_on_disk(), Vec::<PathBuf>::new());
    assert!(provisioner.stop().await.success());
    setup.stop().await;
}

// === All pages ===

#[test]
fn the_readme_leads_to_every_page_and_nowhere_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = README.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let links: Vec<_> = links.filter(|link| !link.is_empty() && !link.contains("://")).collect();
    for link in &links {
        assert!(root.join(link).exists(), "README.md leads to {link}, which is not there");
    }
    let pages = fs::read_dir(root.join("docs")).unwrap().map(Result::unwrap);
    for page in pages.filter(|page| page.file_type().unwrap().is_file()) {
        let page = format!("docs/{}", page.file_name().to_str().unwrap());
        assert!(links.contains(&page.as_str()), "README.md does not lead to {page}");
    }
}

/// The links of the pages about a switch: there is no other test of them.
#[test]
fn the_pages_about_a_switch_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    for path in ["migration.md", "cli.md"].map(|page| root.join(page)) {
        let page = fs::read_to_string(&path).unwrap();
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { path.clone() } else { root.join(file) };
            let target = fs::read_to_string(file).unwrap();
            let heading = |line: &str| line.to_lowercase().replace(' ', "-").ends_with(anchor);
            let found = anchor.is_empty()
                || target.lines().any(|line| line.starts_with('#') && heading(line));
            assert!(found, "{}: {link}", path.display());
        }
    }
}

// === All commands ===

/// What tries a command of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// The walk above; `.ci/walk` runs it word for word, with kubectl.
    Walk,
    /// `.ci/run`.
    Ci,
    /// Tests of the demo.
    Demo,
    /// `tests/docs/kustomize.rs`, which lays manifests beside the overlays as these commands do.
    Kustomize,
    /// Needs a cluster or a container runtime: what it names is compared with the program's own
    /// names below, or in `tests/docs/deployment.rs`.
    Names,
}

/// How each command begins, and what tries it.
const TRIALS: [(&str, Trial); 26] = [
    ("cargo build --release", Trial::Ci),
    ("cargo build --workspace", Trial::Walk),
    ("cargo test --workspace", Trial::Ci),
    ("cargo run -p demo", Trial::Demo),
    ("target/debug/testkit serve --dir /tmp/cluster", Trial::Walk),
    ("target/debug/testkit driver ", Trial::Walk),
    ("target/debug/testkit binder ", Trial::Walk),
    ("target/debug/csi-provisioner ", Trial::Walk),
    ("kubectl --kubeconfig /tmp/cluster/admin.kubeconfig ", Trial::Walk),
    ("ls /tmp/cluster/volumes", Trial::Walk),
    ("sleep 2", Trial::Walk),
    ("kill $(jobs -p)", Trial::Walk),
    ("(cd deploy/ceph-csi/rbd && kustomize edit set image ", Trial::Names),
    ("cp $CEPH_CSI/deploy/rbd/kubernetes/", Trial::Kustomize),
    ("kubectl diff -k deploy/ceph-csi/rbd", Trial::Kustomize),
    ("kubectl apply -k deploy/ceph-csi/rbd", Trial::Kustomize),
    ("kubectl apply -f deploy/kubernetes/release-claims-job.yaml", Trial::Names),
    ("kubectl delete -f deploy/kubernetes/release-claims-job.yaml", Trial::Names),
    ("kubectl apply -f deploy/monitoring/", Trial::Names),
    ("kubectl --namespace NS ", Trial::Names),
    ("kubectl csi-provisioner release-claims ", Trial::Names),
    ("kubectl get ", Trial::Names),
    ("kubectl logs --selector ", Trial::Names),
    ("docker ", Trial::Names),
    (".ci/release", Trial::Ci),
    ("skopeo ", Trial::Names),
];

fn commands() -> impl Iterator<Item = &'static str> {
    [README, DEPLOYING].into_iter().flat_map(str::lines).filter_map(|l| l.trim().strip_prefix("$ "))
}

#[test]
fn every_command_of_the_documents_is_tried() {
    for command in commands() {
        let tried = TRIALS.iter().any(|(start, _)| command.starts_with(start));
        assert!(tried, "nothing tries {command:?}");
    }
    for (start, trial) in TRIALS {
        let given = commands().any(|command| command.starts_with(start));
        assert!(given, "no document says {start:?} any more ({trial:?})");
    }
}

#[test]
fn what_is_named_for_ceph_csi_is_what_is_there() {
    let fixture = include_str!("../fixtures/ceph-csi/csi-rbdplugin-provisioner.yaml");
    let objects = manifests::parse(fixture).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let name = deployment["metadata"]["name"].as_str().unwrap();
    let overlay = include_str!("../../deploy/ceph-csi/rbd/kustomization.yaml");
    assert_eq!(manifests::parse(overlay).unwrap()[0]["resources"], json!([format!("{name}.yaml")]));
    let image =
        manifests::parse(overlay).unwrap()[0]["images"][0]["name"].as_str().unwrap().to_owned();
    assert!(commands().any(|given| given.contains(&format!("set image {image}="))), "{image}");
    for command in [
        format!("cp $CEPH_CSI/deploy/rbd/kubernetes/{name}.yaml deploy/ceph-csi/rbd/"),
        format!(
            "kubectl logs --selector app={name} --container csi-provisioner --prefix --tail=-1"
        ),
        format!("kubectl get lease {}", lease_name("rbd.csi.ceph.com")),
    ] {
        assert!(commands().any(|given| given == command), "no document says {command:?}");
    }
}
