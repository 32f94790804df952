//! The real binary between an API server over HTTPS and a driver on a unix socket, both of which a test
//! can take away, slow down or break; and the check of what an outage must leave.
//!
//! Claims are created in the API server's memory and bound by a binder that does not use its sockets, so
//! that only the program notices an outage.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::ExitStatus,
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{
    apiserver::{
        ApiServer,
        access::auth,
        faults::{Effect, Match, Rule},
        serve::layout::CLIENTS,
    },
    binder,
    ports::free_port,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use support::process::{Provisioner, Surroundings};

/// The driver's name.
pub(crate) const DRIVER: &str = "disk.example.com";

/// The user that the program acts as.
pub(crate) const PROGRAM: &str = "system:serviceaccount:default:csi-provisioner";

/// How long anything may take, whatever the machine does beside it.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long after its end the program is started again: the kubelet takes longer, the more often it ends.
const BETWEEN_STARTS: Duration = Duration::from_secs(1);

/// The token that the program has in the end.
const ROTATED: &str = "rotatedtoken";

/// A cluster with the program in it.
pub(crate) struct Cluster {
    pub(crate) around: Surroundings,
    arguments: Vec<String>,
    program: Provisioner,
    /// How often the program was started.
    starts: u32,
    /// When its end was noticed, while it is not started again yet.
    ended: Option<Instant>,
    /// The names of the volumes that the claims must have, by claim.
    claims: BTreeMap<String, String>,
    _binder: JoinSet<()>,
}

impl Cluster {
    /// Starts all of it, and serves a first claim. Each volume takes the driver half a second, so that a
    /// claim which is created right before an outage is in the making when it comes.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        // One that the kernel gives to nobody while the server is away.
        let port = free_port().unwrap();
        let script = json!({"name": DRIVER, "create_volume": [{"delay_ms": 500}]});
        let around = Surroundings::start_at(port, script).await;
        let mut binder = JoinSet::new();
        let controllers = around.served.api().client(auth::admin());
        binder.spawn(binder::run(controllers, binder::Settings::default()));
        create_class(around.served.api(), "disk", &json!({}));
        let arguments = around.flags(&with_files(&around), &[&["-v=5"], flags].concat());
        let program = Provisioner::start(
            env!("CARGO_BIN_EXE_csi-provisioner"),
            &arguments,
            around.file("log-1"),
        );
        let (starts, ended, claims) = (1, None, BTreeMap::new());
        let mut cluster =
            Self { around, arguments, program, starts, ended, claims, _binder: binder };
        cluster.create("first");
        cluster.are_served("the first claim").await;
        cluster
    }

    pub(crate) fn api(&self) -> &ApiServer {
        self.around.served.api()
    }

    // === Claims ===

    /// Creates a claim of the ordinary class.
    pub(crate) fn create(&mut self, name: &str) {
        self.create_of(name, "disk");
    }

    /// Creates a claim of a class.
    pub(crate) fn create_of(&mut self, name: &str, class: &str) {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claim = self.api().create(&claim).unwrap();
        let volume = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
        self.claims.insert(name.to_owned(), volume);
    }

    /// Whether a claim is bound.
    pub(crate) fn is_bound(&self, name: &str) -> bool {
        let claim = self.api().get("PersistentVolumeClaim", "default", name).unwrap();
        claim["status"]["phase"] == "Bound"
    }

    /// Waits until this claim is bound; how long that took.
    pub(crate) async fn is_served(&mut self, name: &str) -> Duration {
        self.until(&format!("{name} is bound"), |it| it.is_bound(name)).await
    }

    /// Waits until all claims are bound; how long that took.
    pub(crate) async fn are_served(&mut self, what: &str) -> Duration {
        let all = |it: &Self| it.claims.keys().all(|name| it.is_bound(name));
        self.until(&format!("all are bound: {what}"), all).await
    }

    /// Waits until the driver has been asked for the claim's volume.
    pub(crate) async fn is_asked_for(&mut self, name: &str) {
        let volume = self.claims[name].clone();
        self.until("the driver is asked", |it| it.asked().contains(&volume)).await;
    }

    /// The names of the volumes that the driver was asked for.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        self.around.driver.journal().counts_by("CreateVolume", Some("name")).into_keys().collect()
    }

    // === Program ===

    /// Starts the program again some time after it has ended, as the kubelet does; otherwise does nothing.
    fn keep_running(&mut self) {
        if self.program.has_ended().is_some()
            && self.ended.get_or_insert_with(Instant::now).elapsed() >= BETWEEN_STARTS
        {
            self.ended = None;
            self.starts += 1;
            let log = self.around.file(&format!("log-{}", self.starts));
            self.program =
                Provisioner::start(env!("CARGO_BIN_EXE_csi-provisioner"), &self.arguments, log);
        }
    }

    /// Lets so much time pass.
    pub(crate) async fn keep_running_for(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.keep_running();
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the program has ended by itself; how it ended and what it logged.
    pub(crate) async fn has_ended(&mut self) -> (ExitStatus, String) {
        let ended = self.program.ended("the program ends").await;
        (ended, self.program.log())
    }

    /// Everything that has been logged since the program was first started.
    pub(crate) fn logs(&self) -> String {
        let log = |number| self.around.file(&format!("log-{number}"));
        (1..=self.starts).map(|number| fs::read_to_string(log(number)).unwrap()).collect()
    }

    /// Whether one process has been the leader all the time.
    pub(crate) fn has_led_throughout(&self) -> bool {
        let logs = self.logs();
        logs.matches("Successfully acquired lease").count() == 1
            && !logs.contains("Stopped leading")
            && self.starts == 1
    }

    /// How often the program was started.
    pub(crate) fn starts(&self) -> u32 {
        self.starts
    }

    // === Faults ===

    /// The driver's rules from now on.
    pub(crate) fn script(&self, script: Value) {
        self.around.driver.backend().amend(serde_json::from_value(script).unwrap());
    }

    /// Lets the driver serve on its socket again.
    pub(crate) fn listen(&self) {
        self.around.driver.listen(&self.around.file("csi.sock")).unwrap();
    }

    /// This befalls all requests of the program.
    pub(crate) fn strike(&self, effect: Effect) {
        let when = Match { user: Some(PROGRAM.to_owned()), ..Match::default() };
        self.api().faults().add(Rule { when, skip: 0, times: None, effect });
    }

    /// The API server gets a certificate of another authority and knows the program by another token; the
    /// files of both are exchanged.
    pub(crate) fn rotate_credentials(&mut self) {
        self.around.served.rotate_authority().unwrap();
        let account = CLIENTS.iter().find(|client| client.kubeconfig == "sa").unwrap();
        self.around.served.rotate_token(account, ROTATED);
        fs::write(self.around.file("token"), ROTATED).unwrap();
    }

    // === The end ===

    /// Waits until something holds, and keeps the program running meanwhile; how long that took.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}:\n{}", self.logs());
            self.keep_running();
            sleep(Duration::from_millis(50)).await;
        }
        start.elapsed()
    }

    /// Serves one more claim and checks that each claim has one volume and nothing was made beside them;
    /// then deletes all claims, and with them all volumes must go.
    pub(crate) async fn ends_soundly(mut self) {
        self.create("last");
        self.are_served("a claim after the outage").await;
        let expected: BTreeSet<String> = self.claims.values().cloned().collect();
        let volumes = self.api().list("PersistentVolume", "");
        let names = volumes.iter().map(|volume| volume["metadata"]["name"].as_str().unwrap());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        assert_eq!(names, expected.iter().cloned().collect::<Vec<_>>());
        assert_eq!(self.asked(), expected);
        let handles = expected.iter().map(|name| format!("vol-{name}")).collect();
        assert_eq!(self.around.driver.backend().volumes(), handles);

        for claim in self.claims.keys() {
            self.api().delete("PersistentVolumeClaim", "default", claim).unwrap();
        }
        let are_gone = |it: &Self| {
            ["PersistentVolumeClaim", "PersistentVolume"]
                .iter()
                .all(|kind| it.api().count(kind) == 0)
        };
        self.until("claims and volumes are gone", are_gone).await;
        assert_eq!(self.around.driver.backend().volumes(), BTreeSet::new());
        assert!(self.program.stop().await.success(), "{}", self.logs());
    }
}

/// A class of the driver.
pub(crate) fn create_class(api: &ApiServer, name: &str, parameters: &Value) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "reclaimPolicy": "Delete", "parameters": parameters,
    });
    api.create(&class).unwrap();
}

/// A kubeconfig that names the files of authority and token, as a pod has them.
fn with_files(around: &Surroundings) -> PathBuf {
    let token = CLIENTS.iter().find(|client| client.kubeconfig == "sa").unwrap().token;
    fs::write(around.file("token"), token).unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {
            "server": around.served.url(), "certificate-authority": around.served.layout().authority()}}],
        "users": [{"name": "pod", "user": {"tokenFile": around.file("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
    });
    let path = around.file("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}
