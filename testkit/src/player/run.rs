//! One run of a scenario: its steps, carried out.
//!
//! Owns the driver, the processes and the notes of the run. Promises that nothing it started is
//! left when it is over, however it ends. Leaves the judging to `verdict`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    api::{Address, Api, ApiError, NAMESPACE},
    cluster::{Cluster, ClusterError, Scratch},
    explained::{self, Explained},
    invocation::{Invocation, MAIN, Places, invocation},
    leak::{self, Leak},
    names::Names,
    note,
    outcome::{COLLECTED, Outcome, Remains, outcome},
    process::{ProcessError, Processes, last_lines},
    python, rights,
    rights::RightsError,
    scenario::{Launch, ProcessName, Rights, Scenario, Serving, Step, Trial, Wait},
    shadowed::{self, Findings, SHADOW},
    wait::{ClusterView, met, named},
    web,
};
use crate::{
    apiserver::serve::manifests::{self, ManifestError},
    driver::{Host, Scripted},
    ports::free_port,
};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Seconds of rest after the last step.
const LAST_REST: f64 = 0.6;
/// How much of what the last process printed is reported.
const LAST_LINES: usize = 8;
/// Seconds that a tried process gets.
const PATIENCE: f64 = 8.0;

/// Why a run broke off.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The API server did not do what the scenario asks.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A process could not be handled.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Rights could not be changed.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The environment cannot be set up.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The driver's socket cannot be served.
    #[error("cannot serve the driver's socket: {0}")]
    Socket(std::io::Error),
    /// What the scenario took away from the API server can't be put back.
    #[error(transparent)]
    Manifests(#[from] ManifestError),
    /// The command could not be run.
    #[error("cannot run kubectl csi-provisioner explain: {0}")]
    Explain(std::io::Error),
    /// A log contains what it must not.
    #[error(transparent)]
    Leak(#[from] Leak),
}

/// What a scenario is played with beside the provisioner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside<'a> {
    /// Nothing.
    Nothing,
    /// Claims without a PersistentVolume are explained at its end, by this CLI.
    Explain(&'a Path),
    /// A process of this program in shadow mode compares.
    Shadow(&'a Path),
}

/// A scenario being played.
pub(super) struct Run<'a> {
    pub(super) scenario: &'a Scenario,
    cluster: &'a Cluster,
    binary: &'a Path,
    conformance: &'a Path,
    api: Api,
    pub(super) driver: Host<Scripted>,
    pub(super) names: Names,
    pub(super) processes: Processes,
    notes: Vec<Value>,
    problems: Vec<String>,
    /// How often a condition was looked at, and how long all that took.
    looks: (u32, Duration),
    /// Of the service account with less rights, once there is one.
    kubeconfig: Option<PathBuf>,
    scratch: Scratch,
    beside: Beside<'a>,
    /// The port of the process in shadow mode, once it runs.
    shadow: Option<u16>,
}

/// What a scenario came to.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// How many times as long as it should its waiting for 50 ms took: 1 on a machine that keeps up.
    pub(super) slowness: f64,
    /// The last lines that its last process printed.
    pub(super) said: String,
    /// What was said about claims without a PersistentVolume, if that was asked.
    pub(super) explained: Vec<Explained>,
    /// What shadow mode found.
    pub(super) shadow: Findings,
}

/// Plays a scenario.
pub(super) async fn play(
    scenario: &Scenario,
    cluster: &Cluster,
    binary: &Path,
    conformance: &Path,
    beside: Beside<'_>,
) -> Result<Ended, RunError> {
    let mut run = Run::new(scenario, cluster, binary, conformance, beside)?;
    let result = run.all().await;
    let explained = match beside {
        Beside::Explain(cli) => {
            // What is explained must not change meanwhile.
            run.processes.suspend(true);
            let explained = run.explain(cli).await;
            run.processes.suspend(false);
            explained
        }
        _ => Ok(Vec::new()),
    };
    let shadow = run.shadow_findings().await;
    run.processes.end_all().await;
    run.driver.stop();
    if scenario.lacks_snapshots() {
        manifests::apply(&cluster.admin, &manifests::embedded()?).await?;
    }
    for (process, log) in run.processes.logs() {
        leak::search(process, &log)?;
    }
    let said = last_lines(&run.processes.last_log(), LAST_LINES);
    let slowness = run.slowness();
    Ok(Ended { outcome: result?, slowness, said, explained: explained?, shadow: shadow? })
}

