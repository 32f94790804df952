//! A real etcd and kube-apiserver, found the way Go's envtest finds them, with the files that [`Layout`] names.
//! Admission stands as on the server the scenarios were recorded on.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use rcgen::KeyPair;
use tokio::process::Command;

use crate::{
    apiserver::serve::{
        layout::{ADMIN_TOKEN, CLIENTS, Layout},
        tls::Identity,
    },
    ports::free_port,
    program::Program,
};

/// Every request once, when it is answered; no bodies.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                            omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// The controllers that bind claims and keep what is in use, by names that every release knows.
const CONTROLLERS: &str = "persistentvolume-binder,pvc-protection,pv-protection";

/// A running etcd and kube-apiserver; killed when dropped.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) url: String,
    assets: PathBuf,
    _etcd: Program,
    _server: Program,
}

/// A running kube-controller-manager with the controllers of claims and volumes; killed when dropped.
#[derive(Debug)]
pub struct ControllerManager(#[allow(dead_code)] Box<Program>); // kept until it is dropped

impl Processes {
    /// Starts both from `assets` and writes the layout. They may need seconds until they answer.
    pub(super) fn start(
        assets: &Path,
        layout: &Layout,
        audit: &Path,
    ) -> Result<Self, crate::Error> {
        let (clients, peers, server) = (free_port()?, free_port()?, free_port()?);
        let url = format!("https://127.0.0.1:{server}");
        let identity = Identity::generate()?;
        layout.write(&url, &identity.authority_pem)?;
        write_secrets(layout, &identity)?;
        let log = |name| layout.root().join(name);
        let etcd =
            spawn(&assets.join("etcd"), &etcd_flags(layout, clients, peers), log("etcd.log"))?;
        let flags = server_flags(layout, audit, clients, server);
        let server = spawn(&assets.join("kube-apiserver"), &flags, log("kube-apiserver.log"))?;
        Ok(Self { url, assets: assets.to_owned(), _etcd: etcd, _server: server })
    }

    /// Starts kube-controller-manager, where it is among the binaries.
    pub(super) fn start_controllers(
        &self,
        layout: &Layout,
    ) -> Result<Option<ControllerManager>, crate::Error> {
        let binary = self.assets.join("kube-controller-manager");
        if !binary.is_file() {
            return Ok(None);
        }
        let log = layout.root().join("kube-controller-manager.log");
        let flags = [
            format!("--kubeconfig={}", layout.kubeconfig("admin").display()),
            format!("--controllers={CONTROLLERS}"),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        Ok(Some(ControllerManager(Box::new(spawn(&binary, &flags, log)?))))
    }
}

fn spawn(binary: &Path, flags: &[String], log: PathBuf) -> Result<Program, crate::Error> {
    let failed =
        |error| format!("can't start {}: {error} (is KUBEBUILDER_ASSETS right?)", binary.display());
    Ok(Program::start(Command::new(binary).args(flags), log).map_err(failed)?)
}

/// The server's certificate, the key that signs service accounts' tokens, users and audit policy.
fn write_secrets(layout: &Layout, identity: &Identity) -> Result<(), crate::Error> {
    let accounts = KeyPair::generate()?;
    fs::write(layout.pki("server.crt"), &identity.certificate_pem)?;
    fs::write(layout.pki("server.key"), &identity.key_pem)?;
    fs::write(layout.pki("sa.key"), accounts.serialize_pem())?;
    fs::write(layout.pki("sa.pub"), accounts.public_key_pem())?;
    fs::write(layout.pki("tokens.csv"), tokens_csv())?;
    fs::write(layout.pki("audit-policy.yaml"), AUDIT_POLICY)?;
    Ok(())
}

/// kube-apiserver's `--token-auth-file`: token, user, uid, groups.
fn tokens_csv() -> String {
    let mut csv = String::new();
    for client in CLIENTS {
        let user = client.user();
        // Writing to a String can't fail. The server adds system:authenticated itself.
        let _ = writeln!(
            csv,
            "{},{},{},\"{}\"",
            client.token,
            user.name,
            client.kubeconfig,
            user.groups.join(",")
        );
    }
    debug_assert!(csv.contains(ADMIN_TOKEN));
    csv
}

fn etcd_flags(layout: &Layout, clients: u16, peers: u16) -> Vec<String> {
    let (client_url, peer_url) =
        (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    vec![
        format!("--data-dir={}", layout.root().join("etcd").display()),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=default={peer_url}"),
        // A test's data need not outlive the machine.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn server_flags(layout: &Layout, audit: &Path, etcd: u16, port: u16) -> Vec<String> {
    let pki = |file: &str| layout.pki(file).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", layout.root().join("pki").display()),
        format!("--tls-cert-file={}", pki("server.crt")),
        format!("--tls-private-key-file={}", pki("server.key")),
        format!("--token-auth-file={}", pki("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // No controller manager makes service accounts here, and the scenarios were recorded
        // without the finalizers of storage protection.
        "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection".to_owned(),
        "--feature-gates=CrossNamespaceVolumeDataSource=true".to_owned(),
        format!("--audit-policy-file={}", pki("audit-policy.yaml")),
        format!("--audit-log-path={}", audit.display()),
        // One file: requests are counted from its beginning.
        "--audit-log-maxsize=100000".to_owned(),
    ]
}
