//! The API server that a scenario plays against, and what a run needs besides.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use kube::config::{
    AuthInfo, Cluster as KubeconfigCluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
    NamedCluster, NamedContext,
};

use crate::{apiserver::serve::layout::ADMIN_TOKEN, control_plane::ControlPlane, ports::free_port};

/// An API server with the port and the files of one run.
pub struct Cluster {
    /// Reaches it as an admin.
    pub(super) admin: kube::Client,
    /// Holds `NAME.kubeconfig` files for the processes.
    pub(super) directory: PathBuf,
    /// The port that the main process serves its metrics on.
    pub(super) http: u16,
    again: bool,
    /// Kept as long as the run lasts, such as a server that ends when dropped.
    _keep: Box<dyn Any + Send>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file or port cannot be had.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The API server's address or certificate makes no client.
    #[error("no client for {directory}: {source}")]
    Client {
        /// The directory with the certificate.
        directory: PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API server did not start.
    #[error("no API server: {0}")]
    Server(Box<dyn std::error::Error + Send + Sync>),
}

impl Cluster {
    /// The API server at `url` whose files are in `directory`: `pki/ca.crt`
    /// and the kubeconfigs. `keep` is held until the run ends.
    pub async fn at(
        directory: &Path,
        url: &str,
        keep: impl Any + Send,
    ) -> Result<Self, ClusterError> {
        let admin = admin(directory, url)
            .await
            .map_err(|source| ClusterError::Client { directory: directory.to_owned(), source })?;
        Ok(Self {
            admin,
            directory: directory.to_owned(),
            http: http()?,
            again: true,
            _keep: Box::new(keep),
        })
    }

    /// The API server that the environment asks for (`KUBEBUILDER_ASSETS`, `KUBECONFIG_E2E`), else
    /// an in-memory one; kept until the run ends.
    pub async fn of_environment() -> Result<Self, ClusterError> {
        let plane = ControlPlane::start().await;
        let plane = plane.map_err(|error| ClusterError::Server(error.into()))?;
        let admin = plane.client("admin").await;
        let admin = admin.map_err(|error| ClusterError::Server(error.into()))?;
        let directory = plane.layout().root().to_owned();
        let again = plane.embedded().is_none();
        Ok(Self { admin, directory, http: http()?, again, _keep: Box::new(plane) })
    }

    /// Whether another scenario may be played on it: on a real server, which takes seconds to start;
    /// an in-memory one is made anew each time.
    pub(super) fn serves_again(&self) -> bool {
        self.again
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A client with the admin's token.
async fn admin(directory: &Path, url: &str) -> Result<kube::Client, AnyError> {
    let name = || "admin".to_owned();
    let cluster = KubeconfigCluster {
        server: Some(url.to_owned()),
        certificate_authority: Some(directory.join("pki/ca.crt").display().to_string()),
        ..KubeconfigCluster::default()
    };
    let user = AuthInfo { token: Some(ADMIN_TOKEN.to_owned().into()), ..AuthInfo::default() };
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster {
            name: name(),
            cluster: Some(cluster),
            other: BTreeMap::default(),
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name(),
            auth_info: Some(user),
            other: BTreeMap::default(),
        }],
        contexts: vec![NamedContext {
            name: name(),
            context: Some(context),
            other: BTreeMap::default(),
        }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    };
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(kube::Client::try_from(config)?)
}

fn http() -> Result<u16, ClusterError> {
    free_port().map_err(|source| ClusterError::Io { what: "no free port".to_owned(), source })
}

// === Scratch ===

/// A directory of its own, gone with the value.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A new one under the system's directory for such.
    pub(super) fn new() -> Result<Self, ClusterError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: a socket's path may have no more than 107 bytes.
        let path = std::env::temp_dir().join(format!("play-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|source| ClusterError::Io {
            what: format!("cannot make {}", path.display()),
            source,
        })?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays under the system's directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
