//! A Kubernetes API server for a test, whichever the environment offers: where `KUBEBUILDER_ASSETS` names a directory
//! with etcd and kube-apiserver, those are started; where `KUBECONFIG_E2E` names a kubeconfig, its cluster is used,
//! and keeps what tests create; otherwise the in-memory server is served over HTTPS. The directory ([`Layout`]) and
//! the objects ([`manifests`]) are the same in all three cases.

mod processes;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
/// A directory of its own, for this user alone, removed when dropped.
pub use tempfile::TempDir as TemporaryDirectory;
use tokio::task::JoinSet;

pub use self::processes::ControllerManager;
use self::processes::Processes;
use crate::{
    apiserver::serve::{
        Served, Settings,
        layout::{CLIENTS, Layout},
        manifests,
    },
    binder, until,
};

/// How long a real API server may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the service accounts' tokens of a cluster are valid: longer than any test run.
const TOKEN_SECONDS: i64 = 4 * 3600;

/// Which server stands behind a control plane.
#[derive(Debug)]
enum Backing {
    Embedded(Served),
    Binaries(Box<Processes>),
    Cluster(String),
}

/// Who binds claims on a control plane.
#[derive(Debug)]
pub enum Controllers {
    /// This crate's binder, which ends when this is dropped.
    Ours(JoinSet<()>),
    /// The cluster's own kube-controller-manager.
    Running,
    /// A kube-controller-manager that ends when this is dropped.
    Started(ControllerManager),
}

/// What the environment asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    Embedded,
    Binaries(PathBuf),
    Cluster(PathBuf),
}

impl Choice {
    /// Binaries before a cluster before our own server; empty variables count as unset.
    fn of(assets: Option<PathBuf>, kubeconfig: Option<PathBuf>) -> Self {
        let set = |path: &PathBuf| !path.as_os_str().is_empty();
        match (assets.filter(set), kubeconfig.filter(set)) {
            (Some(assets), _) => Self::Binaries(assets),
            (None, Some(kubeconfig)) => Self::Cluster(kubeconfig),
            (None, None) => Self::Embedded,
        }
    }
}

/// An API server with custom kinds, roles and users, ready for a test.
#[derive(Debug)]
pub struct ControlPlane {
    backing: Backing,
    layout: Layout,
    audit: PathBuf,
    // Last, so that the server has ended before its directory goes.
    _directory: TemporaryDirectory,
}

impl ControlPlane {
    /// Starts or finds the server that the environment asks for, and prepares it.
    pub async fn start() -> Result<Self, crate::Error> {
        let variable = |name| env::var_os(name).map(PathBuf::from);
        Self::of(Choice::of(variable("KUBEBUILDER_ASSETS"), variable("KUBECONFIG_E2E"))).await
    }

    /// Starts the in-memory server, whatever the environment says.
    pub async fn in_memory() -> Result<Self, crate::Error> {
        Self::of(Choice::Embedded).await
    }

    /// Starts etcd and kube-apiserver from the directory `assets`, and prepares them.
    pub async fn of_binaries(assets: &Path) -> Result<Self, crate::Error> {
        Self::of(Choice::Binaries(assets.to_owned())).await
    }

    async fn of(choice: Choice) -> Result<Self, crate::Error> {
        let directory = TemporaryDirectory::new()?;
        let layout = Layout::new(directory.path());
        let audit = directory.path().join("audit.log");
        let backing = match choice {
            Choice::Embedded => {
                let settings =
                    Settings { audit: Some(audit.clone()), ..Settings::new(directory.path()) };
                Backing::Embedded(Served::start(settings).await?)
            }
            Choice::Binaries(assets) => {
                Backing::Binaries(Box::new(Processes::start(&assets, &layout, &audit)?))
            }
            Choice::Cluster(kubeconfig) => Backing::Cluster(adopt(&kubeconfig, &layout).await?),
        };
        let plane = Self { backing, layout, audit, _directory: directory };
        plane.prepare().await?;
        Ok(plane)
    }

    /// The server's URL.
    pub fn url(&self) -> &str {
        match &self.backing {
            Backing::Embedded(served) => served.url(),
            Backing::Binaries(processes) => &processes.url,
            Backing::Cluster(url) => url,
        }
    }

    /// The directory with the authority and the kubeconfigs.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The audit log; `None` where the server is somebody else's.
    pub fn audit(&self) -> Option<&Path> {
        match self.backing {
            Backing::Cluster(_) => None,
            Backing::Embedded(_) | Backing::Binaries(_) => Some(&self.audit),
        }
    }

