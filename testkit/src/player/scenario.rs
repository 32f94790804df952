//! What a scenario file says, as types.
//!
//! Owns the form of scenario files; the reference player's docstrings (`play.py`, `steps.py`)
//! define it. Promises that a key nobody knows is an error, not silence.

use std::{collections::BTreeMap, fs, io, path::Path};

use regex::Regex;
use serde::{Deserialize, Deserializer, de, de::Error as _};
use serde_json::{Map, Value};

use super::{
    expand::expand,
    python,
    yaml::{self, YamlError},
};
use crate::driver::Script;

/// One scenario: a cluster's objects, a driver, steps, and what came of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, that of the file.
    pub name: String,
    /// What it shows.
    #[serde(default)]
    pub about: String,
    /// Flags on top of the common ones.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// All flags, instead of the common ones.
    pub(super) raw_flags: Option<Vec<String>>,
    /// With `raw_flags`: whether the metrics address is left out too.
    #[serde(default)]
    pub(super) no_http: bool,
    /// Additional environment; `null` takes a variable away.
    #[serde(default)]
    pub(super) env: Environment,
    /// Whose kubeconfig is used; `sa`.
    pub(super) kubeconfig: Option<String>,
    /// The host name that processes see.
    pub(super) hostname: Option<String>,
    /// How the driver behaves.
    #[serde(default)]
    pub(super) driver: Script,
    /// Whether the driver's socket is there from the start.
    #[serde(default = "yes")]
    pub(super) serve: bool,
    /// Whether the first process is started before the steps.
    #[serde(default = "yes")]
    pub(super) autostart: bool,
    /// Rights to run with less of.
    pub(super) rbac: Option<Rights>,
    /// Objects made before the start.
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    /// What happens.
    pub(super) steps: Vec<Step>,
    /// Seconds of rest after the last step; 0.6.
    pub(super) settle: Option<f64>,
    /// CSI methods whose calls come in no particular order.
    #[serde(default)]
    pub(super) unordered: Vec<String>,
    /// Whether equal calls are all listed.
    #[serde(default)]
    pub(super) keep_order: bool,
    /// Parts of the outcome that are not kept.
    #[serde(default)]
    pub(super) skip: Vec<String>,
    /// The quirk of the reference it shows; for readers.
    pub(super) quirk: Option<Value>,
    /// Feature gates of the API server it needs; for readers.
    pub(super) needs: Option<Value>,
    /// The outcome of the reference.
    #[serde(default)]
    pub(super) expect: Map<String, Value>,
}

/// Environment variables; `None` takes one away.
pub(super) type Environment = BTreeMap<String, Option<String>>;

/// The rights of `cluster/rbac-full.yaml`, less some.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rights {
    /// `RESOURCE` or `RESOURCE:VERB`.
    #[serde(default)]
    pub(super) without: Vec<String>,
}

/// One step.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawStep")]
pub(super) enum Step {
    /// Make objects.
    Create(Vec<Value>),
    /// Delete an object.
    Delete(Deletion),
    /// Merge-patch an object.
    Patch(MergePatch),
    /// Wait for something, but not for ever.
    Wait(Wait),
    /// Rest for some seconds.
    Settle(f64),
    /// New rules for the driver.
    Driver(Box<Script>),
    /// Send a signal to a process.
    Stop {
        /// `TERM`, `KILL`, ...
        signal: String,
        /// To which one.
        process: ProcessName,
        /// Go on without waiting for its end.
        nowait: bool,
    },
    /// Start a process.
    Start(Launch),
    /// Start the driver's server, or stop it.
    Server(Serving),
    /// Change the rights.
    Rbac(Rights),
    /// Start a process and see what becomes of it.
    Try(Trial),
    /// Write something into the outcome.
    Note(Note),
}

/// Whether the driver's server should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Serving {
    /// It should.
    Start,
    /// It should not.
    Stop,
}

/// Which process is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessName {
    /// The one called `main`, or the last started while there is none.
    Main,
    /// The one started under this name.
    Named(String),
}

/// `delete:`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Deletion {
    /// Its kind.
    pub(super) kind: String,
    /// Its name, or `pv-of:CLAIM`.
    pub(super) name: String,
    /// Its namespace; the scenario's.
    pub(super) namespace: Option<String>,
    /// Whether it may be gone already.
    #[serde(default)]
    pub(super) maybe: bool,
}

