//! Loads the configuration of the connection to the API server.
//!
//! As in external-provisioner: a kubeconfig (`KUBECONFIG` in the environment wins over the flag) or
//! `--master`, otherwise the pod's service account. Several files in `KUBECONFIG` are merged, as by kubectl.
//! kube's own retries are off, and the User-Agent is set.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use http::header::USER_AGENT;
use kube::config::{
    AuthInfo, Cluster, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError,
};

use super::{Connections, credentials::Fault, user_agent::user_agent};
use crate::runtime::spawn_blocking;

/// The time-out of connecting, as in client-go.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Stands for no proxy in a kubeconfig.
const WITHOUT_PROXY: &str = "http://proxy.invalid/";

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither flags nor environment name the API server.
    #[error(
        "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
    )]
    NotInCluster,
    /// The pod's service account cannot be used.
    #[error(
        "unable to load in-cluster configuration: {0}; does the pod's spec say automountServiceAccountToken: false?"
    )]
    ServiceAccount(#[from] InClusterError),
    /// The kubeconfig cannot be read or used.
    #[error("{}: {fault}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, without any of its content.
        fault: Fault,
    },
    /// The server's address is no URL.
    #[error("the API server's address {address:?} is not a URL: {source}")]
    Address {
        /// The address as given.
        address: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The kubeconfig's proxy is none. Its text is not shown, because it may hold a password.
    #[error(
        "the kubeconfig's proxy-url is not the URL of a proxy: use http://, https:// or socks5://"
    )]
    Proxy,
    /// The token file holds more than a token.
    #[error("{}: the token file has white space around the token, such as a newline: remove it", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
    },
    /// Certificates or credentials cannot be used.
    #[error("cannot use the API server's certificates or credentials: {0}")]
    Credentials(Fault),
}

impl From<kube::Error> for ConfigError {
    fn from(error: kube::Error) -> Self {
        Self::Credentials(error.into())
    }
}

/// The source of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// The server's URL; overrides the kubeconfig's.
    pub master: Option<String>,
    /// The kubeconfig files; what an earlier one says counts.
    pub kubeconfig: Vec<PathBuf>,
    /// The environment is that of a pod, whose service account is used when neither is given.
    pub is_in_pod: bool,
}

impl ConfigSource {
    /// The source that the flags `--master` and `--kubeconfig` and the environment name. Empty values
    /// count as unset. `environment` looks up a variable.
    pub fn resolve(
        master: Option<&str>,
        kubeconfig: Option<&Path>,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let variable = |name| environment(name).filter(|value| !value.is_empty());
        let is_given = |path: &PathBuf| !path.as_os_str().is_empty();
        let named = variable("KUBECONFIG").map(|paths| env::split_paths(&paths).collect());
        let flag = || kubeconfig.map(Path::to_owned).into_iter().collect::<Vec<_>>();
        Self {
            master: master.filter(|master| !master.is_empty()).map(str::to_owned),
            kubeconfig: named.unwrap_or_else(flag).into_iter().filter(is_given).collect(),
            is_in_pod: ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]
                .iter()
                .all(|name| variable(name).is_some()),
        }
    }

    /// Loads the configuration and makes the connections to its API server.
    ///
    /// # Errors
    /// What is missing, unreadable or invalid of the configuration.
    pub async fn connect(&self) -> Result<Connections, String> {
        let config = load(self).await.map_err(|error| error.to_string())?;
        // A credential plugin may take long; signals must be handled meanwhile.
        let connections = spawn_blocking(move || Connections::open(&config)).await?;
        connections.map_err(|error| error.to_string())
    }
}

/// Loads the configuration from `source`.
///
/// # Errors
/// If it is missing, unreadable or invalid.
pub async fn load(source: &ConfigSource) -> Result<kube::Config, ConfigError> {
    let mut config = match (&source.kubeconfig[..], &source.master) {
        ([], Some(master)) => kube::Config::new(address(master, false)?),
        ([], None) if source.is_in_pod => kube::Config::incluster_env()?,
        ([], None) => return Err(ConfigError::NotInCluster),
        (paths, master) => from_files(paths, master.as_deref()).await?,
    };
    check_token_file(&config.auth_info)?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push((USER_AGENT, user_agent()));
    Ok(config)
}

