//! The host and pod of this process: what leader election, storage capacity and the CLI read of them.

use std::{env, fs, path::Path};

use crate::leader::pod_uid_from_token;

/// The directory of the service account's files.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The host and pod of this process.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The machine's or pod's host name.
    pub name: String,
    /// The pod's UID, if the service account's token has it.
    pub pod_uid: Option<String>,
    /// The environment variable `POD_NAMESPACE`.
    pub pod_namespace: Option<String>,
    /// The namespace in the service account's files.
    pub service_account_namespace: Option<String>,
}

impl Host {
    /// Reads it from system, files and environment.
    pub fn of_this_process() -> Self {
        let file = |name: &str| fs::read_to_string(Path::new(SERVICE_ACCOUNT).join(name)).ok();
        Self {
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pod_uid: file("token").and_then(|token| pod_uid_from_token(&token)),
            pod_namespace: env::var("POD_NAMESPACE").ok(),
            service_account_namespace: file("namespace"),
        }
    }
}