    /// The in-memory server, where it is that one.
    pub fn embedded(&self) -> Option<&Served> {
        match &self.backing {
            Backing::Embedded(served) => Some(served),
            Backing::Binaries(_) | Backing::Cluster(_) => None,
        }
    }

    /// A client of the user `admin`, `sa` or `ceph`.
    pub async fn client(&self, user: &str) -> Result<Client, crate::Error> {
        client_of(&self.layout.kubeconfig(user)).await
    }

    /// A client of a service account, which is made where it is missing.
    pub async fn account(&self, namespace: &str, name: &str) -> Result<Client, crate::Error> {
        let token = account_token(&self.client("admin").await?, namespace, name).await?;
        let authority = fs::read_to_string(self.layout.authority())?;
        let file = format!("{namespace}.{name}");
        self.layout.write_kubeconfig(&file, self.url(), &authority, &token)?;
        client_of(&self.layout.kubeconfig(&file)).await
    }

    /// What binds claims from now on.
    pub async fn controllers(&self) -> Result<Controllers, crate::Error> {
        let started = match &self.backing {
            Backing::Cluster(_) => return Ok(Controllers::Running),
            Backing::Binaries(processes) => processes.start_controllers(&self.layout)?,
            Backing::Embedded(_) => None,
        };
        if let Some(manager) = started {
            return Ok(Controllers::Started(manager));
        }
        let settings = binder::Settings { protection: true, ..binder::Settings::default() };
        let mut ours = JoinSet::new();
        ours.spawn(binder::run(self.client("admin").await?, settings));
        Ok(Controllers::Ours(ours))
    }

    async fn prepare(&self) -> Result<(), crate::Error> {
        if matches!(self.backing, Backing::Embedded(_)) {
            return Ok(()); // `Served` has prepared itself
        }
        let client = self.client("admin").await?;
        ready(&client, self.url()).await?;
        manifests::apply(&client, &manifests::embedded()?).await
    }
}

/// A client of a kubeconfig.
pub async fn client_of(kubeconfig: &Path) -> Result<Client, crate::Error> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Waits until `/readyz` says ok.
async fn ready(client: &Client, url: &str) -> Result<(), crate::Error> {
    let ask = async || {
        let request = Request::get("/readyz").body(Vec::new()).ok()?;
        client.request_text(request).await.ok()
    };
    match until(PATIENCE, Duration::from_millis(200), ask).await {
        Some(_) => Ok(()),
        None => Err(format!("the API server at {url} was not ready after {PATIENCE:?}; see the logs in its directory").into()),
    }
}

// === A cluster that is there already ===

/// Lays out the directory for the cluster of `kubeconfig`; gives its URL.
async fn adopt(kubeconfig: &Path, layout: &Layout) -> Result<String, crate::Error> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let resolved = Config::from_custom_kubeconfig(config.clone(), &options).await?;
    let url = resolved.cluster_url.to_string();
    let authority = authority_of(&config)
        .ok_or("the kubeconfig of KUBECONFIG_E2E has no certificate authority")?;
    layout.write_authority(&authority)?;
    fs::copy(kubeconfig, layout.kubeconfig("admin"))?;
    let client = Client::try_from(resolved)?;
    for user in CLIENTS {
        if let Some((namespace, name)) = user.account {
            let token = account_token(&client, namespace, name).await?;
            layout.write_kubeconfig(user.kubeconfig, &url, &authority, &token)?;
        }
    }
    Ok(url)
}

/// The authority of the kubeconfig's current context, in PEM.
fn authority_of(config: &Kubeconfig) -> Option<String> {
    let context = config.contexts.iter().find(|c| Some(&c.name) == config.current_context.as_ref());
    let name = &context?.context.as_ref()?.cluster;
    let cluster = config.clusters.iter().find(|c| &c.name == name)?.cluster.as_ref()?;
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok(),
        (None, Some(file)) => fs::read_to_string(file).ok(),
        (None, None) => None,
    }
}

/// Makes the service account where it is missing, and a token for it.
async fn account_token(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<String, crate::Error> {
    let metadata = json!({"name": name, "namespace": namespace});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    manifests::apply(client, &[account]).await?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..Default::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let made = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    Ok(made.status.ok_or("the API server made no token")?.token)
}
