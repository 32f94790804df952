//! One run of a scenario: its steps, what it waits for and what it notes. Nothing that it started is left when it is
//! over, however it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use regex::Regex;
use serde_json::{Value, json};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{
    PlayError,
    api::{Address, Api, NAMESPACE},
    leak,
    names::Names,
    outcome::{COLLECTED, Outcome, Remains, outcome, series, text},
    process::{self, Invocation, MAIN, Places, Processes},
    rights,
    runner::Cluster,
    scenario::{Launch, Note, ProcessName, Rights, Scenario, Step, Subject, Trial, Until, Wait},
    shadowed::{self, Findings, SHADOW},
    verdict::{Expected, TIMED_OUT},
    yaml,
};
use crate::{
    apiserver::serve::manifests,
    control_plane::TemporaryDirectory,
    driver::{Host, Scripted},
    ports::free_port,
    program::last_lines,
    until, web,
};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// For how long an outcome that is not the expected one is looked at again.
const PATIENCE: Duration = Duration::from_secs(15);
/// For how long at least something is waited for that is expected to come.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What is meant where no object is.
const NOBODY: &str = "none";
/// How much of what the last process printed is reported.
const LAST_LINES: usize = 8;

/// What is played beside the provisioner: the CLI.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    /// Its file. A process of it in shadow mode compares.
    pub(super) cli: &'a Path,
    /// Whether it explains the claims that have no PersistentVolume at the end.
    pub(super) explains: bool,
}

/// What was said about a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// The exit code.
    pub code: i32,
    /// What was printed.
    pub text: String,
}

/// A scenario being played.
struct Run<'a> {
    scenario: &'a Scenario,
    cluster: &'a Cluster,
    binary: &'a Path,
    conformance: &'a Path,
    api: Api,
    driver: Host<Scripted>,
    names: Names,
    processes: Processes,
    notes: Vec<Value>,
    problems: Vec<String>,
    /// Of the service account with less rights, once there is one.
    kubeconfig: Option<PathBuf>,
    scratch: TemporaryDirectory,
    beside: Option<Beside<'a>>,
    expected: &'a Expected<'a>,
    /// The port of the process in shadow mode, once it runs.
    shadow: Option<u16>,
}

/// What a scenario came to.
pub(super) struct Ended {
    /// In what its outcome is not as expected.
    pub(super) found: Vec<Value>,
    /// The last lines that its last process printed.
    pub(super) said: String,
    /// What was said about claims without a PersistentVolume, if that was asked.
    pub(super) explained: Vec<Explained>,
    pub(super) shadow: Findings,
}

