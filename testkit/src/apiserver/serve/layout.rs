//! The directory by which clients find a control plane: `pki/ca.crt` and a kubeconfig for each user, the same for our
//! own server and a real one; `tests/conformance/play.py` reads them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::apiserver::{User, access::auth};

/// A user as a test's clients know it: a kubeconfig, a token, and whom the token stands for.
#[derive(Clone, Copy)]
pub struct Client {
    /// The kubeconfig is `NAME.kubeconfig`.
    pub kubeconfig: &'static str,
    /// The bearer token. It protects nothing but a test's own server.
    pub token: &'static str,
    /// Namespace and name of the service account; `None` for the admin.
    pub account: Option<(&'static str, &'static str)>,
}

impl Client {
    /// The user the token stands for.
    pub fn user(&self) -> User {
        match self.account {
            None => auth::admin(),
            Some((namespace, name)) => auth::service_account(namespace, name),
        }
    }
}

/// The token of the admin, as scenario players know it.
pub const ADMIN_TOKEN: &str = "admintoken";

/// Everybody a control plane's directory has a kubeconfig for.
pub const CLIENTS: [Client; 3] = [
    Client { kubeconfig: "admin", token: ADMIN_TOKEN, account: None },
    Client { kubeconfig: "sa", token: "satoken", account: Some(("default", "csi-provisioner")) },
    Client {
        kubeconfig: "ceph",
        token: "cephtoken",
        account: Some(("default", "ceph-csi-provisioner")),
    },
];

/// The files under one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout under `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.root.join("pki/ca.crt")
    }

    /// The kubeconfig of a user: `admin`, `sa` or `ceph`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.root.join(format!("{user}.kubeconfig"))
    }

    /// A file beside the authority's certificate.
    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.root.join("pki").join(file)
    }

    /// Writes the authority and the kubeconfigs of all [`CLIENTS`], for a server at `url` that
    /// knows their tokens.
    pub fn write(&self, url: &str, authority_pem: &str) -> io::Result<()> {
        self.write_authority(authority_pem)?;
        for client in CLIENTS {
            self.write_kubeconfig(client.kubeconfig, url, authority_pem, client.token)?;
        }
        Ok(())
    }

    /// Writes the authority's certificate.
    pub(crate) fn write_authority(&self, authority_pem: &str) -> io::Result<()> {
        fs::create_dir_all(self.root.join("pki"))?;
        fs::write(self.authority(), authority_pem)
    }

    /// Writes one user's kubeconfig.
    pub(crate) fn write_kubeconfig(
        &self,
        user: &str,
        url: &str,
        authority_pem: &str,
        token: &str,
    ) -> io::Result<()> {
        fs::write(self.kubeconfig(user), kubeconfig(url, authority_pem, token))
    }
}

/// A kubeconfig with one cluster, one user and one context.
pub(crate) fn kubeconfig(url: &str, authority_pem: &str, token: &str) -> String {
    let authority = BASE64_STANDARD.encode(authority_pem);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: default\n\
         clusters:\n\
         - name: default\n  cluster:\n    server: {url}\n    certificate-authority-data: {authority}\n\
         users:\n\
         - name: default\n  user:\n    token: {token}\n\
         contexts:\n\
         - name: default\n  context:\n    cluster: default\n    user: default\n"
    )
}