/// `patch:`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MergePatch {
    /// Its kind.
    pub(super) kind: String,
    /// Its name, or `pv-of:CLAIM`.
    pub(super) name: String,
    /// Its namespace; the scenario's.
    pub(super) namespace: Option<String>,
    /// The subresource to patch.
    pub(super) subresource: Option<String>,
    /// The merge patch.
    pub(super) merge: Value,
}

/// `start:`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Launch {
    /// Its name; `main`.
    #[serde(rename = "as")]
    pub(super) process: Option<String>,
    /// Further flags.
    pub(super) flags: Vec<String>,
    /// All flags.
    pub(super) raw_flags: Option<Vec<String>>,
    /// Further environment.
    pub(super) env: Environment,
    /// The host name it sees.
    pub(super) hostname: Option<String>,
    /// `false`: it has no metrics address.
    pub(super) http: Option<bool>,
}

/// `try:`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Trial {
    /// Further flags.
    pub(super) flags: Option<Vec<String>>,
    /// All flags.
    pub(super) raw_flags: Option<Vec<String>>,
    /// Further environment.
    pub(super) env: Environment,
    /// The host name it sees.
    pub(super) hostname: Option<String>,
    /// `false`: it has no metrics address.
    pub(super) http: Option<bool>,
    /// The path that answers 200 once it runs; `/metrics`.
    pub(super) ready: Option<String>,
    /// Seconds to wait for either end; 8.
    pub(super) patience: Option<f64>,
    /// What the note is called.
    pub(super) say: Option<String>,
}

/// `wait:`
#[derive(Debug, Clone)]
pub(super) struct Wait {
    /// What for.
    pub(super) until: Condition,
    /// Seconds until it is a problem; 15.
    pub(super) timeout: f64,
    /// As it stands in the file, for the problem's text.
    pub(super) source: Value,
}

/// What a `wait` is for.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    /// A method had `n` calls.
    Calls { method: String, n: usize },
    /// At least `of` different values of a parameter or field had `n` calls.
    CallsBy { method: String, by: Option<String>, n: usize, of: usize },
    /// A process ended.
    Exit(ProcessName),
    /// There are at least so many PVs.
    Volumes(usize),
    /// There is no PV.
    NoVolumes,
    /// There are events, repeats counted.
    Event { reason: String, on: Option<String>, text: String, n: u64 },
    /// A path answers with a status.
    Http { path: String, status: u16 },
    /// A line of the metrics matches.
    Metric(Regex),
    /// An object is as told.
    Object(ObjectState),
    /// There are exactly so many `CSIStorageCapacity` objects.
    Capacities(usize),
}

/// A condition on one object.
#[derive(Debug, Clone)]
pub(super) struct ObjectState {
    /// Its kind.
    pub(super) kind: String,
    /// Its name, or `pv-of:CLAIM`.
    pub(super) name: String,
    /// Its namespace; the scenario's.
    pub(super) namespace: Option<String>,
    /// Keys that lead to the value looked at.
    pub(super) path: Vec<String>,
    /// What that should be.
    pub(super) should: Should,
}

/// What is asked of an object or of a value in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Should {
    /// The object is not there.
    BeGone,
    /// The value is not there.
    BeAbsent,
    /// The value is there.
    BePresent,
    /// The value is this.
    Equal(Value),
}

/// `note:`
#[derive(Debug, Clone)]
pub(super) struct Note {
    /// What it is called in the outcome.
    pub(super) title: String,
    /// What is looked at.
    pub(super) subject: Subject,
}

/// What a `note` looks at.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// The exit code of a process, `null` while it runs.
    Exit(ProcessName),
    /// A path's status and what matches in its body.
    Http { path: String, body: Option<Regex> },
    /// Whether calls still come.
    Grew { method: String, by: Option<String>, during: f64 },
    /// How many calls there were.
    Count { method: String, by: Option<String> },
    /// The most calls at once.
    Peak(String),
    /// Seconds that the first call's deadline left.
    Deadline(String),
    /// An object's events.
    Events(String),
    /// The driver's volumes.
    Volumes,
    /// What the last started process printed, or whether it matches.
    Log { pattern: Regex, only_whether: bool },
    /// A file's contents.
    File { path: String, remove: bool },
    /// Matching lines of the metrics.
    Metrics { pattern: Regex, values: bool },
    /// An object or a value in it.
    Object { kind: String, name: String, namespace: Option<String>, path: Vec<String> },
}

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The file does not hold a scenario.
    #[error("{path}: {source}")]
    Malformed {
        /// Which file.
        path: String,
        /// Why not.
        source: YamlError,
    },
}

