//! The real binary ends on SIGTERM, whatever it is doing, and serves its endpoint until then. A command of the CLI says
//! why it could not begin.

use std::{fs, process::Command, time::Duration};

use serde_json::json;
use support::{
    process::{Provisioner, Surroundings, beside},
    simulation::{DRIVER, claim, class},
};
use testkit::{control_plane::TemporaryDirectory, ports::free_port, web::page};

const SIDECAR: &str = env!("CARGO_BIN_EXE_csi-provisioner");

/// A plugin for credentials that takes longer than a test waits, and says when it began.
fn kubeconfig(began: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         users:\n- name: u\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      \
         command: /bin/sh\n      args: [-c, 'echo > {began}; exec /bin/sleep 90']\n      interactiveMode: Never\n"
    )
}

#[tokio::test]
async fn a_signal_is_heard_before_there_is_a_way_to_the_api_server() {
    let directory = TemporaryDirectory::new().unwrap();
    let directory = directory.path();
    let (file, began) = (directory.join("kubeconfig"), directory.join("began"));
    fs::write(&file, kubeconfig(began.to_str().unwrap())).unwrap();
    let argument = format!("--kubeconfig={}", file.display());
    let mut provisioner = Provisioner::start(SIDECAR, &[argument], directory.join("log"));
    provisioner.until("the plugin runs", async |_| began.exists()).await;
    assert_eq!(provisioner.stop().await.code(), Some(0), "{}", provisioner.log());
}

/// An API server with a claim of a class, and a driver that takes its time to make a volume.
struct Cluster(Surroundings);

impl Cluster {
    async fn start() -> Self {
        let script = json!({"name": DRIVER, "create_volume": [{"delay_ms": 8000}]});
        let around = Surroundings::start(script).await;
        around.served.api().create(&class("fast", &json!({}))).unwrap();
        let mut claim = claim("data");
        claim["metadata"]["namespace"] = json!("default");
        around.served.api().create(&claim).unwrap();
        Self(around)
    }

    /// Starts the program with leader election, and waits until it asks the driver for the volume.
    async fn provisioner(&self, flags: &[&str]) -> Provisioner {
        let mut provisioner =
            self.0.provisioner(SIDECAR, &[&["--leader-election"], flags].concat());
        let asked = async |_: &mut Provisioner| self.0.driver.journal().count("CreateVolume") == 1;
        provisioner.until("a call runs", asked).await;
        provisioner
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_checks_are_served_while_calls_run_to_their_end() {
    let cluster = Cluster::start().await;
    let port = free_port().unwrap();
    let endpoint = format!("--http-endpoint=127.0.0.1:{port}");
    let mut provisioner = cluster.provisioner(&[&endpoint]).await;
    let runs = "provisioner_csi_calls_in_flight{method_name=\"/csi.v1.Controller/CreateVolume\"} 1";
    let is_running = async |_: &mut Provisioner| page(port, "/metrics").await.contains(runs);
    provisioner.until("its metrics say so", is_running).await;

    let (ended, (check, metrics)) = tokio::join!(provisioner.stop(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        (page(port, "/healthz/leader-election").await, page(port, "/metrics").await)
    });
    assert!(ended.success());
    assert_eq!(check, "ok");
    assert!(metrics.contains(runs), "{metrics}");
    let volumes = cluster.0.served.api().list("PersistentVolume", "");
    assert_eq!(volumes.len(), 1, "the call ran to its end");
    cluster.0.stop().await;
}

/// A volume that nothing in the cluster names is in the last lines of the log.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_it_ends_in_time_and_names_what_is_not_saved() {
    let mut cluster = Cluster::start().await;
    // The Lease outlives the call.
    let flags = [
        "--shutdown-timeout=2s",
        "--leader-election-lease-duration=120s",
        "--leader-election-renew-deadline=90s",
    ];
    let mut provisioner = cluster.provisioner(&flags).await;
    cluster.0.served.go_away().await.unwrap();
    let unsaved = async |this: &mut Provisioner| this.log().contains("is not saved yet");
    provisioner.until("the volume could not be saved", unsaved).await;
    let ended = provisioner.stop().await;
    let log = provisioner.log();
    assert!(ended.success(), "{log}");
    let handle = cluster.0.driver.backend().volumes().into_iter().next().unwrap();
    let last = log.lines().find(|line| line.contains("A volume has no PersistentVolume yet"));
    let last = last.unwrap_or_else(|| panic!("{log}"));
    assert!(last.contains("claim=\"default/data\""), "{last}");
    assert!(last.contains(&format!("handle=\"{handle}\"")), "{last}");
    cluster.0.driver.stop();
}

#[test]
fn a_command_whose_runtime_does_not_start_says_so() {
    let cli = beside(SIDECAR, "kubectl-csi_provisioner");
    let commands: [(&[&str], i32); 5] = [
        (&["check", "-f", "x"], 3),
        (&["explain", "pvc", "x"], 3),
        (&["release-claims"], 1),
        (&["status", "--driver=d"], 2),
        (&["shadow-report", "--status-endpoint=:1"], 2),
    ];
    for (arguments, code) in commands {
        let mut command = Command::new("/bin/sh");
        // Too few descriptors for the runtime.
        command.args(["-c", "ulimit -n 4; exec \"$@\"", "sh"]);
        command.arg(&cli).args(arguments);
        let output = command.env_clear().output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.starts_with("cannot start the async runtime: "), "{arguments:?}: {errors}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

/// As `--help | head` does with both programs.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for program in [SIDECAR.into(), beside(SIDECAR, "kubectl-csi_provisioner")] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Command::new(program).arg("--help").stdout(writer).output().unwrap();
        assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]));
    }
}