impl<'a> Run<'a> {
    fn new(
        scenario: &'a Scenario,
        cluster: &'a Cluster,
        binary: &'a Path,
        conformance: &'a Path,
        beside: Beside<'a>,
    ) -> Result<Self, RunError> {
        let scratch = Scratch::new()?;
        let socket = scratch.path().join("csi.sock").display().to_string();
        Ok(Self {
            scenario,
            cluster,
            binary,
            conformance,
            api: Api::new(cluster.admin.clone()),
            driver: Host::new(Scripted::new(scenario.driver.clone())),
            names: Names { uids: Vec::new(), socket },
            processes: Processes::default(),
            notes: Vec::new(),
            problems: Vec::new(),
            looks: <_>::default(),
            kubeconfig: None,
            scratch,
            beside,
            shadow: None,
        })
    }

    async fn all(&mut self) -> Result<Outcome, RunError> {
        let scenario = self.scenario;
        for step in &scenario.steps {
            if let Step::Note(note) = step {
                note::remove_leftover(&note.subject);
            }
        }
        self.api.clean().await?;
        if scenario.lacks_snapshots() {
            self.api.forget_snapshots().await?;
        }
        if scenario.serve {
            self.serve(Serving::Start)?;
        }
        if let Some(rights) = &scenario.rbac {
            self.limit(rights).await?;
        }
        self.create(&scenario.objects).await?;
        if scenario.autostart {
            self.start_with_shadow(&Launch::default()).await?;
        }
        for step in &scenario.steps {
            self.step(step).await?;
        }
        sleep(seconds(scenario.settle.unwrap_or(LAST_REST))).await;
        self.outcome().await
    }

    /// Asks about each claim that has no PersistentVolume.
    async fn explain(&self, cli: &Path) -> Result<Vec<Explained>, RunError> {
        let claims = self.api.list("PersistentVolumeClaim").await?;
        let volumes = self.api.list("PersistentVolume").await?;
        let mut explained = Vec::new();
        for claim in explained::unserved(&claims, &volumes) {
            let kubeconfig = self.cluster.directory.join("admin.kubeconfig");
            let flags = &self.scenario.flags;
            explained.push(explained::ask(cli, kubeconfig, flags, claim).await?);
        }
        Ok(explained)
    }

    async fn step(&mut self, step: &Step) -> Result<(), RunError> {
        match step {
            Step::Create(objects) => self.create(objects).await?,
            Step::Delete(it) => {
                let name = named(&it.name, self).await;
                let address = address(&it.kind, it.namespace.as_deref(), &name);
                self.api.delete(address, it.maybe).await?;
            }
            Step::Patch(it) => {
                let name = named(&it.name, self).await;
                let mut patch = self.names.fill(&it.merge);
                leak::salt(&it.kind, &mut patch);
                let address = address(&it.kind, it.namespace.as_deref(), &name);
                self.api.merge(address, it.subresource.as_deref(), &patch).await?;
            }
            Step::Wait(wait) => self.wait(wait).await,
            Step::Settle(rest) => sleep(seconds(*rest)).await,
            Step::Driver(script) => self.driver.backend().amend((**script).clone()),
            Step::Stop { signal, process, nowait } => {
                self.processes.signal(process, signal, *nowait).await?;
            }
            Step::Start(launch) => self.start_with_shadow(launch).await?,
            Step::Server(serving) => self.serve(*serving)?,
            Step::Rbac(rights) => self.limit(rights).await?,
            Step::Try(trial) => self.attempt(trial).await?,
            Step::Note(note) => {
                let got = self.look(&note.subject).await;
                self.notes.push(json!({"note": note.title, "got": got}));
            }
        }
        Ok(())
    }

    async fn create(&mut self, objects: &[Value]) -> Result<(), RunError> {
        for object in objects {
            let mut object = self.names.fill(object);
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            leak::salt(&kind, &mut object);
            let made = self.api.create(object).await?;
            self.names.learn(&made);
        }
        Ok(())
    }

