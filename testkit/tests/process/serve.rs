//! The `testkit serve` program: what it prints, what it lays out, how it ends.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kube::{Client, Config, config::Kubeconfig};
use testkit::apiserver::serve::{Served, Settings};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of a test's own, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        Self(env::temp_dir().join(format!("testkit-{test}-{}", std::process::id())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn serve(directory: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_testkit"))
        .args(["serve", "--port", "0", "--dir"])
        .arg(directory)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn first_line(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says nothing");
    line.unwrap().expect("it ended without a word")
}

async fn client(kubeconfig: PathBuf) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &<_>::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn it_tells_when_it_is_ready_and_ends_on_sigterm() {
    let directory = Directory::new("serve");
    let audit = directory.0.join("audit.log");
    let audit = audit.to_str().unwrap();
    let arguments = ["--audit", audit, "--kubernetes-version", "1.24"];
    let mut child = serve(&directory.0, &arguments);
    let ready = first_line(&mut child).await;
    let admin = directory.0.join("admin.kubeconfig");
    assert!(ready.starts_with("ready https://127.0.0.1:"), "{ready}");
    assert!(ready.ends_with(&format!(" kubeconfig {}", admin.display())), "{ready}");
    for file in ["pki/ca.crt", "sa.kubeconfig", "ceph.kubeconfig"] {
        assert!(directory.0.join(file).is_file(), "{file}");
    }
    let version = client(admin).await.apiserver_version().await.unwrap();
    assert_eq!(version.minor, "24");
    assert!(fs::read_to_string(audit).unwrap().contains("\"/version\""));

    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it goes on");
    assert!(ended.unwrap().success());
}

#[tokio::test]
async fn a_directory_of_manifests_takes_the_place_of_the_built_in_ones() {
    let directory = Directory::new("manifests");
    let manifests = directory.0.join("cluster");
    fs::create_dir_all(&manifests).unwrap();
    fs::write(
        manifests.join("namespace.yaml"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n",
    )
    .unwrap();
    let settings = Settings { cluster: Some(manifests), ..Settings::new(&directory.0) };
    let served = Served::start(settings).await.unwrap();
    assert!(served.api().get("Namespace", "", "mine").is_some());
    assert_eq!(served.api().count("CustomResourceDefinition"), 0);
    assert!(served.api().count("ClusterRole") > 0, "the bootstrap roles are always there");
}

#[tokio::test]
async fn what_it_cannot_do_is_reported_on_stderr_with_exit_code_1() {
    let directory = Directory::new("refused");
    let child = serve(&directory.0, &["--cluster", "/nowhere"]);
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it runs");
    let output = ended.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.starts_with("testkit: can't read the cluster's manifests"), "{printed}");
}

#[tokio::test]
async fn a_release_that_it_cannot_play_is_refused() {
    let directory = Directory::new("release");
    for release in ["1.19", "1.37", "2.0", "36", "1.x"] {
        let child = serve(&directory.0, &["--kubernetes-version", release]);
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        assert_eq!(ended.expect("it runs").unwrap().status.code(), Some(2), "{release}");
    }
}

#[tokio::test]
async fn a_stopped_server_closes_its_port_and_its_connections() {
    let directory = Directory::new("stopped");
    let served = Served::start(Settings::new(&directory.0)).await.unwrap();
    let address = served.url().strip_prefix("https://").unwrap().to_owned();
    let client = client(served.layout().kubeconfig("admin")).await;
    client.apiserver_version().await.unwrap();
    served.stop().await;
    assert!(TcpStream::connect(&address).await.is_err());
    assert!(client.apiserver_version().await.is_err());
}
