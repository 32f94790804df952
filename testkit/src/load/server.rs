//! The API server of a run: in memory, or etcd and kube-apiserver from binaries; and what is known of the measured
//! program's requests there. It ends with this value.

use std::{fs::File, io::BufReader, path::PathBuf};

use kube::Client;

use super::{LoadError, NAMESPACE, options::Options, requests::Requests};
use crate::{
    apiserver::serve::{Served, Settings, layout::CLIENTS},
    control_plane::{ControlPlane, TemporaryDirectory, client_of},
};

/// The user as whom the measured program asks.
const MEASURED: &str = "sa";

/// An API server, and how it is reached.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) measured: PathBuf,
    backing: Backing,
    pub(super) directory: TemporaryDirectory,
}

enum Backing {
    Embedded(Box<Served>),
    Binaries(Box<ControlPlane>),
}

impl Server {
    /// The server that the options name.
    pub(super) async fn open(options: &Options) -> Result<Self, LoadError> {
        let directory = TemporaryDirectory::new()?;
        let (layout, backing) = if let Some(assets) = &options.assets {
            let plane = ControlPlane::of_binaries(assets).await?;
            (plane.layout().clone(), Backing::Binaries(Box::new(plane)))
        } else {
            let served = Served::start(Settings::new(directory.path())).await?;
            (served.layout().clone(), Backing::Embedded(Box::new(served)))
        };
        let client = client_of(&layout.kubeconfig("admin")).await?;
        let measured = layout.kubeconfig(MEASURED);
        let server = Self { client, measured, backing, directory };
        let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        super::residents::create(&server, namespace).await?;
        Ok(server)
    }

    /// The server in memory, where it is that one.
    pub(super) fn in_memory(&self) -> Option<&Served> {
        match &self.backing {
            Backing::Embedded(served) => Some(served),
            Backing::Binaries(_) => None,
        }
    }

    /// Its version, with where it comes from.
    pub(super) async fn version(&self) -> Result<String, LoadError> {
        let version = self.client.apiserver_version().await?.git_version;
        let whose = if self.in_memory().is_some() { "embedded" } else { "started" };
        Ok(format!("{version} ({whose})"))
    }

    /// The requests of the measured program.
    pub(super) fn requests(&self) -> Result<Requests, LoadError> {
        let client = CLIENTS.iter().find(|client| client.kubeconfig == MEASURED);
        let user = client.map(|client| client.user().name).unwrap_or_default();
        match &self.backing {
            Backing::Embedded(served) => {
                Ok(Requests::recorded(&served.api().requests().all(), &user))
            }
            Backing::Binaries(plane) => {
                let log = plane.audit().ok_or("the API server writes no audit log")?;
                Ok(Requests::in_audit_log(BufReader::new(File::open(log)?), &user)?)
            }
        }
    }
}
