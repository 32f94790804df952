//! API server, driver and binder, in a directory that goes with them.
//!
//! Owns what stands around the program. Promises that the directory is removed when [`Cluster`] is
//! dropped, whatever ended the demo, and that nothing of it outlives the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde_json::Value;
use testkit::{
    apiserver::{
        ApiServer,
        serve::{
            ServeError, Served, Settings as ServerSettings,
            manifests::{self, ManifestError},
        },
    },
    binder,
    driver::{
        Host, Journal,
        disk::{self, DiskDriver},
    },
};
use tokio::task::JoinSet;

/// The driver's name, which the class names too.
const DRIVER: &str = "disk.example.com";

/// Class, secret and claim.
const OBJECTS: &str = include_str!("../objects.yaml");

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
}

/// What stands around the program.
pub struct Cluster {
    served: Served,
    driver: Host<DiskDriver>,
    client: Client,
    /// The binder.
    _tasks: JoinSet<()>,
    /// Last: what is in it is closed before it is removed.
    directory: Directory,
}

impl Cluster {
    /// A cluster with nothing in it, whose driver gives out `size` bytes (what the disk has, if
    /// `None`).
    ///
    /// # Errors
    /// Whatever is not to be had.
    pub async fn start(size: Option<i64>) -> Result<Self, ClusterError> {
        let directory = Directory::new()?;
        let served = Served::start(ServerSettings::new(directory.path())).await?;
        let client = client(&served.layout().kubeconfig("admin")).await?;
        let driver = driver(&directory, size)
            .map_err(|source| ClusterError::Directory { path: directory.path().into(), source })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(binder::run(client.clone(), binder::Settings::default()));
        Ok(Self { served, driver, client, _tasks: tasks, directory })
    }

    /// Creates class, secret and claim.
    ///
    /// # Errors
    /// What the API server refuses.
    pub async fn create_objects(&self) -> Result<(), ClusterError> {
        Ok(manifests::apply(&self.client, &objects()?).await?)
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
        Ok(self.driver.backend().volumes()?.into_iter().map(|volume| volume.id).collect())
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

fn driver(directory: &Directory, size: Option<i64>) -> io::Result<Host<DiskDriver>> {
    let settings = disk::Settings { name: DRIVER.to_owned(), root: directory.volumes(), size };
    let driver = Host::new(DiskDriver::open(settings)?);
    driver.listen(&directory.socket())?;
    Ok(driver)
}

async fn client(kubeconfig: &Path) -> Result<Client, ClusterError> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?)
}

// === Objects ===

fn objects() -> Result<Vec<Value>, ManifestError> {
    manifests::parse(OBJECTS)
}

/// What the claim's secret holds, to be compared with what the driver gets, and never shown.
///
/// # Errors
/// [`ManifestError::Malformed`], which a test of this module rules out.
pub fn secret_content() -> Result<BTreeMap<String, String>, ManifestError> {
    let object = objects()?.into_iter().find(|object| object.get("kind") == Some(&"Secret".into()));
    let secret: Secret = serde_json::from_value(object.unwrap_or_default())
        .map_err(|error| ManifestError::Malformed(error.to_string()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(secret.data.unwrap_or_default().into_iter().map(|(key, v)| (key, text(v.0))).collect())
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
    fn the_objects_are_a_class_of_the_driver_a_secret_with_content_and_a_claim() {
        let objects = objects().unwrap();
        let kinds: Vec<&str> = objects.iter().map(|o| o["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["StorageClass", "Secret", "PersistentVolumeClaim"]);
        assert_eq!(objects[0]["provisioner"], DRIVER);
        let keys: Vec<String> = secret_content().unwrap().into_keys().collect();
        assert_eq!(keys, ["password", "user"]);
    }

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
