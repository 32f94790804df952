//! The API server of a run, or of several in turn.
//!
//! Owns the choice: one in memory, etcd and kube-apiserver started from binaries, or somebody's by
//! kubeconfig; and what is known of the measured program's requests there. Promises that a server
//! which was started ends with this value. Leaves what stands in it to [`super::cluster`].

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::{
    error::LoadError,
    options::Options,
    requests::{Requests, Tally},
};
use crate::{
    apiserver::serve::{Served, Settings, layout::CLIENTS},
    control_plane::{ControlPlane, TemporaryDirectory},
};

/// The user of our own servers who makes and deletes claims.
const MAKER: &str = "admin";

/// The user of our own servers as whom the measured program asks.
const MEASURED: &str = "sa";

/// The namespace of the claims on a server of our own.
const NAMESPACE: &str = "load";

/// An API server, and how it is reached.
pub(super) struct Server {
    /// The kubeconfig of the user that creates claims.
    maker: PathBuf,
    /// The measured program's kubeconfig.
    pub(super) measured: PathBuf,
    /// The namespace for claims.
    pub(super) namespace: String,
    backing: Backing,
}

/// What stands behind it.
enum Backing {
    Embedded(Box<Served>, Arc<Tally>, #[allow(dead_code)] TemporaryDirectory), // the directory goes last
    Binaries(Box<ControlPlane>),
    Somebodys,
}

impl Server {
    /// The server that the options name.
    pub(super) async fn open(options: &Options) -> Result<Self, LoadError> {
        if let Some((kubeconfig, namespace)) =
            options.kubeconfig.clone().zip(options.namespace.clone())
        {
            let (maker, measured) = (kubeconfig.clone(), kubeconfig);
            return Ok(Self { maker, measured, namespace, backing: Backing::Somebodys });
        }
        match &options.assets {
            Some(assets) => Self::binaries(assets).await,
            None => Self::embedded().await,
        }
    }

    async fn embedded() -> Result<Self, LoadError> {
        let directory = TemporaryDirectory::new().map_err(LoadError::Directory)?;
        let tally = Arc::new(Tally::default());
        let settings = Settings { readers: vec![tally.clone()], ..Settings::new(directory.path()) };
        let served = Served::start(settings).await?;
        served.api().namespace(NAMESPACE);
        Ok(Self {
            maker: served.layout().kubeconfig(MAKER),
            measured: served.layout().kubeconfig(MEASURED),
            namespace: NAMESPACE.to_owned(),
            backing: Backing::Embedded(Box::new(served), tally, directory),
        })
    }

    async fn binaries(assets: &Path) -> Result<Self, LoadError> {
        let plane = ControlPlane::of_binaries(assets).await?;
        let server = Self {
            maker: plane.layout().kubeconfig(MAKER),
            measured: plane.layout().kubeconfig(MEASURED),
            namespace: NAMESPACE.to_owned(),
            backing: Backing::Binaries(Box::new(plane)),
        };
        let namespaces: Api<Namespace> = Api::all(server.client().await?);
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        Ok(server)
    }

    /// A client of the user that creates claims.
    pub(super) async fn client(&self) -> Result<Client, LoadError> {
        Self::client_of(&self.maker).await
    }

    /// A client of the measured program's user, with the same rights and the same priority.
    pub(super) async fn measured_client(&self) -> Result<Client, LoadError> {
        Self::client_of(&self.measured).await
    }

    async fn client_of(kubeconfig: &Path) -> Result<Client, LoadError> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        Ok(Client::try_from(config)?)
    }

    /// The server in memory, where it is that one.
    pub(super) fn in_memory(&self) -> Option<&Served> {
        match &self.backing {
            Backing::Embedded(served, ..) => Some(served),
            Backing::Binaries(_) | Backing::Somebodys => None,
        }
    }

    /// Whether it ends with the run, and all that stands in it.
    pub(super) fn is_ours(&self) -> bool {
        !matches!(self.backing, Backing::Somebodys)
    }

    /// Its version, with where it comes from if it is ours.
    pub(super) async fn version(&self) -> Result<String, LoadError> {
        let version = self.client().await?.apiserver_version().await?.git_version;
        Ok(match self.backing {
            Backing::Embedded(..) => format!("{version} (embedded)"),
            Backing::Binaries(_) => format!("{version} (started)"),
            Backing::Somebodys => version,
        })
    }

    /// The requests of the measured program, if the server records them.
    pub(super) fn requests(&self) -> Result<Option<Requests>, LoadError> {
        let client = CLIENTS.iter().find(|client| client.kubeconfig == MEASURED);
        let Some(user) = client.map(|client| client.user().name) else { return Ok(None) };
        match &self.backing {
            Backing::Embedded(_, tally, _) => Ok(Some(tally.requests(&user))),
            Backing::Binaries(plane) => plane
                .audit()
                .map(|log| audited(log, &user))
                .transpose()
                .map_err(LoadError::AuditLog),
            Backing::Somebodys => Ok(None),
        }
    }
}

/// The user's requests that stand in an audit log.
fn audited(log: &Path, user: &str) -> io::Result<Requests> {
    Requests::in_audit_log(BufReader::new(File::open(log)?), user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_asked_counts_also_when_the_record_has_forgotten_it() {
        let server = Server::embedded().await.unwrap();
        server.measured_client().await.unwrap().apiserver_version().await.unwrap();
        server.in_memory().unwrap().api().requests().clear();
        let requests = server.requests().unwrap().unwrap();
        assert_eq!(requests.calls, [("get /version".to_owned(), 1)].into());
        assert!(requests.bytes_read.is_some_and(|bytes| bytes > 0));
    }
}
