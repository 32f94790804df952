//! The API server of a run: in memory, or etcd and kube-apiserver from binaries; and what is known of the measured
//! program's requests there. It ends with this value.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader},
    path::PathBuf,
};

use kube::Client;
use serde_json::{Value, json};

use super::{LoadError, NAMESPACE, options::Options, residents};
use crate::{
    apiserver::{
        serve::{Served, layout::CLIENTS},
        tree::text,
    },
    control_plane::ControlPlane,
};

/// The user as whom the measured program asks.
const MEASURED: &str = "sa";

/// An API server, and how it is reached.
pub(super) struct Server {
    pub(super) client: Client,
    plane: ControlPlane,
}

impl Server {
    /// The server that the options name.
    pub(super) async fn open(options: &Options) -> Result<Self, LoadError> {
        let plane = match &options.assets {
            Some(assets) => ControlPlane::of_binaries(assets).await?,
            None => ControlPlane::in_memory().await?,
        };
        let server = Self { client: plane.client("admin").await?, plane };
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        residents::create(&server, namespace).await?;
        Ok(server)
    }

    /// A file in the run's directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.plane.layout().root().join(name)
    }

    /// The kubeconfig of the measured program.
    pub(super) fn measured(&self) -> PathBuf {
        self.plane.layout().kubeconfig(MEASURED)
    }

    /// The server in memory, where it is that one.
    pub(super) fn in_memory(&self) -> Option<&Served> {
        self.plane.embedded()
    }

    /// Its version, with where it comes from.
    pub(super) async fn version(&self) -> Result<String, LoadError> {
        let version = self.client.apiserver_version().await?.git_version;
        let whose = if self.in_memory().is_some() { "embedded" } else { "started" };
        Ok(format!("{version} ({whose})"))
    }

    /// How many requests of each `verb resource/subresource` the measured program has sent. The last line of the audit
    /// log may be half written.
    pub(super) fn requests(&self) -> Result<BTreeMap<String, usize>, LoadError> {
        let client = CLIENTS.iter().find(|client| client.kubeconfig == MEASURED);
        let user = client.map(|client| client.user().name).unwrap_or_default();
        let log = self.plane.audit().ok_or("the API server writes no audit log")?;
        let mut requests = BTreeMap::new();
        for line in BufReader::new(File::open(log)?).lines() {
            let event: Value = serde_json::from_str(&line?).unwrap_or_default();
            if let Some(what) = what(&event, &user) {
                *requests.entry(what).or_default() += 1;
            }
        }
        Ok(requests)
    }
}

/// What an event of the audit log says of a request of `user`. A watch has two: at its beginning, which is the one
/// that counts, and at its end.
fn what(event: &Value, user: &str) -> Option<String> {
    let verb = text(event, &["verb"]);
    let begins = text(event, &["stage"]) == "ResponseStarted";
    if text(event, &["user", "username"]) != user || begins != (verb == "watch") {
        return None;
    }
    let [resource, subresource] =
        ["resource", "subresource"].map(|member| text(event, &["objectRef", member]));
    Some(match (resource, subresource) {
        ("", _) => format!("{verb} {}", text(event, &["requestURI"])),
        (_, "") => format!("{verb} {resource}"),
        _ => format!("{verb} {resource}/{subresource}"),
    })
}