    async fn wait(&mut self, wait: &Wait) {
        let began = Instant::now();
        let mut looked = began;
        while !met(&wait.until, self).await {
            if began.elapsed().as_secs_f64() > wait.timeout {
                self.problems.push(format!("timed out: {}", python::dumps(&wait.source)));
                return;
            }
            sleep(POLL_INTERVAL).await;
            self.looks = (self.looks.0 + 1, self.looks.1 + looked.elapsed());
            looked = Instant::now();
        }
    }

    fn slowness(&self) -> f64 {
        let (looks, took) = self.looks;
        let should = POLL_INTERVAL * looks.max(1);
        (took.as_secs_f64() / should.as_secs_f64()).max(1.0)
    }

    fn serve(&self, serving: Serving) -> Result<(), RunError> {
        match serving {
            Serving::Start => {
                self.driver.listen(Path::new(&self.names.socket)).map_err(RunError::Socket)
            }
            Serving::Stop => {
                self.driver.stop();
                Ok(())
            }
        }
    }

    async fn limit(&mut self, rights: &Rights) -> Result<(), RunError> {
        rights::grant(rights, &self.api, self.conformance).await?;
        if self.kubeconfig.is_none() {
            let target = self.scratch.path().join("scenario.kubeconfig");
            rights::kubeconfig(&self.api, &self.cluster.directory, &target).await?;
            self.kubeconfig = Some(target);
        }
        Ok(())
    }

    /// Starts a process; with the main one also shadow mode, if that is to run beside it.
    async fn start_with_shadow(&mut self, launch: &Launch) -> Result<(), RunError> {
        let is_main = launch.process.as_deref().is_none_or(|name| name == MAIN);
        if let (true, Beside::Shadow(program)) = (is_main, self.beside) {
            let main = self.invocation(launch);
            self.start_shadow(program, &main).await?;
        }
        self.start(launch).await
    }

    async fn start(&mut self, launch: &Launch) -> Result<(), RunError> {
        let name = launch.process.as_deref().unwrap_or(MAIN);
        let invocation = self.invocation(launch);
        Ok(self.processes.start(name, self.binary, &invocation, self.scratch.path()).await?)
    }

    fn invocation(&self, launch: &Launch) -> Invocation {
        let user = self.scenario.kubeconfig.as_deref().unwrap_or("sa");
        let common = self.cluster.directory.join(format!("{user}.kubeconfig"));
        let places = Places {
            socket: &self.names.socket,
            http: self.cluster.http,
            kubeconfig: self.kubeconfig.as_deref().unwrap_or(&common),
            path: &std::env::var("PATH").unwrap_or_default(),
        };
        invocation(self.scenario, launch, places)
    }

    /// Starts shadow mode beside the provisioner, with its flags; in place of an earlier one.
    async fn start_shadow(&mut self, program: &Path, main: &Invocation) -> Result<(), RunError> {
        self.shadow = None;
        if self.processes.exit(&ProcessName::Named(SHADOW.to_owned())).is_none() {
            self.processes.end(&ProcessName::Named(SHADOW.to_owned())).await;
        }
        let port = free_port().map_err(RunError::Socket)?;
        let kubeconfig = self.cluster.directory.join("admin.kubeconfig");
        let driver = self.driver.backend();
        if let Some(shadow) = shadowed::invocation(main, driver, &kubeconfig, port) {
            self.processes.start(SHADOW, program, &shadow, self.scratch.path()).await?;
            self.shadow = Some(port);
        }
        Ok(())
    }

    /// What shadow mode found. The claims that exist with their PersistentVolumes must have been compared.
    async fn shadow_findings(&self) -> Result<Findings, RunError> {
        let Some(port) = self.shadow else { return Ok(Findings::default()) };
        let exit = |name: &str| self.processes.exit(&ProcessName::Named(name.to_owned()));
        // Flags that are refused are refused by both.
        if exit(SHADOW).is_some() && exit(SHADOW) == exit(MAIN) {
            return Ok(Findings::default());
        }
        let claims = self.api.list("PersistentVolumeClaim").await?;
        let volumes = self.api.list("PersistentVolume").await?;
        Ok(shadowed::findings(port, shadowed::served(&claims, &volumes)).await)
    }

