//! A control plane with three tenants, one for each mode of `--claim-protection`. Each tenant has a
//! namespace, a driver and a process of the program of its own.
//!
//! A tenant's user may create, get, list, patch and delete claims of its namespace, and nothing else. The
//! names of all objects contain the tenant's, so that tenants do not affect each other.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, resume_unwind},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures::{FutureExt as _, future::join_all};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    apiserver::serve::manifests,
    control_plane::{ControlPlane, Controllers, TemporaryDirectory},
    driver::{Host, Script, Scripted},
    merged,
    ports::free_port,
    web,
};
use tokio::time::{Instant, sleep};

use support::process::{Provisioner, beside};

/// The program's finalizer on a claim whose CreateVolume may still run.
pub(crate) const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";

/// The program's record of that call.
pub(crate) const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";

/// The program's finalizer on a claim that is being cloned.
pub(crate) const CLONING: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// A finalizer of the tenant's own.
pub(crate) const HELD: &str = "example.com/held";

/// The annotation that names a claim's provisioner.
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// The user of the program.
const PROGRAM: &str = "system:serviceaccount:default:csi-provisioner";

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a test waits for calls that must not come.
const QUIET: Duration = Duration::from_millis(1500);

const MODES: [&str; 3] = ["auto", "always", "off"];

/// An API server, and who binds claims there.
struct Plane {
    /// Distinguishes the objects of a test from those of others, where a cluster keeps them.
    id: String,
    control: ControlPlane,
    admin: Client,
    directory: TemporaryDirectory,
    _controllers: Controllers,
}

impl Plane {
    async fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number}", std::process::id());
        let control = ControlPlane::start().await.unwrap();
        let admin = control.client("admin").await.unwrap();
        let controllers = control.controllers().await.unwrap();
        let directory = TemporaryDirectory::new().unwrap();
        Self { id, control, admin, directory, _controllers: controllers }
    }

    async fn apply(&self, object: Value) {
        manifests::apply(&self.admin, &[object]).await.unwrap();
    }

    async fn namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(namespace).await;
    }
}

/// A tenant, with what an admin and the program do for it.
pub(crate) struct Tenant<'a> {
    plane: &'a Plane,
    mode: &'static str,
    /// The driver that serves the tenant's claims.
    pub(crate) driver: Host<Scripted>,
    user: Client,
    /// Where the program serves its metrics.
    port: u16,
    program: Option<Provisioner>,
    /// The claims that [`Self::settle`] made, by the names of their volumes.
    sentinels: Vec<String>,
    /// Name and UID of every claim.
    claims: RefCell<Vec<(String, String)>>,
}