/// Refuses a token file that ends with a newline: kube-rs sends what the file holds, unlike client-go, and
/// each request would fail.
fn check_token_file(credentials: &AuthInfo) -> Result<(), ConfigError> {
    let path = credentials.token_file.as_ref().filter(|_| credentials.token.is_none());
    let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(()) };
    // kube-rs reports a file that cannot be read.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    if text.trim() == text { Ok(()) } else { Err(ConfigError::TokenFile { path: path.into() }) }
}

/// The files as one. Those that do not exist are skipped, unless none does.
fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let is_there = |path: &&PathBuf| path.try_exists().unwrap_or(true);
    let is_any_there = paths.iter().any(|path| is_there(&path));
    let there = paths.iter().filter(|path| !is_any_there || is_there(path));
    there.map(Kubeconfig::read_from).try_fold(Kubeconfig::default(), |merged, next| {
        let mut next = next?;
        // kubectl writes an empty one where none is set.
        next.current_context.take_if(|context| context.is_empty());
        merged.merge(next)
    })
}

async fn from_files(paths: &[PathBuf], master: Option<&str>) -> Result<kube::Config, ConfigError> {
    let unusable = |error: KubeconfigError| ConfigError::Kubeconfig {
        path: paths.iter().map(|it| it.to_string_lossy()).collect::<Vec<_>>().join(":").into(),
        fault: error.into(),
    };
    let mut kubeconfig = merged(paths).map_err(unusable)?;
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        if let Some(master) = master {
            cluster.server = Some(master.to_owned());
        }
        // If it names no proxy, kube reads the environment, and compares `NO_PROXY` with the proxy's address
        // instead of the server's.
        let proxy = cluster.proxy_url.take().filter(|url| !url.is_empty());
        cluster.proxy_url = proxy.or_else(|| Some(WITHOUT_PROXY.to_owned()));
    }
    let authority = current_cluster(&kubeconfig).and_then(authority_file);
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(unusable)?;
    config.root_cert_file = authority;
    config.proxy_url.take_if(|url| *url == WITHOUT_PROXY);
    let scheme = config.proxy_url.as_ref().map(|url| url.scheme_str().unwrap_or_default());
    if !matches!(scheme, None | Some("http" | "https" | "socks5" | "socks5h")) {
        return Err(ConfigError::Proxy);
    }
    let is_tls = config.root_cert.is_some() || config.accept_invalid_certs;
    config.cluster_url = address(&config.cluster_url.to_string(), is_tls)?;
    Ok(config)
}

/// The cluster of the kubeconfig's current context.
fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let current = kubeconfig.current_context.as_deref();
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| Some(named.name.as_str()) == current);
    let cluster = context.and_then(|named| Some(named.context.as_ref()?.cluster.as_str()));
    let mut clusters = kubeconfig.clusters.iter();
    clusters.find(|named| Some(named.name.as_str()) == cluster)?.cluster.as_ref()
}

/// The file of the certificate authority, unless the kubeconfig holds the certificate itself. The file
/// is read periodically, because it changes when the authority is rotated.
fn authority_file(cluster: &Cluster) -> Option<PathBuf> {
    let is_inline = cluster.certificate_authority_data.is_some();
    cluster.certificate_authority.as_ref().filter(|_| !is_inline).map(PathBuf::from)
}

/// The server's URL; an address without a scheme gets `https` if `is_tls`, otherwise `http`.
fn address(address: &str, is_tls: bool) -> Result<http::Uri, ConfigError> {
    let url = match (address.contains("://"), is_tls) {
        (true, _) => address.to_owned(),
        (false, true) => format!("https://{}", address.trim_start_matches('/')),
        (false, false) => format!("http://{}", address.trim_start_matches('/')),
    };
    url.parse().map_err(|source| ConfigError::Address { address: address.to_owned(), source })
}

#[cfg(test)]
mod tests;
