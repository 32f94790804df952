//! The real binary ends on SIGTERM, whatever it is doing, and serves its endpoint until then. A command of the CLI says
//! why it could not begin.

use std::{fs, process::Command, time::Duration};

use serde_json::json;
use support::{
    http::body,
    process::{Directory, Provisioner, beside},
};
use testkit::{
    apiserver::serve::{Served, Settings},
    driver::{Host, Script, Scripted},
    ports::free_port,
};

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
    let directory = Directory::new();
    let (file, began) = (directory.0.join("kubeconfig"), directory.0.join("began"));
    fs::write(&file, kubeconfig(began.to_str().unwrap())).unwrap();
    let argument = format!("--kubeconfig={}", file.display());
    let mut provisioner = Provisioner::start(
        env!("CARGO_BIN_EXE_csi-provisioner"),
        &[argument],
        directory.0.join("log"),
    );
    provisioner.until("the plugin runs", async |_| began.exists()).await;
    assert_eq!(provisioner.stop().await.code(), Some(0), "{}", provisioner.log());
}

/// An API server with a claim of a class, and a driver that takes its time to make a volume.
struct Cluster {
    directory: Directory,
    served: Served,
    driver: Host<Scripted>,
}

impl Cluster {
    async fn start() -> Self {
        let directory = Directory::new();
        let settings = Settings { port: 0, ..Settings::new(directory.0.join("cluster")) };
        let served = Served::start(settings).await.unwrap();
        let script = json!({"name": "disk.example.com", "create_volume": [{"delay_ms": 1500}]});
        let driver = Host::new(Scripted::new(serde_json::from_value::<Script>(script).unwrap()));
        driver.listen(&directory.0.join("csi.sock")).unwrap();
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
            "provisioner": "disk.example.com",
        });
        served.api().create(&class).unwrap();
        let driver_annotation =
            json!({"volume.kubernetes.io/storage-provisioner": "disk.example.com"});
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default", "annotations": driver_annotation},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        served.api().create(&claim).unwrap();
        Self { directory, served, driver }
    }

    /// Starts the program with leader election, and waits until it asks the driver for the volume.
    async fn provisioner(&self, flags: &[&str]) -> Provisioner {
        let mut arguments = vec![
            format!("--kubeconfig={}", self.served.layout().kubeconfig("admin").display()),
            format!("--csi-address={}", self.directory.0.join("csi.sock").display()),
            "--leader-election".to_owned(),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        let mut provisioner = Provisioner::start(
            env!("CARGO_BIN_EXE_csi-provisioner"),
            &arguments,
            self.directory.0.join("log"),
        );
        let asked = async |_: &mut Provisioner| self.driver.journal().count("CreateVolume") == 1;
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
    let is_running = async |_: &mut Provisioner| body(port, "/metrics").await.contains(runs);
    provisioner.until("its metrics say so", is_running).await;

    let (ended, (check, metrics)) = tokio::join!(provisioner.stop(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        (body(port, "/healthz/leader-election").await, body(port, "/metrics").await)
    });
    assert!(ended.success());
    assert_eq!(check, "ok");
    assert!(metrics.contains(runs), "{metrics}");
    let volumes = cluster.served.api().list("PersistentVolume", "");
    assert_eq!(volumes.len(), 1, "the call ran to its end");
    cluster.driver.stop();
    cluster.served.stop().await;
}

/// A volume that nothing in the cluster names is in the last lines of the log.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_it_ends_in_time_and_names_what_is_not_saved() {
    let cluster = Cluster::start().await;
    let mut provisioner = cluster.provisioner(&["--shutdown-timeout=2s"]).await;
    cluster.served.stop().await;
    let unsaved = async |this: &mut Provisioner| this.log().contains("is not saved yet");
    provisioner.until("the volume could not be saved", unsaved).await;
    let ended = provisioner.stop().await;
    let log = provisioner.log();
    assert!(ended.success(), "{log}");
    let handle = cluster.driver.backend().volumes().into_iter().next().unwrap();
    let last = log.lines().find(|line| line.contains("A volume has no PersistentVolume yet"));
    let last = last.unwrap_or_else(|| panic!("{log}"));
    assert!(last.contains("claim=\"default/data\""), "{last}");
    assert!(last.contains(&format!("handle=\"{handle}\"")), "{last}");
    cluster.driver.stop();
}

#[test]
fn a_command_whose_runtime_does_not_start_says_so() {
    let cli = beside(env!("CARGO_BIN_EXE_csi-provisioner"), "kubectl-csi_provisioner");
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
