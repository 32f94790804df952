//! The API server, as kubectl finds it, and the namespace of the Leases.

use std::{
    env,
    ffi::OsString,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use csi_provisioner::{
    app::Host,
    kube::{ApiError, Client, ConfigSource, Connections, LaneSettings, Lanes, Scope, View, config},
    metrics::Metrics,
    runtime::{Gate, Generator},
};

/// Said where nothing names the API server.
const NOT_NAMED: &str =
    "nothing says where the API server is: give --kubeconfig, set KUBECONFIG, or run it in a pod";

/// Which API server to ask.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ApiServer {
    /// `--kubeconfig`.
    #[arg(long, value_name = "path", help = "Path of a kubeconfig file")]
    pub kubeconfig: Option<PathBuf>,
    /// `--master`.
    #[arg(long, value_name = "URL", help = "URL of the API server")]
    pub master: Option<String>,
}

impl ApiServer {
    /// Whether a flag names it.
    pub fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.master.is_some()
    }

    /// Where flags and environment say that it is. As for kubectl, the flag wins over `KUBECONFIG`, and
    /// `~/.kube/config` counts outside a cluster where neither is given.
    pub fn source(&self) -> ConfigSource {
        resolve(self.master.as_deref(), self.kubeconfig.as_deref(), |name| env::var_os(name))
    }

    /// Connections to it.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub async fn connect(&self) -> Result<Connections, String> {
        let source = self.source();
        if source == ConfigSource::default() {
            return Err(NOT_NAMED.to_owned());
        }
        let connections = source.connect().await;
        connections.map_err(|error| format!("cannot reach the API server: {error}"))
    }

    /// The namespace of objects whose namespace is not given, as for kubectl: that of the kubeconfig's context or
    /// of the pod, else `default`.
    pub async fn namespace(&self) -> String {
        // A configuration that cannot be loaded is reported by whoever connects.
        let config = config::load(&self.source()).await;
        config.map_or_else(|_| "default".to_owned(), |config| config.default_namespace)
    }

    /// A client of it, which writes only while `gate` is open.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub async fn client(&self, gate: Gate) -> Result<Client, String> {
        Ok(client_over(self.connect().await?, gate))
    }
}

/// A client over these connections, which writes only while `gate` is open.
pub fn client_over(connections: Connections, gate: Gate) -> Client {
    let (random, metrics) = (Arc::new(Generator::from_entropy()), Metrics::new());
    Lanes::new(connections, LaneSettings::default(), gate, random, &metrics).objects
}

fn resolve(
    master: Option<&str>,
    kubeconfig: Option<&Path>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> ConfigSource {
    let is_given = kubeconfig.is_some();
    let mut source = ConfigSource::resolve(master, kubeconfig, |name| {
        environment(name).filter(|_| name != "KUBECONFIG" || !is_given)
    });
    if source.kubeconfig.is_empty() && source.master.is_none() && !source.is_in_pod {
        let home = environment("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
        source.kubeconfig.extend(home.filter(|path| path.exists()));
    }
    source
}

/// Those of the objects in `scope` that `is_kept` says.
///
/// # Errors
/// They cannot be listed.
pub async fn list<V: View>(
    client: &Client,
    scope: &Scope,
    is_kept: fn(&V) -> bool,
) -> Result<Vec<V>, ApiError> {
    let mut kept = Vec::new();
    let visit = |object| {
        kept.extend(Some(object).filter(is_kept));
        ControlFlow::Continue(())
    };
    client.list(scope, visit).await?;
    Ok(kept)
}

/// The namespace of the Leases: the flag's value, else the pod's own namespace. Empty if neither is known,
/// as on a workstation. A replica uses `default` in that case, but here that would be a guess.
pub fn lease_namespace(flag: Option<&str>) -> String {
    let host = Host::of_this_process();
    let candidates =
        [flag, host.pod_namespace.as_deref(), host.service_account_namespace.as_deref()];
    let mut candidates = candidates.into_iter().flatten().map(str::trim);
    candidates.find(|name| !name.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_environment_and_that_over_the_home() {
        let home = env::temp_dir().join(format!("home-{}", std::process::id()));
        std::fs::create_dir_all(home.join(".kube")).unwrap();
        let config = home.join(".kube/config");
        std::fs::write(&config, "").unwrap();
        let host = ("KUBERNETES_SERVICE_HOST", "10.0.0.1".to_owned());
        let port = ("KUBERNETES_SERVICE_PORT", "443".to_owned());
        let of_home = ("HOME", home.to_string_lossy().into_owned());
        let variable = ("KUBECONFIG", "/env:/more".to_owned());
        for (flag, variables, expected) in [
            (Some("/flag"), &[variable.clone(), of_home.clone()][..], &["/flag"][..]),
            (None, &[variable, of_home.clone()], &["/env", "/more"]),
            (None, std::slice::from_ref(&of_home), &[config.to_str().unwrap()]),
            (None, &[of_home.clone(), host, port], &[]),
            (None, &[], &[]),
        ] {
            let environment = |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| value.into())
            };
            let source = resolve(None, flag.map(Path::new), environment);
            let paths: Vec<_> = source.kubeconfig.iter().filter_map(|it| it.to_str()).collect();
            assert_eq!(paths, expected, "{flag:?}");
        }
        std::fs::remove_dir_all(home).unwrap();
    }
}
