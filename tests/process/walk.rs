//! README.md's walk without a cluster, without kubectl: the real binary over TLS and a unix socket,
//! the driver that keeps volumes on disk, the binder, and the example claim. What the README passes
//! to each is taken from its text, so that the text stays true. And commands of README.md and deploy/README.md
//! that name what ceph-csi has.

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

/// The commands of the documents.
fn commands() -> impl Iterator<Item = &'static str> {
    [README, DEPLOYING].into_iter().flat_map(str::lines).filter_map(|l| l.trim().strip_prefix("$ "))
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