    /// Starts a process, sees what becomes of it, and ends it.
    async fn attempt(&mut self, trial: &Trial) -> Result<(), RunError> {
        let process = if trial.http == Some(false) { "try" } else { MAIN };
        let launch = Launch {
            process: Some(process.to_owned()),
            flags: trial.flags.clone().unwrap_or_default(),
            raw_flags: trial.raw_flags.clone(),
            env: trial.env.clone(),
            hostname: trial.hostname.clone(),
            http: trial.http,
        };
        self.start(&launch).await?;
        let name = ProcessName::Named(process.to_owned());
        let got = self.fate(&name, trial).await;
        self.processes.end(&name).await;
        self.notes.push(json!({"try": title(trial), "got": got}));
        Ok(())
    }

    /// What becomes of a tried process: it ends, it runs, or neither shows in time.
    async fn fate(&self, name: &ProcessName, trial: &Trial) -> Value {
        let began = Instant::now();
        let patience = trial.patience.unwrap_or(PATIENCE);
        while began.elapsed().as_secs_f64() < patience {
            if let Some(code) = self.processes.exit(name) {
                return json!({"exit": code});
            }
            let ready = self.http(trial.ready.as_deref().unwrap_or("/metrics")).await;
            if ready.is_some_and(|(status, _)| status == 200) {
                return "runs".into();
            }
            sleep(POLL_INTERVAL).await;
        }
        "neither".into()
    }

    async fn outcome(&mut self) -> Result<Outcome, RunError> {
        let mut objects = BTreeMap::new();
        for kind in COLLECTED {
            objects.insert(kind.to_owned(), self.api.list(kind).await?);
        }
        let calls = self.driver.journal().calls();
        let remains = Remains {
            objects,
            calls: calls.into_iter().map(|c| (c.method.to_owned(), c.request)).collect(),
            notes: std::mem::take(&mut self.notes),
            problems: std::mem::take(&mut self.problems),
            metrics: self.http("/metrics").await.map(|(_, page)| page),
            exit: self.processes.exit(&ProcessName::Main).into(),
        };
        Ok(outcome(remains, self.scenario.into(), &mut self.names))
    }

    /// An object, or the server's word on it.
    pub(super) async fn object(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> (u16, Value) {
        // Waits ask a server again that is away for a moment.
        let answer = self.api.get(address(kind, namespace, name)).await;
        answer.unwrap_or_else(|_| (0, json!({})))
    }
}

/// A step's object; without a namespace in the scenario's own.
fn address<'b>(kind: &'b str, namespace: Option<&'b str>, name: &'b str) -> Address<'b> {
    Address { kind, namespace: Some(namespace.unwrap_or(NAMESPACE)), name }
}

/// What a trial's note is called: its title, or its flags.
fn title(trial: &Trial) -> Value {
    let flags = |flags: &Option<Vec<String>>| flags.clone().filter(|flags| !flags.is_empty());
    match (trial.say.as_ref().filter(|say| !say.is_empty()), flags(&trial.flags)) {
        (Some(say), _) => json!(say),
        (None, Some(flags)) => json!(flags),
        (None, None) => json!(trial.raw_flags),
    }
}

fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

impl ClusterView for Run<'_> {
    async fn list(&self, kind: &str) -> Vec<Value> {
        self.api.list(kind).await.unwrap_or_default()
    }

    async fn get(&self, kind: &str, namespace: Option<&str>, name: &str) -> (u16, Value) {
        self.object(kind, namespace, name).await
    }

    async fn http(&self, path: &str) -> Option<(u16, String)> {
        web::get(self.cluster.http, path).await
    }

    fn calls(&self, method: &str) -> usize {
        self.driver.journal().count(method)
    }

    fn calls_by(&self, method: &str, by: Option<&str>) -> BTreeMap<String, usize> {
        self.driver.journal().counts_by(method, by)
    }

    fn exit(&self, process: &ProcessName) -> Option<i32> {
        self.processes.exit(process)
    }
}