impl Scenario {
    /// Reads a scenario from its file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let shown = || path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: shown(), source })?;
        Self::parse(&text).map_err(|source| ScenarioError::Malformed { path: shown(), source })
    }

    /// Reads a scenario from its text.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        expand(yaml::document(text)?)?.read()
    }
}

fn yes() -> bool {
    true
}

// === Steps ===

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    create: Option<Vec<Value>>,
    delete: Option<Deletion>,
    patch: Option<MergePatch>,
    wait: Option<Wait>,
    settle: Option<f64>,
    driver: Option<Box<Script>>,
    stop: Option<String>,
    #[serde(rename = "as")]
    process: Option<String>,
    #[serde(default)]
    nowait: bool,
    #[serde(default, deserialize_with = "maybe_empty")]
    start: Option<Launch>,
    server: Option<Serving>,
    rbac: Option<Rights>,
    r#try: Option<Trial>,
    note: Option<Note>,
}

/// `start:` with nothing behind it starts with nothing special.
fn maybe_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Launch>, D::Error> {
    Ok(Some(Option::<Launch>::deserialize(from)?.unwrap_or_default()))
}

impl TryFrom<RawStep> for Step {
    type Error = &'static str;

    fn try_from(raw: RawStep) -> Result<Self, Self::Error> {
        let process = raw.process.map_or(ProcessName::Main, ProcessName::Named);
        let nowait = raw.nowait;
        let candidates = [
            raw.create.map(Self::Create),
            raw.delete.map(Self::Delete),
            raw.patch.map(Self::Patch),
            raw.wait.map(Self::Wait),
            raw.settle.map(Self::Settle),
            raw.driver.map(Self::Driver),
            raw.stop.map(|signal| Self::Stop { signal, process, nowait }),
            raw.start.map(Self::Start),
            raw.server.map(Self::Server),
            raw.rbac.map(Self::Rbac),
            raw.r#try.map(Self::Try),
            raw.note.map(Self::Note),
        ];
        let mut steps = candidates.into_iter().flatten();
        match (steps.next(), steps.next()) {
            (Some(step), None) => Ok(step),
            (None, _) => Err("a step does nothing"),
            _ => Err("a step does two things"),
        }
    }
}

impl<'de> Deserialize<'de> for ProcessName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::Bool(true) => Ok(Self::Main),
            Value::String(name) => Ok(Self::Named(name)),
            other => Err(D::Error::custom(format!("{other} names no process; write true or a name"))),
        }
    }
}

// === Waits ===

/// Every key that a `wait` may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWait {
    csi: Option<String>,
    by: Option<String>,
    n: Option<u64>,
    of: Option<usize>,
    exit: Option<ProcessName>,
    pv: Option<usize>,
    no_pv: Option<bool>,
    event: Option<String>,
    on: Option<String>,
    text: Option<String>,
    http: Option<String>,
    status: Option<u16>,
    #[serde(default, deserialize_with = "pattern")]
    metric: Option<Regex>,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    gone: bool,
    #[serde(default)]
    absent: bool,
    #[serde(default, deserialize_with = "present")]
    equals: Option<Value>,
    capacities: Option<usize>,
    timeout: Option<f64>,
}

/// A key that is there counts, even as `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(from)?;
    // Python writes the very end of the text in capitals.
    Regex::new(&text.replace(r"\Z", r"\z")).map(Some).map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let source = Value::deserialize(from)?;
        let raw: RawWait = serde_json::from_value(source.clone()).map_err(D::Error::custom)?;
        let timeout = raw.timeout.unwrap_or(15.0);
        let until = raw.condition().ok_or_else(|| D::Error::custom(format!("no wait: {source}")))?;
        Ok(Self { until, timeout, source })
    }
}

