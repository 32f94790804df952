//! The `load` program: its errors, and that it leaves nothing behind in somebody else's cluster.
//! Whole runs with a provisioner are tests of the product (`tests/process/load.rs` there).

use std::{
    env, fs,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::json;
use testkit::apiserver::serve::{Served, Settings};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody's cluster, in a directory that goes with it.
struct Somebodys {
    served: Served,
    directory: PathBuf,
}

impl Somebodys {
    async fn cluster(test: &str) -> Self {
        let directory = env::temp_dir().join(format!("testkit-load-{test}-{}", std::process::id()));
        let served = Served::start(Settings::new(&directory)).await.unwrap();
        served.api().namespace("theirs");
        Self { served, directory }
    }

    fn class(&self, name: &str, binding: &str) {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "nobody.example.com", "volumeBindingMode": binding,
        });
        self.served.api().create(&class).unwrap();
    }

    /// How many claims, volumes and classes there are.
    fn counts(&self) -> [usize; 3] {
        ["PersistentVolumeClaim", "PersistentVolume", "StorageClass"]
            .map(|kind| self.served.api().count(kind))
    }

    fn load(&self, arguments: &[&str]) -> Child {
        let kubeconfig = self.served.layout().kubeconfig("admin");
        let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        load(&[&cluster, arguments].concat())
    }
}

impl Drop for Somebodys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn load(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_load"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn output(child: Child) -> Output {
    timeout(PATIENCE, child.wait_with_output()).await.expect("it goes on").unwrap()
}

/// Waits for the end: its code, what it says, and that it reports nothing.
async fn failed(child: Child) -> (Option<i32>, String) {
    let output = output(child).await;
    assert!(output.stdout.is_empty(), "a failure is no report");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_asked_wrong_is_reported_with_exit_code_2() {
    let (code, printed) = failed(load(&["--kubeconfig", "f"])).await;
    assert_eq!(code, Some(2));
    assert!(printed.contains("--namespace"), "{printed}");
}

#[tokio::test]
async fn a_program_that_is_missing_or_ends_is_reported_with_exit_code_1() {
    let (code, printed) = failed(load(&["--program", "/nowhere/provisioner"])).await;
    assert_eq!(code, Some(1));
    assert!(printed.contains("no program /nowhere/provisioner"), "{printed}");
    let (code, printed) = failed(load(&["--program", "/bin/ls"])).await;
    assert_eq!(code, Some(1));
    assert!(printed.contains("the provisioner ended"), "{printed}");
    assert!(printed.contains("unrecognized option"), "the end of its log: {printed}");
}

#[tokio::test]
async fn only_a_namespace_and_a_class_that_are_there_are_used() {
    let somebodys = Somebodys::cluster("refused").await;
    somebodys.class("late", "WaitForFirstConsumer");
    for (arguments, reason) in [
        (["--namespace", "missing", "--claims", "1"], "no namespace \"missing\""),
        (["--namespace", "theirs", "--class", "missing"], "no StorageClass \"missing\""),
        (["--namespace", "theirs", "--class", "late"], "wait for pods"),
    ] {
        let (code, printed) = failed(somebodys.load(&arguments)).await;
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains(reason), "{printed}");
    }
    assert_eq!(somebodys.counts(), [0, 0, 1]);
}

#[tokio::test]
async fn an_interrupted_run_takes_away_what_it_made_and_nothing_else() {
    let somebodys = Somebodys::cluster("interrupted").await;
    somebodys.class("slow", "Immediate");
    let theirs = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "keep", "namespace": "theirs"},
        "spec": {
            "storageClassName": "slow", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    somebodys.served.api().create(&theirs).unwrap();
    let child = somebodys.load(&["--namespace", "theirs", "--class", "slow", "--foreign", "3"]);
    // Nobody provisions, so the first two claims wait for ever.
    until("claims are there", || somebodys.counts() == [6, 3, 1]).await;
    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().await.unwrap().success());
    let (code, printed) = failed(child).await;
    assert_eq!(code, Some(130), "{printed}");
    assert_eq!(somebodys.counts(), [1, 0, 1]);
    assert!(somebodys.served.api().get("PersistentVolumeClaim", "theirs", "keep").is_some());
}

#[tokio::test]
async fn a_run_that_gets_nowhere_is_given_up_and_cleaned_up() {
    let somebodys = Somebodys::cluster("stalled").await;
    somebodys.class("slow", "Immediate");
    let arguments = ["--namespace", "theirs", "--class", "slow", "--timeout", "1"];
    let (code, printed) = failed(somebodys.load(&arguments)).await;
    assert_eq!(code, Some(1));
    assert!(printed.contains("0 of 2 claims are Bound"), "{printed}");
    assert_eq!(somebodys.counts(), [0, 0, 1]);
}