/// Plays a scenario.
pub(super) async fn play(
    scenario: &Scenario,
    cluster: &Cluster,
    binary: &Path,
    conformance: &Path,
    beside: Option<Beside<'_>>,
    expected: &Expected<'_>,
) -> Result<Ended, PlayError> {
    let scratch = TemporaryDirectory::new()?;
    let socket = scratch.path().join("csi.sock").display().to_string();
    let mut run = Run {
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
        kubeconfig: None,
        scratch,
        beside,
        expected,
        shadow: None,
    };
    let result = run.all().await;
    let explained = match beside {
        Some(Beside { cli, explains: true }) => {
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
    let mut said = String::new();
    for (process, log) in run.processes.logs() {
        leak::search(process, &log)?;
        said = last_lines(&log, LAST_LINES);
    }
    let found = result?;
    Ok(Ended { found, said, explained: explained?, shadow: shadow? })
}

impl Run<'_> {
    /// Plays all; returns what it came to, and in what that is not as expected.
    async fn all(&mut self) -> Result<Vec<Value>, PlayError> {
        let began = Instant::now();
        let scenario = self.scenario;
        for note in scenario.steps.iter().filter_map(|step| step.note.as_ref()) {
            if let (Some(file), true) = (&note.subject.file, note.subject.remove) {
                // What an earlier run left; it is rarely there.
                let _ = fs::remove_file(file);
            }
        }
        self.api.clean().await?;
        if scenario.lacks_snapshots() {
            self.api.forget_snapshots().await?;
        }
        if scenario.serve {
            self.driver.listen(Path::new(&self.names.socket))?;
        }
        if let Some(rights) = &scenario.rbac {
            self.limit(rights).await?;
        }
        self.create(&scenario.objects).await?;
        if scenario.autostart {
            self.start(&Launch::default()).await?;
        }
        for step in &scenario.steps {
            self.step(step).await?;
        }
        rest(seconds(scenario.settle.unwrap_or(0.6))).await;
        // What is late on a busy machine still comes; what is too much stays.
        let last = Instant::now() + PATIENCE;
        loop {
            let outcome = self.outcome().await?;
            let tries = process::tries_within(began.elapsed(), scenario);
            let found = self.expected.differences(&outcome, tries);
            let is_last = Instant::now() >= last || self.expected.is_exceeded(&outcome, tries);
            if is_last || found.is_empty() {
                return Ok(found);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), PlayError> {
        match step {
            Step { create: Some(objects), .. } => self.create(objects).await?,
            Step { delete: Some(it), .. } => {
                let name = self.named(&it.name).await;
                let address = address(&it.kind, it.namespace.as_deref(), &name);
                self.api.delete(address, it.maybe).await?;
            }
            Step { patch: Some(it), .. } => {
                let name = self.named_by_now(&it.name).await;
                if it.kind == "PersistentVolume" {
                    // Shadow mode compares it as it was made.
                    self.shadow_findings().await?;
                }
                let mut patch = self.names.fill(&it.merge);
                leak::salt(&it.kind, &mut patch);
                let address = address(&it.kind, it.namespace.as_deref(), &name);
                self.api.merge(address, it.subresource.as_deref(), &patch).await?;
            }
            Step { wait: Some(wait), .. } => self.wait(wait).await,
            Step { settle: Some(time), .. } => rest(seconds(*time)).await,
            Step { driver: Some(script), .. } => self.driver.backend().amend((**script).clone()),
            Step { stop: Some(signal), process, nowait, .. } => {
                let process = process.clone().map_or(ProcessName::Main(true), ProcessName::Named);
                self.processes.signal(&process, signal, *nowait).await?;
            }
            Step { start: Some(launch), .. } => self.start(launch).await?,
            Step { server: Some(what), .. } if what == "start" => {
                self.driver.listen(Path::new(&self.names.socket))?;
            }
            Step { server: Some(_), .. } => self.driver.stop(),
            Step { rbac: Some(rights), .. } => self.limit(rights).await?,
            Step { r#try: Some(trial), .. } => self.attempt(trial).await?,
            Step { note: Some(note), .. } => self.note(note).await?,
            _ => return Err("a step does nothing".into()),
        }
        Ok(())
    }

    async fn create(&mut self, objects: &[Value]) -> Result<(), PlayError> {
        for object in objects {
            let mut object = self.names.fill(object);
            let kind = text(&object, "/kind").to_owned();
            leak::salt(&kind, &mut object);
            let made = self.api.create(object).await?;
            self.names.learn(&made);
        }
        Ok(())
    }

    async fn limit(&mut self, rights: &Rights) -> Result<(), PlayError> {
        rights::grant(rights, &self.api, self.conformance).await?;
        if self.kubeconfig.is_none() {
            let (namespace, name) = rights::ACCOUNT;
            self.cluster.plane.account(namespace, name).await?;
            self.kubeconfig = Some(self.cluster.kubeconfig(&format!("{namespace}.{name}")));
        }
        Ok(())
    }

    // === Processes ===

    /// Starts a process; with the main one also shadow mode, if that is to run beside it.
    async fn start(&mut self, launch: &Launch) -> Result<(), PlayError> {
        let user = self.scenario.kubeconfig.as_deref().unwrap_or("sa");
        let common = self.cluster.kubeconfig(user);
        let kubeconfig = self.kubeconfig.as_deref().unwrap_or(&common);
        let places = Places { socket: &self.names.socket, http: self.cluster.http, kubeconfig };
        let invocation = Invocation::new(self.scenario, launch, places);
        let name = launch.process.as_deref().unwrap_or(MAIN);
        if let (true, Some(Beside { cli, .. })) = (name == MAIN, self.beside) {
            self.start_shadow(cli, &invocation).await?;
        }
        self.processes.start(name, self.binary, &invocation, self.scratch.path()).await
    }

    /// Starts shadow mode beside the provisioner, with its flags; in place of an earlier one.
    async fn start_shadow(&mut self, program: &Path, main: &Invocation) -> Result<(), PlayError> {
        self.shadow = None;
        self.processes.end(&ProcessName::Named(SHADOW.to_owned())).await;
        let port = free_port()?;
        let kubeconfig = self.cluster.kubeconfig("admin");
        let driver = self.driver.backend();
        if let Some(shadow) = shadowed::invocation(main, driver, &kubeconfig, port) {
            self.processes.start(SHADOW, program, &shadow, self.scratch.path()).await?;
            self.shadow = Some(port);
        }
        Ok(())
    }

    /// What shadow mode found. The claims that exist with their PersistentVolumes must have been compared.
    async fn shadow_findings(&self) -> Result<Findings, PlayError> {
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

    /// Starts a process, sees what becomes of it (it ends, it runs, or neither shows in time), and ends it.
    async fn attempt(&mut self, trial: &Trial) -> Result<(), PlayError> {
        let process = if trial.http == Some(false) { "try" } else { MAIN };
        let launch = Launch {
            process: Some(process.to_owned()),
            flags: trial.flags.clone().unwrap_or_default(),
            raw_flags: trial.raw_flags.clone(),
            env: trial.env.clone(),
            hostname: trial.hostname.clone(),
            http: trial.http,
        };
        let beside = self.beside.take();
        self.start(&launch).await?;
        self.beside = beside;
        let name = ProcessName::Named(process.to_owned());
        let came = async || {
            if let Some(code) = self.processes.exit(&name) {
                return Some(json!({"exit": code}));
            }
            let ready = self.http(trial.ready.as_deref().unwrap_or("/metrics")).await;
            ready.filter(|(status, _)| *status == 200).map(|_| "runs".into())
        };
        let flags = |flags: &Option<Vec<String>>| flags.clone().filter(|flags| !flags.is_empty());
        let title = match (trial.say.as_ref().filter(|say| !say.is_empty()), flags(&trial.flags)) {
            (Some(say), _) => json!(say),
            (None, Some(flags)) => json!(flags),
            (None, None) => json!(trial.raw_flags),
        };
        let note = |got: Value| json!({"try": title, "got": got});
        let neither = note("neither".into());
        // What is expected to come may come late on a busy machine.
        let may_fail = self.expected.allows_note(self.notes.len(), &self.names.norm(&neither));
        let patience = seconds(trial.patience.unwrap_or(8.0));
        let patience = if may_fail { patience } else { patience.max(LONGEST_WAIT) };
        let got = until(patience, POLL_INTERVAL, came).await.map_or(neither, note);
        self.processes.end(&name).await;
        self.notes.push(got);
        Ok(())
    }

    // === Waiting ===

    async fn wait(&mut self, wait: &Wait) {
        let problem = format!("{TIMED_OUT}{}", wait.source);
        let timeout = seconds(wait.until.timeout.unwrap_or(15.0));
        // What is expected to come may come late on a busy machine.
        let may_fail = self.expected.allows(&problem);
        let patience = if may_fail { timeout } else { timeout.max(LONGEST_WAIT) };
        let met = async || self.met(&wait.until).await.then_some(());
        if until(patience, POLL_INTERVAL, met).await.is_none() {
            self.problems.push(problem);
        }
    }

    /// Whether what is waited for has come. An API server that is away for a moment is asked again.
    async fn met(&self, until: &Until) -> bool {
        let list = async |kind| self.api.list(kind).await.unwrap_or_default();
        let n = until.n.unwrap_or(1);
        match until {
            Until { csi: Some(method), by: Some(by), of, .. } => {
                let counts = self.calls_by(method, Some(by));
                counts.values().filter(|count| **count as u64 >= n).count()
                    >= of.unwrap_or(usize::MAX)
            }
            Until { csi: Some(method), .. } => self.driver.journal().count(method) as u64 >= n,
            Until { exit: Some(process), .. } => self.processes.exit(process).is_some(),
            Until { pv: Some(n), .. } => list("PersistentVolume").await.len() >= *n,
            Until { no_pv: Some(_), .. } => list("PersistentVolume").await.is_empty(),
            Until { event: Some(reason), on, text, .. } => {
                occurrences(&list("Event").await, reason, on.as_deref(), text) >= n
            }
            Until { http: Some(path), status, .. } => {
                self.http(path).await.is_some_and(|(code, _)| code == status.unwrap_or(200))
            }
            Until { metric: Some(pattern), .. } => {
                let page = self.http("/metrics").await;
                page.is_some_and(|(_, page)| page.lines().any(|line| pattern.is_match(line)))
            }
            Until { kind: Some(kind), name, namespace, path, .. } => {
                let name = self.named(name).await;
                let (code, object) = self.object(kind, namespace.as_deref(), &name).await;
                let value = walk(&object, path).filter(|value| !value.is_null());
                match (until.gone, until.absent, &until.equals) {
                    (true, ..) => code == 404,
                    (_, true, _) => value.is_none(),
                    (_, _, Some(wanted)) => yaml::equal(value.unwrap_or(&Value::Null), wanted),
                    _ => value.is_some(),
                }
            }
            Until { capacities: Some(n), .. } => list("CSIStorageCapacity").await.len() == *n,
            _ => false,
        }
    }

    /// The name that is meant: of `pv-of:CLAIM` that of the PV whose `claimRef` names the claim.
    async fn named(&self, name: &str) -> String {
        let Some(claim) = name.strip_prefix("pv-of:") else { return name.to_owned() };
        let volumes = self.api.list("PersistentVolume").await.unwrap_or_default();
        let bound = volumes.iter().find(|volume| text(volume, "/spec/claimRef/name") == claim);
        bound.map_or(NOBODY, |volume| text(volume, "/metadata/name")).to_owned()
    }

    /// [`Run::named`] of an object that must exist, which may be a little late.
    async fn named_by_now(&self, name: &str) -> String {
        let named = async || Some(self.named(name).await).filter(|named| named != NOBODY);
        let found = until(LONGEST_WAIT, POLL_INTERVAL, named).await;
        found.unwrap_or_else(|| NOBODY.to_owned())
    }

    /// An object, or the server's word on it.
    async fn object(&self, kind: &str, namespace: Option<&str>, name: &str) -> (u16, Value) {
        let answer = self.api.get(address(kind, namespace, name)).await;
        answer.unwrap_or_else(|_| (0, json!({})))
    }

    /// A path of the process's own HTTP server.
    async fn http(&self, path: &str) -> Option<(u16, String)> {
        web::get(self.cluster.http, path).await
    }

    fn calls_by(&self, method: &str, by: Option<&str>) -> BTreeMap<String, usize> {
        self.driver.journal().counts_by(method, by.filter(|by| !by.is_empty()))
    }

    // === Notes ===

    /// Looks at what a note is about until it is as expected: that may be late on a busy machine.
    async fn note(&mut self, note: &Note) -> Result<(), PlayError> {
        let subject = &note.subject;
        let before = subject.grew.as_ref().map(|method| self.calls_by(method, subject.by()));
        let before = before.unwrap_or_default();
        if subject.grew.is_some() {
            sleep(seconds(subject.during.unwrap_or(1.0))).await;
        }
        let last = Instant::now() + PATIENCE;
        loop {
            let got = json!({"note": note.title, "got": self.look(subject, &before).await?});
            // A file that is removed is looked at once.
            let is_last = subject.remove || Instant::now() >= last;
            if is_last || self.expected.allows_note(self.notes.len(), &self.names.norm(&got)) {
                self.notes.push(got);
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Looks at what a note is about; `before`: the calls of a method that may have been called since.
    async fn look(
        &self,
        subject: &Subject,
        before: &BTreeMap<String, usize>,
    ) -> Result<Value, PlayError> {
        let by = subject.by();
        let flight = |method: &str| self.driver.backend().flight(method);
        Ok(match subject {
            Subject { exit: Some(process), .. } => self.processes.exit(process).into(),
            Subject { http: Some(path), body, .. } => {
                // The status, `null` when there was none, and what matches in the body.
                let answer = self.http(path).await;
                let (status, text) = answer.map_or((None, String::new()), |it| (Some(it.0), it.1));
                let found = body.as_ref().map(|body| found(body, &text)).unwrap_or_default();
                std::iter::once(json!(status)).chain(found.into_iter().map(Value::from)).collect()
            }
            Subject { grew: Some(method), .. } => {
                let grew: BTreeMap<_, _> = self
                    .calls_by(method, by)
                    .into_iter()
                    .map(|(key, count)| (count > before.get(&key).copied().unwrap_or(0), key))
                    .map(|(grew, key)| (key, grew))
                    .collect();
                if by.is_some() { json!(grew) } else { grew.values().any(|grew| *grew).into() }
            }
            Subject { count: Some(method), .. } => {
                let counts = self.calls_by(method, by);
                if by.is_some() { json!(counts) } else { counts.values().sum::<usize>().into() }
            }
            Subject { peak: Some(method), .. } => flight(method).map_or(0, |it| it.peak).into(),
            Subject { deadline: Some(method), .. } => {
                // In halves of a second, as Python rounds: a tie goes to the even neighbour.
                let left = flight(method).and_then(|flight| flight.first_time_left);
                json!(left.map(|left| (left.as_secs_f64() * 2.0).round_ties_even() / 2.0))
            }
            Subject { events: Some(object), .. } => {
                events(&self.api.list("Event").await.unwrap_or_default(), object, &self.names)
            }
            Subject { volumes: Some(_), .. } => {
                let volumes = self.driver.backend().volumes();
                let marked = volumes.iter().map(|id| self.names.norm_text(id));
                let mut marked: Vec<_> = marked.map(|id| id.as_str().map(str::to_owned)).collect();
                marked.sort();
                json!(marked)
            }
            Subject { log: Some(pattern), bool, .. } => {
                let log = self.processes.logs().last().map(|(_, log)| log).unwrap_or_default();
                let found = found(pattern, &log);
                if *bool { (!found.is_empty()).into() } else { json!(found) }
            }
            Subject { file: Some(path), remove, .. } => {
                let text = fs::read_to_string(path).ok();
                if *remove {
                    // It may never have been there.
                    let _ = fs::remove_file(path);
                }
                text.into()
            }
            Subject { metrics: Some(pattern), values, .. } => {
                let (_, page) = self.http("/metrics").await.unwrap_or_default();
                json!(series(&page, pattern, *values))
            }
            Subject { kind: Some(kind), name, namespace, path, .. } => {
                let name = self.named(name).await;
                match self.object(kind, namespace.as_deref(), &name).await {
                    (404, _) => "gone".into(),
                    (_, object) => walk(&object, path).cloned().into(),
                }
            }
            _ => return Err(format!("a note looks at nothing: {subject:?}").into()),
        })
    }

    async fn outcome(&mut self) -> Result<Outcome, PlayError> {
        let mut objects = BTreeMap::new();
        for kind in COLLECTED {
            objects.insert(kind.to_owned(), self.api.list(kind).await?);
        }
        let calls = self.driver.journal().calls();
        let remains = Remains {
            objects,
            calls: calls.into_iter().map(|c| (c.method.to_owned(), c.request)).collect(),
            notes: self.notes.clone(),
            problems: self.problems.clone(),
            metrics: self.http("/metrics").await.map(|(_, page)| page),
            exit: self.processes.exit(&ProcessName::Main(true)).into(),
        };
        Ok(outcome(remains, self.scenario, &mut self.names))
    }

    /// Asks the CLI, as the admin, about each claim that has no PersistentVolume: nothing binds claims here.
    async fn explain(&self, cli: &Path) -> Result<Vec<Explained>, PlayError> {
        /// Flags of the controller that the command has as well.
        const FLAGS: [&str; 9] = [
            "--volume-name-prefix",
            "--volume-name-uuid-length",
            "--default-fstype",
            "--feature-gates",
            "--node-deployment",
            "--strict-topology",
            "--immediate-topology",
            "--prevent-volume-mode-conversion",
            "--extra-create-metadata",
        ];
        let claims = self.api.list("PersistentVolumeClaim").await?;
        let volumes = self.api.list("PersistentVolume").await?;
        let served: BTreeSet<_> = volumes.iter().map(|it| text(it, "/spec/claimRef/uid")).collect();
        let mut explained = Vec::new();
        for claim in claims.iter().filter(|claim| !served.contains(text(claim, "/metadata/uid"))) {
            let (namespace, name) =
                (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
            let known = |flag: &&String| FLAGS.iter().any(|it| flag.split('=').next() == Some(*it));
            let output = Command::new(cli)
                .args(["explain", "pvc", name, "--namespace", namespace, "--kubeconfig"])
                .arg(self.cluster.kubeconfig("admin"))
                .args(self.scenario.flags.iter().filter(known))
                .env_clear()
                .output()
                .await?;
            explained.push(Explained {
                claim: format!("{namespace}/{name}"),
                code: output.status.code().unwrap_or(-1),
                text: String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
                    .into_owned(),
            });
        }
        Ok(explained)
    }
}

/// A step's object; without a namespace in the scenario's own.
fn address<'b>(kind: &'b str, namespace: Option<&'b str>, name: &'b str) -> Address<'b> {
    Address { kind, namespace: Some(namespace.unwrap_or(NAMESPACE)), name }
}

fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

/// Waits for so long, up to ten times that: time in which the machine is late with this wait does not count, as it is
/// late with what a scenario waits for as well.
async fn rest(time: Duration) {
    const SLICE: Duration = Duration::from_millis(25);
    let (start, mut left) = (Instant::now(), time);
    while !left.is_zero() && start.elapsed() < time * 10 {
        let (slice, from) = (left.min(SLICE), Instant::now());
        sleep(slice).await;
        if from.elapsed() < slice + SLICE {
            left -= slice;
        }
    }
}

/// The value that `path` leads to.
fn walk<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.as_object()?.get(key))
}

/// How often events of that reason, object and part of a message occurred.
fn occurrences(events: &[Value], reason: &str, on: Option<&str>, part: &str) -> u64 {
    let meant = |event: &&Value| {
        text(event, "/reason") == reason
            && on.is_none_or(|on| on == text(event, "/involvedObject/name"))
            && text(event, "/message").contains(part)
    };
    let times = |event: &Value| event.get("count").and_then(Value::as_u64).unwrap_or(1).max(1);
    events.iter().filter(meant).map(times).sum()
}

/// What matches in a text, each once and sorted; of a pattern with a group, the group.
fn found(pattern: &Regex, text: &str) -> BTreeSet<String> {
    let groups = pattern.captures_iter(text);
    let texts = groups.filter_map(|groups| groups.get(usize::from(groups.len() > 1)));
    texts.map(|found| found.as_str().to_owned()).collect()
}

/// Type, reason, count and message of an object's events.
fn events(events: &[Value], object: &str, names: &Names) -> Value {
    let about = events.iter().filter(|event| text(event, "/involvedObject/name") == object);
    let mut noted: Vec<_> = about
        .map(|event| {
            let message = names.norm_text(text(event, "/message"));
            let count = event.get("count").and_then(Value::as_i64);
            (text(event, "/type"), text(event, "/reason"), count, text(&message, "").to_owned())
        })
        .collect();
    noted.sort();
    json!(noted)
}
