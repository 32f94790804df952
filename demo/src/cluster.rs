//! API server, driver and binder, in a directory that goes with them.
//!
//! Owns what stands around the program. Promises that the directory is removed when [`Cluster`] is
//! dropped, whatever ended the demo, and that nothing of it outlives the process.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use testkit::{
    apiserver::{
        ApiServer,
        serve::{
            ServeError, Served, Settings,
            manifests::{self, ManifestError},
        },
        status::Status,
    },
    binder,
    driver::{
        Host, Journal,
        disk::{self, DiskDriver},
    },
};
use tokio::task::JoinSet;

use crate::driver::{Ability, Driver};

/// The driver's name, which the classes name too.
const DRIVER: &str = "disk.example.com";

/// The name of the claim in all files of `objects/`.
pub const CLAIM: &str = "data";

/// The name of the snapshot in `objects/snapshot.yaml`.
const SNAPSHOT: &str = "monday";

/// The node that the scheduler has chosen for a claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Why there is no cluster, or why it refuses something.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No directory, or no driver in it.
    #[error("can't use {path} (TMPDIR names another place): {source}")]
    Directory {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No API server.
    #[error(transparent)]
    Server(#[from] ServeError),
    /// The API server can't be reached.
    #[error("can't read the cluster's kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The API server can't be reached.
    #[error("can't reach the cluster: {0}")]
    Client(#[from] kube::Error),
    /// An object can't be created.
    #[error(transparent)]
    Objects(#[from] ManifestError),
    /// An object that must be there before the program starts can't be stored.
    #[error("can't store an object of the scenario: {0}")]
    Store(Status),
}

/// What stands around the program.
pub struct Cluster {
    served: Served,
    driver: Host<Driver>,
    client: Client,
    /// The binder.
    _tasks: JoinSet<()>,
    /// Last: what is in it is closed before it is removed.
    directory: Directory,
}

impl Cluster {
    /// A cluster with nothing in it.
    ///
    /// # Errors
    /// Whatever is not to be had.
    pub async fn start(ability: Ability) -> Result<Self, ClusterError> {
        let directory = Directory::new()?;
        let served = Served::start(Settings::new(directory.path())).await?;
        let client = client(&served.layout().kubeconfig("admin")).await?;
        let driver = driver(&directory, ability)
            .map_err(|source| ClusterError::Directory { path: directory.path().into(), source })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(binder::run(client.clone(), binder::Settings::default()));
        Ok(Self { served, driver, client, _tasks: tasks, directory })
    }

    /// Creates the objects of a manifest.
    ///
    /// # Errors
    /// What the API server refuses.
    pub async fn create(&self, manifest: &str) -> Result<(), ClusterError> {
        Ok(manifests::apply(&self.client, &manifests::parse(manifest)?).await?)
    }

    /// Stores the objects of a manifest with their status, as the controllers of a cluster would leave
    /// them.
    ///
    /// # Errors
    /// What can't be stored.
    pub fn prepare_objects(&self, manifest: &str) -> Result<(), ClusterError> {
        for object in manifests::parse(manifest)? {
            self.api().create(&object).map_err(ClusterError::Store)?;
        }
        self.api().list("VolumeSnapshot", "").iter().try_for_each(|it| self.bind_snapshot(it))
    }

    /// Writes a snapshot's UID into its content.
    fn bind_snapshot(&self, snapshot: &Value) -> Result<(), ClusterError> {
        let text = |pointer| snapshot.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let content = text("/status/boundVolumeSnapshotContentName");
        let bound = json!({"spec": {"volumeSnapshotRef": {"uid": text("/metadata/uid")}}});
        let merged = self.api().merge("VolumeSnapshotContent", "", content, &bound);
        merged.map(|_| ()).map_err(ClusterError::Store)
    }

    /// Deletes the claim.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn delete_claim(&self) -> kube::Result<()> {
        self.claims().delete(CLAIM, &<_>::default()).await.map(|_| ())
    }

    /// Deletes the snapshot.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn delete_snapshot(&self) -> kube::Result<()> {
        let snapshots =
            Api::<DynamicObject>::default_namespaced_with(self.client.clone(), &snapshots());
        snapshots.delete(SNAPSHOT, &<_>::default()).await.map(|_| ())
    }

    /// Chooses a node for the claim.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn choose_node(&self, node: &str) -> kube::Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
        self.claims().patch(CLAIM, &PatchParams::default(), &patch).await.map(|_| ())
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::default_namespaced(self.client.clone())
    }

    /// Cuts the driver's connections and running calls, and removes its socket.
    pub fn kill_driver(&self) {
        self.driver.stop();
    }

    /// Starts the driver again: it answers, on its socket.
    ///
    /// # Errors
    /// What the file system says.
    pub fn start_driver(&self) -> io::Result<()> {
        self.silence_driver(false);
        self.driver.listen(&self.socket())
    }

    /// Whether the driver makes volumes without an answer.
    pub fn silence_driver(&self, silent: bool) {
        self.driver.backend().silence(silent);
    }

    /// The API server, for faults.
    pub fn api(&self) -> &ApiServer {
        self.served.api()
    }

    /// Reaches it as an administrator.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The kubeconfig of `admin`, or of `sa`, the program's service account.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.served.layout().kubeconfig(user)
    }

    /// The driver's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.socket()
    }

    /// The file that the program's log goes to.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("program.log")
    }

    /// Where the driver keeps its volumes.
    pub fn volumes_directory(&self) -> PathBuf {
        self.directory.volumes()
    }

    /// The driver's log of its calls.
    pub fn journal(&self) -> &Journal {
        self.driver.journal()
    }

    /// What lies in the directory of the driver's volumes.
    ///
    /// # Errors
    /// What the file system says.
    pub fn files(&self) -> io::Result<Vec<String>> {
        names(&self.volumes_directory())
    }

    /// The driver's own list of its volumes.
    ///
    /// # Errors
    /// What the file system says.
    pub fn volumes_at_driver(&self) -> io::Result<Vec<String>> {
        Ok(self.driver.backend().disk().volumes()?.into_iter().map(|volume| volume.id).collect())
    }

    /// Closes everything.
    pub async fn stop(self) {
        self.driver.stop();
        self.served.stop().await;
    }
}

/// The names of what lies in a directory, in order.
///
/// # Errors
/// What the file system says.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<BTreeSet<String>>>()?;
    Ok(names.into_iter().collect())
}

fn driver(directory: &Directory, ability: Ability) -> io::Result<Host<Driver>> {
    let root = directory.volumes();
    let settings = disk::Settings { name: DRIVER.to_owned(), root, size: None };
    let driver = Host::new(Driver::new(DiskDriver::open(settings)?, ability));
    driver.listen(&directory.socket())?;
    Ok(driver)
}

async fn client(kubeconfig: &Path) -> Result<Client, ClusterError> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?)
}

// === Objects ===

/// The kind VolumeSnapshot.
pub fn snapshots() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot"))
}

// === Directory ===

/// A new directory for this user alone, removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self, ClusterError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: a socket's path may have no more than 107 bytes.
        let path = env::temp_dir().join(format!("csi-demo-{}-{number}", process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(ClusterError::Directory { path, source }),
        }
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn socket(&self) -> PathBuf {
        self.0.join("csi.sock")
    }

    fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed stays under the system's directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_is_new_and_goes_with_its_value() {
        let (one, other) = (Directory::new().unwrap(), Directory::new().unwrap());
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.volumes()).unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }
}
