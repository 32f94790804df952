//! The steps of a scenario.
//!
//! Owns their form: a mapping with one key that says what happens, and the keys that go with it.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{Environment, Note, Rights, Wait};
use crate::driver::Script;

/// One step.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawStep")]
pub(in crate::player) enum Step {
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
pub(in crate::player) enum Serving {
    /// It should.
    Start,
    /// It should not.
    Stop,
}

/// Which process is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::player) enum ProcessName {
    /// The one called `main`, or the last started while there is none.
    Main,
    /// The one started under this name.
    Named(String),
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("main"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// `delete:`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::player) struct Deletion {
    /// Its kind.
    pub(in crate::player) kind: String,
    /// Its name, or `pv-of:CLAIM`.
    pub(in crate::player) name: String,
    /// Its namespace; the scenario's.
    pub(in crate::player) namespace: Option<String>,
    /// Whether it may be gone already.
    #[serde(default)]
    pub(in crate::player) maybe: bool,
}

/// `patch:`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::player) struct MergePatch {
    /// Its kind.
    pub(in crate::player) kind: String,
    /// Its name, or `pv-of:CLAIM`.
    pub(in crate::player) name: String,
    /// Its namespace; the scenario's.
    pub(in crate::player) namespace: Option<String>,
    /// The subresource to patch.
    pub(in crate::player) subresource: Option<String>,
    /// The merge patch.
    pub(in crate::player) merge: Value,
}

/// `start:`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::player) struct Launch {
    /// Its name; `main`.
    #[serde(rename = "as")]
    pub(in crate::player) process: Option<String>,
    /// Further flags.
    pub(in crate::player) flags: Vec<String>,
    /// All flags.
    pub(in crate::player) raw_flags: Option<Vec<String>>,
    /// Further environment.
    pub(in crate::player) env: Environment,
    /// The host name it sees.
    pub(in crate::player) hostname: Option<String>,
    /// `false`: it has no metrics address.
    pub(in crate::player) http: Option<bool>,
}

/// `try:`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::player) struct Trial {
    /// Further flags.
    pub(in crate::player) flags: Option<Vec<String>>,
    /// All flags.
    pub(in crate::player) raw_flags: Option<Vec<String>>,
    /// Further environment.
    pub(in crate::player) env: Environment,
    /// The host name it sees.
    pub(in crate::player) hostname: Option<String>,
    /// `false`: it has no metrics address.
    pub(in crate::player) http: Option<bool>,
    /// The path that answers 200 once it runs; `/metrics`.
    pub(in crate::player) ready: Option<String>,
    /// Seconds to wait for either end; 8.
    pub(in crate::player) patience: Option<f64>,
    /// What the note is called.
    pub(in crate::player) say: Option<String>,
}

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
            other => {
                Err(D::Error::custom(format!("{other} names no process; write true or a name")))
            }
        }
    }
}