impl RawWait {
    fn condition(self) -> Option<Condition> {
        let calls = usize::try_from(self.n.unwrap_or(1)).ok()?;
        Some(match self {
            Self { csi: Some(method), by: Some(by), of, .. } => {
                Condition::CallsBy { method, by: Some(by).filter(|by| !by.is_empty()), n: calls, of: of? }
            }
            Self { csi: Some(method), .. } => Condition::Calls { method, n: calls },
            Self { exit: Some(process), .. } => Condition::Exit(process),
            Self { pv: Some(n), .. } => Condition::Volumes(n),
            Self { no_pv: Some(_), .. } => Condition::NoVolumes,
            Self { event: Some(reason), on, text, n, .. } => {
                Condition::Event { reason, on, text: text.unwrap_or_default(), n: n.unwrap_or(1) }
            }
            Self { http: Some(path), status, .. } => {
                Condition::Http { path, status: status.unwrap_or(200) }
            }
            Self { metric: Some(pattern), .. } => Condition::Metric(pattern),
            Self { kind: Some(kind), name, namespace, path, gone, absent, equals, .. } => {
                let should = match (gone, absent, equals) {
                    (true, ..) => Should::BeGone,
                    (_, true, _) => Should::BeAbsent,
                    (_, _, Some(value)) => Should::Equal(value),
                    _ => Should::BePresent,
                };
                Condition::Object(ObjectState { kind, name: name?, namespace, path, should })
            }
            Self { capacities: Some(n), .. } => Condition::Capacities(n),
            _ => return None,
        })
    }
}

// === Notes ===

/// Every key that a `note` may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNote {
    say: Option<String>,
    exit: Option<ProcessName>,
    http: Option<String>,
    #[serde(default, deserialize_with = "pattern")]
    body: Option<Regex>,
    grew: Option<String>,
    during: Option<f64>,
    by: Option<String>,
    count: Option<String>,
    peak: Option<String>,
    deadline: Option<String>,
    events: Option<String>,
    volumes: Option<bool>,
    #[serde(default, deserialize_with = "pattern")]
    log: Option<Regex>,
    #[serde(default)]
    bool: bool,
    file: Option<String>,
    #[serde(default)]
    remove: bool,
    #[serde(default, deserialize_with = "pattern")]
    metrics: Option<Regex>,
    #[serde(default)]
    values: bool,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    path: Vec<String>,
}

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Ordered(entries) = Ordered::deserialize(from)?;
        let title = title(&entries);
        let whole: Value = entries.into_iter().collect::<Map<_, _>>().into();
        let raw: RawNote = serde_json::from_value(whole.clone()).map_err(D::Error::custom)?;
        let title = raw.say.clone().filter(|say| !say.is_empty()).unwrap_or(title);
        let subject = raw.subject().ok_or_else(|| D::Error::custom(format!("no note: {whole}")))?;
        Ok(Self { title, subject })
    }
}

/// A note's own words, in the order of the file: `count CreateVolume by name`.
fn title(entries: &[(String, Value)]) -> String {
    let words = entries.iter().map(|(key, value)| match value {
        Value::Array(parts) => {
            let parts: Vec<_> = parts.iter().map(python::text).collect();
            format!("{key} {}", parts.join("."))
        }
        plain => format!("{key} {}", python::text(plain)),
    });
    words.collect::<Vec<_>>().join(" ")
}

impl RawNote {
    fn subject(self) -> Option<Subject> {
        let by = self.by.filter(|by| !by.is_empty());
        Some(match (self.exit, self.http, self.grew, self.count, self.peak, self.deadline) {
            (Some(process), ..) => Subject::Exit(process),
            (_, Some(path), ..) => Subject::Http { path, body: self.body },
            (_, _, Some(method), ..) => {
                Subject::Grew { method, by, during: self.during.unwrap_or(1.0) }
            }
            (_, _, _, Some(method), ..) => Subject::Count { method, by },
            (_, _, _, _, Some(method), _) => Subject::Peak(method),
            (_, _, _, _, _, Some(method)) => Subject::Deadline(method),
            _ => match (self.events, self.volumes, self.log, self.file, self.metrics) {
                (Some(name), ..) => Subject::Events(name),
                (_, Some(_), ..) => Subject::Volumes,
                (_, _, Some(pattern), ..) => Subject::Log { pattern, only_whether: self.bool },
                (_, _, _, Some(path), _) => Subject::File { path, remove: self.remove },
                (_, _, _, _, Some(pattern)) => Subject::Metrics { pattern, values: self.values },
                _ => Subject::Object {
                    kind: self.kind?,
                    name: self.name?,
                    namespace: self.namespace,
                    path: self.path,
                },
            },
        })
    }
}

/// A mapping in the order of the file.
struct Ordered(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Ordered;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        from.deserialize_map(Visitor)
    }
}