/// Runs an attack with each mode. All of them run to their end, also after a failure.
pub(crate) async fn in_each_mode(attack: impl AsyncFn(&mut Tenant<'_>)) {
    let plane = Plane::start().await;
    let attacks = MODES.map(|mode| {
        let attack = &attack;
        let plane = &plane;
        let run = async move {
            let mut tenant = Tenant::new(plane, mode).await;
            attack(&mut tenant).await;
            tenant.driver.stop();
        };
        async move { AssertUnwindSafe(run).catch_unwind().await.map_err(|panic| (mode, panic)) }
    });
    let ended = join_all(attacks).await;
    let failed: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    let modes: Vec<_> = failed.iter().map(|(mode, _)| *mode).collect();
    if let Some((_, panic)) = failed.into_iter().next() {
        eprintln!("failed with --claim-protection of {modes:?}");
        resume_unwind(panic);
    }
}

impl<'a> Tenant<'a> {
    async fn new(plane: &'a Plane, mode: &'static str) -> Self {
        let namespace = format!("tenant-{mode}-{}", plane.id);
        plane.namespace(&namespace).await;
        for object in rights(&namespace) {
            plane.apply(object).await;
        }
        let user = plane.control.account(&namespace, "user").await.unwrap();
        let name = format!("disk-{mode}-{}.example.com", plane.id);
        let script = Script { name: Some(name), ..Script::default() };
        let driver = Host::new(Scripted::new(script));
        driver.listen(&plane.directory.path().join(format!("{mode}.sock"))).unwrap();
        let port = free_port().unwrap();
        let (program, sentinels, claims) = (None, Vec::new(), RefCell::default());
        let tenant = Self { plane, mode, driver, user, port, program, sentinels, claims };
        tenant.class("fast", &json!({})).await;
        tenant
    }

    // === Names ===

    /// The driver's name.
    pub(crate) fn driver_name(&self) -> String {
        format!("{}.example.com", self.own("disk"))
    }

    /// The name of the tenant's own among objects that have no namespace.
    pub(crate) fn own(&self, name: &str) -> String {
        format!("{name}-{}-{}", self.mode, self.plane.id)
    }

    fn namespace(&self) -> String {
        self.own("tenant")
    }

    // === What an admin does ===

    /// Makes a class of the driver that says Delete, changed by a merge of `change`.
    pub(crate) async fn class(&self, name: &str, change: &Value) {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.own(name)}, "provisioner": self.driver_name(),
            "reclaimPolicy": "Delete",
        });
        self.plane.apply(merged(class, change)).await;
    }

    /// Makes any object.
    pub(crate) async fn apply(&self, object: Value) {
        self.plane.apply(object).await;
    }

    /// Makes a namespace of its own beside the tenant's; its name.
    pub(crate) async fn other_namespace(&self, name: &str) -> String {
        let name = self.own(name);
        self.plane.namespace(&name).await;
        name
    }

    /// The kubeconfig of an admin.
    pub(crate) fn admins_kubeconfig(&self) -> PathBuf {
        self.plane.control.layout().kubeconfig("admin")
    }

    /// All volumes of the tenant's claims.
    pub(crate) async fn volumes(&self) -> Vec<Value> {
        let all = list(&Api::<PersistentVolume>::all(self.plane.admin.clone())).await;
        let own = |volume: &Value| volume["spec"]["claimRef"]["namespace"] == self.namespace();
        all.into_iter().filter(own).collect()
    }

    /// All events in the tenant's namespace.
    pub(crate) async fn events(&self) -> Vec<Value> {
        let events = Api::<Event>::namespaced(self.plane.admin.clone(), &self.namespace());
        list(&events).await
    }

    /// Whether a Warning about the claim was emitted.
    pub(crate) async fn is_warned_of(&self, name: &str) -> bool {
        let about = |event: &Value| event["involvedObject"]["name"] == name;
        self.events().await.iter().any(|event| about(event) && event["type"] == "Warning")
    }

    async fn class_uid(&self, class: &str) -> Value {
        let classes = Api::all(self.plane.admin.clone());
        let class: k8s_openapi::api::storage::v1::StorageClass = classes.get(class).await.unwrap();
        json!(class.metadata.uid)
    }

    /// How often the program has read a secret of this namespace; 0 where there is no audit log.
    pub(crate) fn secrets_read(&self, namespace: &str) -> usize {
        let Some(audit) = self.plane.control.audit() else { return 0 };
        let log = std::fs::read_to_string(audit).unwrap();
        let requests = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_programs = |request: &Value| request["user"]["username"] == PROGRAM;
        let objects = requests.filter(is_programs).map(|request| request["objectRef"].clone());
        let objects: Vec<_> = objects.collect();
        assert!(objects.iter().any(|it| it["resource"] == "persistentvolumeclaims"), "{PROGRAM}");
        let is_read = |it: &&Value| it["resource"] == "secrets" && it["namespace"] == namespace;
        objects.iter().filter(is_read).count()
    }

    // === What the tenant does ===

    fn api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.user.clone(), &self.namespace())
    }

    /// Creates a claim of the class, changed by a merge of `change`.
    pub(crate) async fn create(&self, name: &str, change: &Value) -> Value {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": self.own("fast"), "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        let claim = serde_json::from_value(merged(claim, change)).unwrap();
        let made = self.api().create(&PostParams::default(), &claim).await.unwrap();
        let made = serde_json::to_value(made).unwrap();
        self.claims.borrow_mut().push((name.to_owned(), uid(&made).to_owned()));
        made
    }

    /// Merges `patch` into a claim.
    pub(crate) async fn patch(&self, name: &str, patch: &Value) {
        let params = PatchParams::default();
        self.api().patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Writes a record of an open call on a claim.
    pub(crate) async fn forge(&self, name: &str, record: &Value) {
        let text = record.to_string();
        self.patch(name, &json!({"metadata": {"annotations": {RECORD: text}}})).await;
    }

    /// Deletes a claim, which stays while it has finalizers.
    pub(crate) async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The claim, while it exists.
    pub(crate) async fn get(&self, name: &str) -> Option<Value> {
        let claim = self.api().get_opt(name).await.unwrap();
        claim.map(|claim| serde_json::to_value(claim).unwrap())
    }

    /// Whether the claim is bound.
    pub(crate) async fn is_bound(&self, name: &str) -> bool {
        self.get(name).await.is_some_and(|claim| claim["status"]["phase"] == "Bound")
    }

    /// Whether the program's finalizer or its record are on the claim.
    pub(crate) async fn is_marked(&self, name: &str) -> bool {
        let Some(claim) = self.get(name).await else { return false };
        let finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.contains(&json!(FINALIZER))
            || claim["metadata"]["annotations"][RECORD].is_string()
    }

    /// The record of an open call of the claim as the program writes it, changed by a merge of `change`.
    pub(crate) async fn record(&self, claim: &Value, change: &Value) -> Value {
        let class = claim["spec"]["storageClassName"].as_str().unwrap();
        let record = json!({
            "driver": self.driver_name(), "volume": volume_name(claim), "class": class,
            "classUid": self.class_uid(class).await, "since": "2026-01-01T00:00:00Z",
        });
        merged(record, change)
    }

    // === The program ===

    /// Starts the program.
    pub(crate) fn start(&mut self, flags: &[&str]) {
        let layout = self.plane.control.layout();
        let mut arguments = vec![
            format!("--kubeconfig={}", layout.kubeconfig("sa").display()),
            format!("--csi-address={}", self.file("sock").display()),
            format!("--claim-protection={}", self.mode),
            format!("--http-endpoint=127.0.0.1:{}", self.port),
            "--retry-interval-start=100ms".to_owned(),
            "--retry-interval-max=500ms".to_owned(),
            "--v=5".to_owned(),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        self.program = Some(Provisioner::start(
            env!("CARGO_BIN_EXE_csi-provisioner"),
            &arguments,
            self.file("log"),
        ));
    }

    /// Stops the program in order.
    pub(crate) async fn stop(&mut self) {
        if let Some(mut program) = self.program.take() {
            assert!(program.stop().await.success(), "{}", program.log());
        }
    }

    /// Runs the command that lists the records for an admin; what it prints.
    pub(crate) async fn list_records(&self) -> String {
        let kubeconfig = format!("--kubeconfig={}", self.admins_kubeconfig().display());
        let arguments = ["release-claims".to_owned(), kubeconfig];
        let run = move || {
            let cli = beside(env!("CARGO_BIN_EXE_csi-provisioner"), "kubectl-csi_provisioner");
            let mut program = Command::new(cli);
            program.args(&arguments).env_clear().output().unwrap()
        };
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        let printed = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&printed).into_owned()
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.plane.directory.path().join(format!("{}.{extension}", self.mode))
    }

    /// What the program that was started last has logged.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.file("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The sum of all values of a metric of the program.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = web::page(self.port, "/metrics").await;
        let samples = page.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// The requests of all calls for volumes, but for those of the claims of [`Self::settle`].
    pub(crate) fn requests(&self) -> Vec<Value> {
        let calls = self.driver.journal().calls().into_iter();
        let creates = calls.filter(|call| call.method == "CreateVolume").map(|call| call.request);
        let is_other =
            |request: &Value| !self.sentinels.iter().any(|name| request["name"] == *name);
        creates.filter(is_other).collect()
    }

    /// The claims that the driver was asked for, in order.
    pub(crate) fn served(&self) -> Vec<String> {
        let claims = self.claims.borrow();
        let claim = |name: String| {
            let made_of = claims.iter().find(|(_, uid)| name.contains(uid));
            made_of.map_or_else(|| name.clone(), |(claim, _)| claim.clone())
        };
        self.names().into_iter().map(claim).collect()
    }

    /// The names of the volumes that the driver was asked for, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |request: Value| request["name"].as_str().unwrap_or_default().to_owned();
        self.requests().into_iter().map(name).collect()
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self).await {
            let log = self.log();
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}:\n{log}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the program has served a claim that is created now, and then for calls for the claims
    /// before it.
    pub(crate) async fn settle(&mut self) {
        let name = format!("sentinel-{}", self.sentinels.len());
        let claim = self.create(&name, &json!({})).await;
        self.sentinels.push(volume_name(&claim));
        self.until("an ordinary claim is served", async |tenant| tenant.is_bound(&name).await)
            .await;
        sleep(QUIET).await;
    }
}

/// The tenant's rights.
fn rights(namespace: &str) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "user", "namespace": namespace});
    let verbs = ["create", "get", "list", "patch", "delete"];
    [
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": verbs}],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "user"},
        }),
    ]
}

/// The name that the flags give the volume of a claim.
pub(crate) fn volume_name(claim: &Value) -> String {
    format!("pvc-{}", uid(claim))
}

/// The claim's UID.
pub(crate) fn uid(claim: &Value) -> &str {
    claim["metadata"]["uid"].as_str().unwrap()
}

/// A claim's finalizers, for [`Tenant::create`].
pub(crate) fn finalizers(names: &[&str]) -> Value {
    json!({"metadata": {"finalizers": names}})
}

async fn list<K>(api: &Api<K>) -> Vec<Value>
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let objects = api.list(&ListParams::default()).await.unwrap();
    objects.items.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}
