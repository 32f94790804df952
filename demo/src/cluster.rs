//! API server, driver and binder, in a directory of their own that goes with them, whatever ended the demo.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};
use testkit::{
    apiserver::serve::{Served, Settings, manifests},
    binder,
    control_plane::{TemporaryDirectory, client_of},
    driver::{
        Host,
        disk::{self, DiskDriver},
    },
};
use tokio::task::JoinSet;

use crate::{
    Failure,
    driver::{Ability, Driver},
};

/// The driver's name, which the classes name too.
const DRIVER: &str = "disk.example.com";

/// The node that the scheduler has chosen for a claim.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What stands around the program.
pub struct Cluster {
    served: Served,
    pub(crate) driver: Host<Driver>,
    /// Reaches the API server as an administrator.
    pub(crate) client: Client,
    _binder: JoinSet<()>,
    /// Last: what is in it is closed before it is removed.
    directory: TemporaryDirectory,
}

impl Cluster {
    /// A cluster with nothing in it.
    pub(crate) async fn start(ability: Ability) -> Result<Self, Failure> {
        let directory = TemporaryDirectory::new()?;
        let served = Served::start(Settings::new(directory.path())).await?;
        let client = client_of(&served.layout().kubeconfig("admin")).await?;
        let root = directory.path().join("volumes");
        let settings = disk::Settings { name: DRIVER.to_owned(), root };
        let driver = Host::new(Driver::new(DiskDriver::open(settings)?, ability));
        let mut binder = JoinSet::new();
        binder.spawn(binder::run(client.clone(), binder::Settings::default()));
        let cluster = Self { served, driver, client, _binder: binder, directory };
        cluster.driver.listen(&cluster.socket())?;
        Ok(cluster)
    }

    /// Creates the objects of a manifest.
    pub(crate) async fn create(&self, manifest: &str) -> Result<(), Failure> {
        manifests::apply(&self.client, &manifests::parse(manifest)?).await
    }

    /// Stores the objects of a manifest with their status, as the controllers of a cluster would leave them.
    pub(crate) fn prepare_objects(&self, manifest: &str) -> Result<(), Failure> {
        let api = self.served.api();
        for object in manifests::parse(manifest)? {
            api.create(&object).map_err(|status| status.to_string())?;
        }
        for snapshot in api.list("VolumeSnapshot", "") {
            // A snapshot's UID stands in its content.
            let text =
                |pointer| snapshot.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let content = text("/status/boundVolumeSnapshotContentName");
            let bound = json!({"spec": {"volumeSnapshotRef": {"uid": text("/metadata/uid")}}});
            let merged = api.merge("VolumeSnapshotContent", "", content, &bound);
            merged.map_err(|status| status.to_string())?;
        }
        Ok(())
    }

    /// Deletes the claim or the snapshot of `objects/`, as a user would.
    pub(crate) fn delete(&self, kind: &str, name: &str) -> Result<(), Failure> {
        let deleted = self.served.api().delete(kind, "default", name);
        Ok(deleted.map_err(|status| status.to_string())?)
    }

    /// Chooses a node for the claim.
    pub(crate) fn choose_node(&self, node: &str) -> Result<(), Failure> {
        let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
        let merged = self.served.api().merge("PersistentVolumeClaim", "default", "data", &patch);
        Ok(merged.map(drop).map_err(|status| status.to_string())?)
    }

    /// Starts the driver again: it answers, on its socket.
    pub(crate) fn start_driver(&self) -> io::Result<()> {
        self.driver.backend().silent.send_replace(false);
        self.driver.listen(&self.socket())
    }

    /// That of `admin`, or of `sa`, the program's service account.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.served.layout().kubeconfig(user)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("csi.sock")
    }

    /// The file that the program's log goes to.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("program.log")
    }

    /// The driver's directory.
    pub fn volumes_directory(&self) -> PathBuf {
        self.directory.path().join("volumes")
    }

    /// Compares the driver's own list of volumes with the PersistentVolumes; the closing sentence, or what is lost.
    pub(crate) async fn balance(&self, expected: usize) -> Result<String, Failure> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volumes = volumes.list(&ListParams::default()).await?;
        let handle = |volume: PersistentVolume| Some(volume.spec?.csi?.volume_handle);
        let known: BTreeSet<String> = volumes.into_iter().filter_map(handle).collect();
        let at_driver = self.driver.backend().disk.volumes()?.into_iter();
        let there: BTreeSet<String> = at_driver.map(|volume| volume.id).collect();
        let (driver, cluster) = (there.len(), known.len());
        let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
        let (forgotten, missing) = (joined(&there - &known), joined(&known - &there));
        let counted =
            format!("lost: volumes at the driver: {driver}, PersistentVolumes for them: {cluster}");
        if there == known && driver == expected {
            return Ok(format!("Nothing is {counted}."));
        }
        let names = format!("without a PersistentVolume: {forgotten}, without a volume: {missing}");
        Err(format!("Something is {counted}; volumes expected: {expected}, {names}.").into())
    }

    /// Closes everything.
    pub(crate) async fn stop(self) {
        self.driver.stop();
        self.served.stop().await;
    }
}

/// The names of what lies in a directory, in order.
pub(crate) fn names(directory: &Path) -> io::Result<BTreeSet<String>> {
    let names = fs::read_dir(directory)?;
    names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
